//! Requests of the server to the client: elicitation, sampling, roots; and the answers to them.

use std::time::Duration;

use serde_json::json;

use crate::kit::{Answers, Client, Gate, Options, Upstream, house, soon, within};

const REQUESTS: [(&str, &str); 4] = [
    (
        "elicitation/create",
        r#"{"message":"How much?","requestedSchema":{"type":"object","properties":{"n":{"type":"number","default":95.50}}}}"#,
    ),
    (
        "sampling/createMessage",
        r#"{"messages":[{"role":"user","content":{"type":"text","text":"caf\u00e9"}}],"maxTokens":1e2}"#,
    ),
    ("roots/list", r"{}"),
    ("vendor/ask", r#"{"x":[ ]}"#),
];

#[tokio::test]
async fn a_server_request_within_a_call_reaches_the_client_and_its_answer_the_server() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    for (method, params) in REQUESTS {
        for id in ["0", r#""ask-1""#, "123456789012345678901"] {
            let mut answer = client.stream("tools/call", json!({ "name": "slow" }));
            let slow = upstream.held("slow").await.sse();
            let request = format!(r#"{{"jsonrpc":"2.0", "id":{id},"method":"{method}","params":{params}}}"#);
            slow.event(&request).await;
            assert_eq!(answer.next().await.unwrap().data, request);
            let response = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"for":"{method}","n":1.50}}}}"#);
            assert_eq!(client.post(response.clone()).await.status, 202);
            upstream.wait_for(|seen| seen.text() == response).await;
            slow.result("{}").await;
            assert_eq!(answer.message().await["result"], json!({}));
        }
    }
}

#[tokio::test]
async fn a_server_request_on_the_get_stream_is_answered_too() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut listener = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    for (method, params) in REQUESTS {
        let request = format!(r#"{{"jsonrpc":"2.0","id":"{method}","method":"{method}","params":{params}}}"#);
        to_listener.event(&request).await;
        assert_eq!(listener.next().await.unwrap().data, request);
        let error = format!(r#"{{"jsonrpc":"2.0","id":"{method}","error":{{"code":-1,"message":"declined"}}}}"#);
        assert_eq!(client.post(error.clone()).await.status, 202);
        upstream.wait_for(|seen| seen.text() == error).await;
    }
}

#[tokio::test]
async fn a_server_request_named_like_a_notification_on_the_get_stream_is_refused() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut listener = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    for method in ["notifications/cancelled", "notifications/progress", "vendor/ask"] {
        let request = json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": { "requestId": 1 } });
        to_listener.event(&request.to_string()).await;
    }
    assert_eq!(listener.message().await["method"], "vendor/ask");
    for method in ["notifications/cancelled", "notifications/progress"] {
        let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == method).await;
        assert_eq!(answer.json()["error"]["code"], -32600);
    }
}

#[tokio::test]
async fn the_answer_to_a_server_request_goes_to_the_session_that_was_asked() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    for (client, name) in [(&ann, "ann"), (&bob, "bob")] {
        let mut answer = client.stream("tools/call", json!({ "name": "slow" }));
        let slow = upstream.held("slow").await.sse();
        slow.event(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#).await;
        answer.message().await;
        client.respond(&json!(1), json!({ "for": name })).await;
        let response = upstream.wait_for(|seen| seen.json()["result"]["for"] == name).await;
        assert_eq!(response.header("mcp-session-id"), slow.seen.header("mcp-session-id"));
        slow.result("{}").await;
        assert_eq!(answer.message().await["result"], json!({}));
    }
}

#[tokio::test]
async fn pings_before_the_response_to_initialize_are_answered_and_do_not_hold_that_up() {
    let options = Options { answers: Answers::Sse, sessions: false, ..Options::default() };
    let upstream = Upstream::start(options).await;
    // Answers too: the server takes its time with them.
    upstream.hold("POST");
    let gate = Gate::before(&upstream).await;
    let connecting =
        tokio::spawn(async move { Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await });
    let initialize = upstream.held("initialize").await.sse();
    initialize.event(r#"{"jsonrpc":"2.0","id":"early","method":"ping"}"#).await;
    // More than taskgate answers at once.
    for id in 0..40 {
        initialize.event(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }).to_string()).await;
    }
    let pong = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "early").await;
    assert_eq!(pong.json()["result"], json!({}));
    let server = r#""capabilities":{"tools":{}},"serverInfo":{"name":"test-server","version":"1.0"}"#;
    initialize.result(&format!(r#"{{"protocolVersion":"2025-06-18",{server}}}"#)).await;
    // Less than taskgate waits for a server to take an answer.
    assert_eq!(within(Duration::from_secs(10), connecting).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_ping_that_comes_in_one_piece_with_the_response_is_answered() {
    let options = Options { answers: Answers::Sse, sessions: false, ..Options::default() };
    let upstream = Upstream::start(options).await;
    upstream.hold("initialize");
    let gate = Gate::before(&upstream).await;
    let connecting =
        tokio::spawn(async move { Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await });
    let initialize = upstream.held("initialize").await.sse();
    let ping = json!({ "jsonrpc": "2.0", "id": "early", "method": "ping" });
    let server =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": { "name": "x", "version": "1" } });
    let response = json!({ "jsonrpc": "2.0", "id": initialize.seen.id(), "result": server });
    initialize.raw(&format!("data: {ping}\n\ndata: {response}\n\n")).await;
    assert_eq!(soon(connecting).await.unwrap().status, 200);
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "early").await;
}
