//! Servers that ask on the GET stream of a session, which does not say in the course of which call.

use serde_json::json;

use crate::{
    client::{Modern, TASKS},
    kit::{Gate, Options, Sse, Upstream, eventually, soon},
};

async fn house() -> (Upstream, Gate, Modern) {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {} }));
    (upstream, gate, client)
}

fn call(client: &Modern) -> tokio::task::JoinHandle<serde_json::Value> {
    let client = client.clone();
    tokio::spawn(async move { client.call("slow").await })
}

async fn ask(stream: &Sse, id: &str) {
    let params = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params });
    stream.event(&request.to_string()).await;
}

/// Makes another call, and has the server ask on the GET stream of the call before.
async fn another_call_is_not_asked(upstream: &Upstream, client: &Modern, stream: &Sse) {
    let other = call(client);
    let slow = upstream.held("slow").await;
    ask(stream, "q1").await;
    let refused = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    assert_eq!(refused.json()["error"]["code"], -32601, "{refused:?}");
    slow.result(r#"{"content":[]}"#);
    assert_eq!(soon(other).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn a_call_that_may_be_asked_goes_to_its_server_once_the_get_stream_of_its_session_is_open() {
    let (upstream, _gate, client) = house().await;
    let calling = call(&client);
    let stream = upstream.held("GET").await;
    assert_eq!(upstream.count("slow"), 0);
    let stream = stream.sse();
    let slow = upstream.held("slow").await;
    ask(&stream, "q1").await;
    assert_eq!(soon(calling).await.unwrap()["resultType"], "input_required");
    drop(slow);
}

#[tokio::test]
async fn a_call_is_asked_in_its_session_although_the_server_failed_at_the_question_for_its_generation() {
    let upstream = Upstream::start(Options { sessions: false, ..Options::default() }).await;
    upstream.hold("server/discover");
    upstream.hold("GET");
    let gate = Gate::before(&upstream).await;
    let calling = call(&Modern::able(&gate.url, json!({ "elicitation": {} })));
    upstream.held("server/discover").await.status(500, &[], "what is that?");
    let stream = upstream.get_stream().await;
    let _slow = upstream.held("slow").await;
    ask(&stream, "q1").await;
    assert_eq!(soon(calling).await.unwrap()["resultType"], "input_required");
    assert_eq!(upstream.count("initialize"), 1);
}

#[tokio::test]
async fn a_question_is_never_that_of_another_call_than_the_one_that_its_client_has_left() {
    let (upstream, _gate, client) = house().await;
    let leaving = call(&client);
    let stream = upstream.get_stream().await;
    let left = upstream.held("slow").await;
    // Keeps the session.
    let mut listening = client.stream("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    listening.message().await;
    leaving.abort();
    upstream.wait_for_message("notifications/cancelled").await;
    another_call_is_not_asked(&upstream, &client, &stream).await;
    drop(left);
}

#[tokio::test]
async fn a_call_is_asked_in_another_session_than_the_one_of_a_call_that_was_cancelled_before() {
    let (upstream, _gate, client) = house().await;
    let leaving = call(&client);
    let _stream = upstream.get_stream().await;
    let _left = upstream.held("slow").await;
    leaving.abort();
    upstream.wait_for_message("notifications/cancelled").await;
    eventually(async || {
        client.result("tools/list", json!({})).await;
        (upstream.count("initialize") == 2).then_some(())
    })
    .await;
    let calling = call(&client);
    let stream = upstream.get_stream().await;
    let _slow = upstream.held("slow").await;
    ask(&stream, "q1").await;
    assert_eq!(soon(calling).await.unwrap()["resultType"], "input_required");
}

#[tokio::test]
async fn a_question_is_never_that_of_another_call_than_one_that_failed_without_an_answer() {
    for failure in ["504", "504 without an id", "504 with its id", "408", "202", "cut"] {
        let (upstream, _gate, client) = house().await;
        let failing = client.clone();
        let failing = tokio::spawn(async move { failing.refusal("tools/call", json!({ "name": "slow" })).await });
        let stream = upstream.get_stream().await;
        let slow = upstream.held("slow").await;
        // Keeps the session.
        let wanted = json!({ "notifications": { "toolsListChanged": true } });
        let mut listening = client.stream("subscriptions/listen", wanted);
        listening.message().await;
        match failure {
            "504" => slow.status(504, &[], "the gateway has not waited"),
            "504 without an id" => {
                let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"no answer in time"}}"#;
                slow.status(504, &[("content-type", "application/json")], error);
            }
            "504 with its id" => {
                let error = slow.response(r#""error":{"code":-32603,"message":"no answer in time"}"#);
                slow.status(504, &[("content-type", "application/json")], &error);
            }
            "408" => slow.status(408, &[], "the gateway has not waited"),
            "202" => slow.status(202, &[], ""),
            _ => slow.sse().cut().await,
        }
        assert_eq!(soon(failing).await.unwrap().1, -32603);
        another_call_is_not_asked(&upstream, &client, &stream).await;
    }
}

#[tokio::test]
async fn a_question_is_never_that_of_another_call_than_one_that_had_asked_and_was_then_refused() {
    let (upstream, _gate, client) = house().await;
    let asking = call(&client);
    let stream = upstream.get_stream().await;
    let slow = upstream.held("slow").await;
    ask(&stream, "q0").await;
    assert_eq!(soon(asking).await.unwrap()["resultType"], "input_required");
    // Keeps the session.
    let mut listening = client.stream("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    listening.message().await;
    slow.status(400, &[], "bad request");
    another_call_is_not_asked(&upstream, &client, &stream).await;
}

#[tokio::test]
async fn calls_to_a_server_that_has_asked_on_a_get_stream_have_sessions_of_their_own() {
    let (upstream, _gate, client) = house().await;
    let first = call(&client);
    let stream = upstream.get_stream().await;
    let _first = upstream.held("slow").await;
    ask(&stream, "q1").await;
    assert_eq!(soon(first).await.unwrap()["resultType"], "input_required");
    let mut asked = Vec::new();
    for id in ["q2", "q3"] {
        let calling = call(&client);
        let stream = upstream.get_stream().await;
        let slow = upstream.held("slow").await;
        assert_eq!(slow.seen.header("mcp-session-id"), stream.seen.header("mcp-session-id"));
        ask(&stream, id).await;
        assert_eq!(soon(calling).await.unwrap()["resultType"], "input_required");
        asked.push((stream, slow));
    }
    assert_eq!(upstream.count("initialize"), 3);
}

#[tokio::test]
async fn a_result_that_is_too_large_ends_its_call_and_costs_no_session() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\nmax_result = \"16KiB\"\n").await;
    let capabilities = json!({ "elicitation": {}, "extensions": { TASKS: {} } });
    let client = Modern::able(&gate.url, capabilities);
    for _ in 0..3 {
        let task = client.call("slow").await;
        let text = "x".repeat(100_000);
        let result = json!({ "content": [{ "type": "text", "text": text }] }).to_string();
        upstream.held("slow").await.result(&result);
        client.until(task["taskId"].as_str().unwrap(), "failed").await;
    }
    assert_eq!(upstream.count("initialize"), 1);
}
