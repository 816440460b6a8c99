//! What a shared child reports, and which of its sessions hears it: the one that it concerns, or none.

use serde_json::json;

use super::{SERVER, SHARED, call, shared};
use crate::kit::{Children, Client, Gate, Script, Stream, eventually, text_in, text_of};

/// Sends clients to URLs, and reports changes of resources.
const TELLING: Script = Script {
    setup: r#"elicitation() { printf '{"mode":"url","elicitationId":"%s","url":"https://x/","message":"Go"}' "$1"; }"#,
    tools: r#"*'"name":"send"'*)
        asked=$id
        printf '{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":%s}\n' "$(elicitation e-1)" ;;
    *'"id":"q-1"'*) text "$asked" sent ;;
    *'"name":"require"'*)
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"Go","data":{"elicitations":[%s]}}}\n' \
            "$id" "$(elicitation e-2)" ;;
    *'"name":"complete '*)
        name=${line#*'"name":"complete '}; name=${name%%\"*}
        printf '{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"%s"}}\n' "$name"
        text "$id" completed ;;
    *'"name":"update '*)
        name=${line#*'"name":"update '}; name=${name%%\"*}
        printf '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"%s"}}\n' "$name"
        text "$id" updated ;;
    *'"name":"mumble"'*)
        echo '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}'
        echo '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}'
        echo '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":7}}'
        text "$id" mumbled ;;
    *'"name":"change"'*) echo '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'; text "$id" changed ;;
    *'"uri":"secret"'*)
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no such resource"}}\n' "$id" ;;"#,
    after: "",
};

/// Connects a client, and opens its GET stream.
async fn listening(gate: &Gate) -> (Client, Stream) {
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": { "url": {} } })).await;
    let stream = client.get_stream().await;
    (client, stream)
}

/// Checks that nothing came on a stream before a notification that goes to everyone.
async fn hears_nothing_before_the_change(teller: &Client, stream: &mut Stream) {
    text_of(teller, "change").await;
    assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn the_completion_of_a_url_elicitation_goes_to_the_session_that_was_asked() {
    let (_children, gate) = shared(TELLING).await;
    let ((ann, mut of_ann), (bob, mut of_bob)) = (listening(&gate).await, listening(&gate).await);
    let mut sending = ann.stream("tools/call", json!({ "name": "send" }));
    let question = sending.message().await;
    assert_eq!(question["params"]["elicitationId"], "e-1");
    ann.respond(&question["id"], json!({ "action": "accept" })).await;
    assert_eq!(text_in(&sending.message().await["result"]), "sent");
    assert_eq!(bob.error("tools/call", json!({ "name": "require" })).await.0, -32042);
    let teller = Client::connect(&gate.url).await;
    for (id, of_whom) in [("e-1", &mut of_ann), ("e-2", &mut of_bob)] {
        assert_eq!(text_of(&teller, &format!("complete {id}")).await, "completed");
        let told = of_whom.message().await;
        assert_eq!(
            (&told["method"], &told["params"]["elicitationId"]),
            (&json!("notifications/elicitation/complete"), &json!(id))
        );
    }
    // An elicitation that no client was sent to, or that was already reported, goes to no session.
    text_of(&teller, "complete e-1").await;
    text_of(&teller, "complete e-3").await;
    hears_nothing_before_the_change(&teller, &mut of_ann).await;
    assert_eq!(of_bob.message().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_resource_update_goes_to_the_sessions_that_have_subscribed() {
    let (children, gate) = shared(TELLING).await;
    let ((ann, mut of_ann), (bob, mut of_bob)) = (listening(&gate).await, listening(&gate).await);
    let subscribe = async |client: &Client, uri| client.request("resources/subscribe", json!({ "uri": uri })).await;
    subscribe(&ann, "file:///a").await;
    assert_eq!(subscribe(&bob, "secret").await["error"]["code"], -32002);
    let teller = Client::connect(&gate.url).await;
    for uri in ["secret", "file:///a/part", "file:///b"] {
        text_of(&teller, &format!("update {uri}")).await;
    }
    assert_eq!(of_ann.message().await["params"]["uri"], "file:///a/part");
    hears_nothing_before_the_change(&teller, &mut of_bob).await;
    assert_eq!(of_ann.message().await["method"], "notifications/tools/list_changed");
    // Of two subscribed sessions, one that unsubscribes takes nothing from the other.
    subscribe(&bob, "file:///a").await;
    assert_eq!(ann.ask("resources/unsubscribe", json!({ "uri": "file:///a" })).await, json!({}));
    text_of(&teller, "update file:///a").await;
    assert_eq!(of_bob.message().await["params"]["uri"], "file:///a");
    let child = children.only().await;
    assert!(!child.lines().iter().any(|line| line.contains("unsubscribe")), "the child serves bob still");
    bob.ask("resources/unsubscribe", json!({ "uri": "file:///a" })).await;
    child.line("unsubscribe").await;
    hears_nothing_before_the_change(&teller, &mut of_ann).await;
}

#[tokio::test]
async fn a_notification_that_cannot_be_read_reaches_no_session_and_is_counted() {
    let children = Children::new(TELLING);
    let gate = children.gate(&format!("server.admin = \"127.0.0.1:0\"\n{SHARED}")).await;
    let (ann, mut of_ann) = listening(&gate).await;
    ann.ask("resources/subscribe", json!({ "uri": "7" })).await;
    assert_eq!(text_of(&ann, "mumble").await, "mumbled");
    hears_nothing_before_the_change(&ann, &mut of_ann).await;
    let metrics = Client::new(&format!("{}/metrics", gate.admin.as_ref().unwrap()));
    let metrics = metrics.send(http::Method::GET, "").await.text().to_owned();
    assert!(metrics.contains("\ntaskgate_unreadable_messages_total 3\n"), "{metrics}");
}

#[tokio::test]
async fn a_duplicate_uri_ends_no_subscription_of_another_session() {
    let (children, gate) = shared(TELLING).await;
    let ((ann, mut of_ann), bob) = (listening(&gate).await, Client::connect(&gate.url).await);
    ann.ask("resources/subscribe", json!({ "uri": "file:///a" })).await;
    for method in ["subscribe", "unsubscribe"] {
        for params in [r#"{"uri":"x","uri":"file:///a"}"#, r#"{"uri":"x","\u0075ri":"file:///a"}"#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":9,"method":"resources/{method}","params":{params}}}"#);
            let error = bob.post(text).await.json()["error"].clone();
            assert_eq!(error["code"], -32602, "{method} {params}: {error}");
            assert!(error["message"].as_str().unwrap().contains("duplicate member \"uri\""), "{error}");
        }
    }
    text_of(&bob, "update file:///a").await;
    assert_eq!(of_ann.message().await["params"]["uri"], "file:///a");
    assert!(!children.only().await.lines().iter().any(|line| line.contains("unsubscribe")));
}

#[tokio::test]
async fn subscriptions_beyond_the_limit_of_a_session_are_refused() {
    let (_children, gate) = shared(TELLING).await;
    let client = Client::connect(&gate.url).await;
    let (code, message) = client.error("resources/subscribe", json!({ "uri": "u".repeat(70_000) })).await;
    assert_eq!(code, -32603);
    assert!(message.contains("limit reached: 65536 bytes of URIs may be subscribed to in one session"), "{message}");
    assert_eq!(client.ask("resources/subscribe", json!({ "uri": "file:///a" })).await, json!({}));
}

#[tokio::test]
async fn a_log_message_reaches_the_only_session_with_calls_in_flight_and_none_of_several() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let mut of_bob = bob.get_stream().await;
    let mut logging = ann.stream("tools/call", json!({ "name": "log" }));
    assert_eq!(logging.message().await["method"], "notifications/message");
    assert_eq!(text_in(&logging.message().await["result"]), "logged");
    let kept = call(&bob, &child, "keep bob").await;
    // Calls of both are in flight: it may be about either.
    text_of(&ann, "log").await;
    text_of(&ann, "change").await;
    assert_eq!(of_bob.message().await["method"], "notifications/tools/list_changed");
    text_of(&ann, "give bob").await;
    kept.await.unwrap();
}

#[tokio::test]
async fn a_subscription_holds_that_was_made_behind_the_end_of_another_sessions_on_a_child_that_reads_slowly() {
    let slow = Script {
        tools: r#"*'"name":"busy"'*) until [ -e "$dir/go" ]; do sleep 0.02; done; text "$id" done ;;"#,
        ..Script::default()
    };
    let children = Children::new(slow);
    let gate = children.gate(&format!("server.admin = \"127.0.0.1:0\"\n{SHARED}")).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let uri = json!({ "uri": "file:///a" });
    ann.ask("resources/subscribe", uri.clone()).await;
    let child = children.only().await;
    let busy = call(&ann, &child, "busy").await;
    // More than a pipe holds, of one session, before its unsubscribe.
    let filling = async |client: &Client| {
        let params = json!({ "pad": "x".repeat(4000) });
        assert_eq!(client.notify("notifications/x", params).await, 202);
    };
    for _ in 0..40 {
        filling(&ann).await;
    }
    let asking = |client: &Client, method: &'static str| {
        let (client, uri) = (client.clone(), uri.clone());
        tokio::spawn(async move { client.ask(method, uri).await })
    };
    let metrics = Client::new(&format!("{}/metrics", gate.admin.as_ref().unwrap()));
    let waits_for_child = async || {
        let metrics = metrics.send(http::Method::GET, "").await.text().to_owned();
        let bytes = metrics.lines().find_map(|line| line.strip_prefix("taskgate_child_stdin_bytes ")).unwrap();
        bytes.parse::<u64>().unwrap()
    };
    let before = waits_for_child().await;
    let ending = asking(&ann, "resources/unsubscribe");
    eventually(async || (waits_for_child().await > before).then_some(())).await;
    let making = asking(&bob, "resources/subscribe");
    children.touch("go");
    for asked in [ending, making, busy] {
        asked.await.unwrap();
    }
    let lines = child.lines();
    let about: Vec<_> = lines.iter().filter(|line| line.contains("file:///a")).collect();
    assert!(about.last().unwrap().contains("resources/subscribe"), "{about:?}");
}

#[tokio::test]
async fn the_subscriptions_of_a_session_that_ends_are_ended_but_those_that_others_have() {
    let (children, gate) = shared(TELLING).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    for (client, uri) in [(&ann, "file:///both"), (&ann, "file:///of-ann"), (&bob, "file:///both")] {
        client.ask("resources/subscribe", json!({ "uri": uri })).await;
    }
    ann.delete().await;
    let child = children.only().await;
    let ended = child.message("resources/unsubscribe").await;
    assert_eq!(ended["params"], json!({ "uri": "file:///of-ann" }));
    bob.delete().await;
    child.line(r#""method":"resources/unsubscribe","params":{"uri":"file:///both""#).await;
}
