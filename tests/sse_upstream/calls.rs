//! What passes between a client and a well-behaved old server, in sessions without tasks.

use http::Method;
use serde_json::json;

use super::{all, gate};
use crate::kit::{Client, SseOptions, SseUpstream, eventually, soon, text_in, text_of};

const TEXT: &str = r#"{"content":[{"type":"text","text":"done"}]}"#;

#[tokio::test]
async fn calls_are_posted_and_their_answers_come_on_the_stream() {
    let (server, _gate, client) = all().await;
    assert_eq!(client.ask("tools/list", json!({})).await["tools"][0]["execution"]["taskSupport"], "optional");
    let result = client.ask("tools/call", json!({ "name": "echo", "arguments": { "a": "grüße" } })).await;
    assert_eq!(text_in(&result), r#"{"a":"grüße"}"#);
    assert_eq!(server.message("echo").await.header("content-type"), "application/json");
    assert_eq!(server.count("GET"), 1);
}

#[tokio::test]
async fn any_2xx_means_that_a_message_was_accepted_and_its_body_is_ignored() {
    let fake = r#"{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"not this"}]}}"#;
    for accepted in [(200, "Accepted"), (202, "Accepted"), (202, ""), (204, ""), (200, fake)] {
        let server = SseUpstream::start(SseOptions { accepted, ..<_>::default() }).await;
        let gate = gate(&server).await;
        let client = Client::connect(&gate.url).await;
        assert_eq!(text_of(&client, "echo").await, "{}", "{accepted:?}");
    }
}

#[tokio::test]
async fn calls_that_overlap_get_their_own_answers() {
    let (server, _gate, client) = all().await;
    let calls: Vec<_> = (0..20)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move { text_of(&client, &format!("slow-{n}")).await })
        })
        .collect();
    for n in (0..20).rev() {
        let call = server.message(&format!("slow-{n}")).await;
        server.answer(&call, &TEXT.replace("done", &n.to_string())).await;
    }
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), n.to_string());
    }
}

#[tokio::test]
async fn sessions_have_a_stream_each_and_get_their_own_answers() {
    let (server, gate, ann) = all().await;
    let bob = Client::connect(&gate.url).await;
    let (of_ann, of_bob) = (ann.clone(), bob.clone());
    let first = tokio::spawn(async move { text_of(&of_ann, "first").await });
    let second = tokio::spawn(async move { text_of(&of_bob, "second").await });
    let (first_call, second_call) = (server.message("first").await, server.message("second").await);
    assert_eq!((first_call.uri.query(), second_call.uri.query()), (Some("session=1"), Some("session=2")));
    server.answer(&second_call, &TEXT.replace("done", "b")).await;
    server.answer(&first_call, &TEXT.replace("done", "a")).await;
    assert_eq!((first.await.unwrap(), second.await.unwrap()), ("a".to_owned(), "b".to_owned()));
}

#[tokio::test]
async fn progress_of_a_call_reaches_the_client_before_the_answer() {
    let (server, _gate, client) = all().await;
    let mut call = client.stream("tools/call", json!({ "name": "slow", "_meta": { "progressToken": "t" } }));
    let seen = server.message("slow").await;
    let token = seen.json()["params"]["_meta"]["progressToken"].take();
    let progress = json!({ "progressToken": token, "progress": 1 });
    server.stream(1).notify("notifications/progress", progress).await;
    assert_eq!(call.message().await["params"], json!({ "progressToken": "t", "progress": 1 }));
    server.answer(&seen, TEXT).await;
    assert_eq!(text_in(&call.message().await["result"]), "done");
}

#[tokio::test]
async fn a_request_of_the_server_within_a_call_reaches_the_client_and_the_answer_the_server() {
    let (server, gate, _) = all().await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await;
    let mut call = client.stream("tools/call", json!({ "name": "ask" }));
    let seen = server.message("ask").await;
    let question = r#"{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"Really?"}}"#;
    server.stream(2).event(question).await;
    let question = call.message().await;
    assert_eq!(question["params"]["message"], "Really?");
    assert_eq!(client.respond(&question["id"], json!({ "action": "accept", "content": {} })).await, 202);
    let answered = |seen: &crate::kit::Seen| seen.json()["result"]["action"] == "accept";
    let answer = eventually(async || server.seen().into_iter().find(answered)).await;
    assert_eq!((answer.json()["id"].clone(), answer.uri.query()), (json!("q-1"), Some("session=2")));
    server.answer(&seen, TEXT).await;
    assert_eq!(text_in(&call.message().await["result"]), "done");
}

#[tokio::test]
async fn messages_that_belong_to_no_call_reach_the_get_stream() {
    let (server, _gate, client) = all().await;
    let mut listening = client.get_stream().await;
    server.stream(1).notify("notifications/tools/list_changed", json!({})).await;
    assert_eq!(listening.message().await["method"], "notifications/tools/list_changed");
    // taskgate has the one stream, and opens no other for that of the client.
    assert_eq!(server.count("GET"), 1);
}

#[tokio::test]
async fn a_ping_of_the_server_is_answered_even_if_the_client_does_not_listen() {
    let (server, _gate, _client) = all().await;
    for id in ["\"p-1\"", "7"] {
        server.stream(1).event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)).await;
        let pong = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        eventually(async || server.seen().into_iter().find(|seen| seen.text() == pong)).await;
    }
}

#[tokio::test]
async fn comments_unknown_events_and_nonsense_change_nothing() {
    let (server, _gate, client) = all().await;
    let stream = server.stream(1);
    for noise in [
        ": ping\n\n",
        "event: ping\ndata: 2026-01-01\n\n",
        "event: endpoint\ndata: /elsewhere?session=1\n\n",
        "data: nonsense\n\n",
        "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n\n",
        "retry: 1\nid: 7\n\n",
    ] {
        stream.raw(noise).await;
    }
    assert_eq!(text_of(&client, "echo").await, "{}");
    assert_eq!(server.message("echo").await.uri.path(), "/message");
}

#[tokio::test]
async fn a_post_that_is_refused_ends_its_own_call_only() {
    let (server, _gate, client) = all().await;
    server.hold("refused");
    let caller = client.clone();
    let other = tokio::spawn(async move { text_of(&caller, "slow").await });
    let slow = server.message("slow").await;
    for status in [400, 409, 500] {
        let (refusal, ()) = tokio::join!(client.error("tools/call", json!({ "name": "refused" })), async {
            server.held("refused").await.status(status, &[], "not on my watch");
        });
        assert!(refusal.1.contains(&status.to_string()) && refusal.1.contains("not on my watch"), "{refusal:?}");
    }
    // Its connection breaks.
    let (refusal, ()) = tokio::join!(client.error("tools/call", json!({ "name": "refused" })), async {
        drop(server.held("refused").await);
    });
    assert!(refusal.1.contains("before the response"), "{refusal:?}");
    assert_eq!(server.count("refused"), 4);
    server.answer(&slow, TEXT).await;
    assert_eq!(other.await.unwrap(), "done");
    client.ask("ping", json!({})).await;
}

#[tokio::test]
async fn a_401_to_a_post_passes_with_its_challenge() {
    let (server, _gate, client) = all().await;
    server.hold("refused");
    let (answer, ()) = tokio::join!(client.answer("tools/call", json!({ "name": "refused" })), async {
        server.held("refused").await.status(401, &[("www-authenticate", "Bearer")], "token expired");
    });
    assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (401, "Bearer"));
    assert_eq!(answer.text(), "token expired");
}

#[tokio::test]
async fn an_answer_that_comes_before_its_post_is_accepted_is_the_answer() {
    let (server, _gate, client) = all().await;
    server.hold("slow");
    let caller = client.clone();
    let call = tokio::spawn(async move { text_of(&caller, "slow").await });
    let post = server.held("slow").await;
    server.answer(&post.seen, TEXT).await;
    assert_eq!(soon(call).await.unwrap(), "done");
}

#[tokio::test]
async fn cancelling_a_call_is_posted_under_the_id_of_the_call() {
    let (server, _gate, client) = all().await;
    let body = json!({ "jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": { "name": "slow" } });
    let caller = client.clone();
    let call = tokio::spawn(async move { caller.open(Method::POST, body.to_string()).await.status() });
    let slow = server.message("slow").await;
    assert_eq!(client.notify("notifications/cancelled", json!({ "requestId": "mine" })).await, 202);
    let cancelled = server.message("notifications/cancelled").await;
    assert_eq!(cancelled.json()["params"]["requestId"], slow.json()["id"]);
    server.answer(&slow, TEXT).await;
    assert_eq!(soon(call).await.unwrap(), 200);
}

#[tokio::test]
async fn the_end_of_the_session_ends_the_stream() {
    let (server, _gate, client) = all().await;
    assert_eq!(client.delete().await.status, 200);
    server.abandoned(1).await;
    assert_eq!(server.count("DELETE"), 0, "this transport knows none");
}

#[tokio::test]
async fn stopping_taskgate_closes_every_stream() {
    let (server, gate, _client) = all().await;
    gate.stop().await;
    server.abandoned(1).await;
}
