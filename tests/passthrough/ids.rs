//! Ids: the client's own towards the client, taskgate's towards the upstream.

use serde_json::{Value, json};

use crate::kit::{Answers, Client, Gate, Options, Upstream, house};

const IDS: [&str; 10] = [
    "0",
    "1",
    "-5",
    "9007199254740993",
    "123456789012345678901234567890",
    r#""""#,
    r#""1""#,
    r#""id \"quoted\"""#,
    r#""\u0041\ud83d\ude00""#,
    "\"日本\"",
];

#[tokio::test]
async fn every_valid_id_comes_back_unchanged() {
    for answers in [Answers::Json, Answers::Sse] {
        let upstream = Upstream::start(Options { answers, ..Options::default() }).await;
        let gate = Gate::before(&upstream).await;
        let client = Client::connect(&gate.url).await;
        for id in IDS {
            let answer = client.post(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)).await;
            assert_eq!(answer.raw_response(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), "{answers:?}");
        }
    }
}

#[tokio::test]
async fn client_ids_never_reach_the_upstream() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    for id in [r#""secret""#, "7777", r#""secret""#] {
        client.post(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)).await;
    }
    let seen = upstream.seen();
    let ids: Vec<Value> = seen
        .iter()
        .filter(|seen| seen.rpc() != "notifications/initialized")
        .map(|seen| seen.json()["id"].take())
        .collect();
    assert_eq!(ids.len(), 4);
    for (at, id) in ids.iter().enumerate() {
        // 0 counts as "no id" for some servers.
        assert!(id.as_u64().is_some_and(|id| id > 0 && id != 7777), "{ids:?}");
        assert!(!ids[..at].contains(id), "{ids:?}");
    }
}

#[tokio::test]
async fn ids_that_the_upstream_echoes_as_strings_are_accepted() {
    for answers in [Answers::Json, Answers::Sse] {
        let upstream = Upstream::start(Options { answers, string_ids: true, ..Options::default() }).await;
        let gate = Gate::before(&upstream).await;
        let client = Client::connect(&gate.url).await;
        let answer = client.post(r#"{"jsonrpc":"2.0","id":17,"method":"ping"}"#).await;
        assert_eq!(answer.json(), json!({ "jsonrpc": "2.0", "id": 17, "result": {} }), "{answers:?}");
    }
}

#[tokio::test]
async fn clients_that_use_the_same_ids_at_once_get_their_own_answers() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let call = |client: &Client, tool: &str| {
        let (client, tool) = (client.clone(), tool.to_owned());
        tokio::spawn(async move {
            client
                .post(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"}}}}"#))
                .await
                .json()
        })
    };
    let (for_ann, for_bob, again_for_ann) = (call(&ann, "first"), call(&bob, "second"), call(&ann, "third"));
    for tool in ["third", "second", "first"] {
        upstream.held(tool).await.result(&format!(r#"{{"tool":"{tool}"}}"#));
    }
    for (answer, tool) in [(for_ann, "first"), (for_bob, "second"), (again_for_ann, "third")] {
        assert_eq!(answer.await.unwrap(), json!({ "jsonrpc": "2.0", "id": 1, "result": { "tool": tool } }));
    }
}

#[tokio::test]
async fn an_error_without_a_readable_id_answers_the_request_that_carried_it() {
    for id in ["", r#""id":null,"#] {
        let upstream = Upstream::json().await;
        let gate = Gate::before(&upstream).await;
        let client = Client::connect(&gate.url).await;
        let asked = tokio::spawn(async move { client.request("vendor/x", json!({})).await });
        let held = upstream.held("vendor/x").await;
        held.json(&format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32700,"message":"what?"}}}}"#));
        let expected = json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32700, "message": "what?" } });
        assert_eq!(asked.await.unwrap(), expected, "{id:?}");
    }
}

#[tokio::test]
async fn late_unknown_and_duplicate_responses_are_dropped() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut listener = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    let mut answer = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    let ours = slow.seen.id();
    for id in ["4711", r#""4711""#, r#""never""#, "-1", "99999999999999999999999"] {
        let invented = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"invented":true}}}}"#);
        slow.event(&invented).await;
        to_listener.event(&invented).await;
    }
    let response = format!(r#"{{"jsonrpc":"2.0","id":{ours},"result":{{"n":1}}}}"#);
    slow.event(&response).await;
    assert_eq!(answer.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": { "n": 1 } }));
    assert_eq!(answer.next().await, None);
    // Once more, and late.
    to_listener.event(&response).await;
    to_listener.notify("notifications/marker", json!({})).await;
    assert_eq!(listener.message().await["method"], "notifications/marker");
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn a_response_that_comes_on_the_get_stream_answers_its_request() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let _listener = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    let mut answer = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    to_listener.event(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, slow.seen.id())).await;
    assert_eq!(answer.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
}
