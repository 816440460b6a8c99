//! What a server speaks is found out once, and again when it has changed.

use serde_json::json;

use crate::{
    client::{Modern, TASKS},
    kit::{Client, Gate, Options, Upstream, soon},
};

#[tokio::test]
async fn the_generation_is_asked_for_once() {
    for upstream in [Upstream::modern(json!({ "tools": {} })).await, Upstream::json().await] {
        let gate = Gate::before(&upstream).await;
        let client = Modern::plain(&gate.url);
        for _ in 0..3 {
            client.call("echo").await;
        }
        assert_eq!(upstream.count("server/discover"), 1);
    }
}

#[tokio::test]
async fn a_server_of_both_generations_is_modern_for_modern_clients_and_keeps_its_sessions_for_legacy_ones() {
    let upstream = Upstream::start(Options { modern: true, ..Options::default() }).await;
    let gate = Gate::before(&upstream).await;
    Modern::plain(&gate.url).call("echo").await;
    assert_eq!(upstream.count("initialize"), 0);
    let legacy = Client::connect(&gate.url).await;
    legacy.ask("tools/call", json!({ "name": "echo", "arguments": {} })).await;
    assert_eq!(upstream.count("initialize"), 1);
    let call = upstream.seen().into_iter().rfind(|seen| seen.rpc() == "tools/call").unwrap();
    assert!(!call.header("mcp-session-id").is_empty());
}

#[tokio::test]
async fn a_legacy_client_of_a_server_that_is_only_modern_is_told_so() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], -32022, "{error}");
    assert_eq!(error["data"]["supported"], json!(["2026-07-28"]), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("2026-07-28") && message.contains("initialize"), "{message}");
}

#[tokio::test]
async fn a_server_that_takes_the_place_of_one_of_the_other_generation_is_found_out_again() {
    for modern_first in [true, false] {
        let modern = || Options { modern: true, sessions: false, ..Options::default() };
        let kinds = if modern_first { [modern(), Options::default()] } else { [Options::default(), modern()] };
        let [first, second] = kinds;
        let upstream = Upstream::start(first).await;
        let gate = Gate::before(&upstream).await;
        let client = Modern::plain(&gate.url);
        client.call("echo").await;
        upstream.stop().await;
        let second = Upstream::start_in_place_of(&upstream, second).await;
        let result = client.call("echo").await;
        assert_eq!(result["resultType"], "complete");
        assert_eq!(second.count("echo"), 2, "refused once, and run once");
        assert_eq!(second.count("initialize"), usize::from(modern_first));
    }
}

/// A server's refusal that may come from one of another generation, so that its own is asked for again.
const DOUBTFUL: &str = r#""error":{"code":-32600,"message":"no"}"#;

#[tokio::test]
async fn a_task_goes_up_in_the_form_of_its_server_while_that_one_is_in_doubt() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let plain = Modern::able(&gate.url, json!({ "elicitation": {} }));
    plain.call("echo").await;
    plain.call("echo").await;
    let calling = tokio::spawn(async move { plain.refusal("tools/call", json!({ "name": "slow" })).await });
    let held = upstream.held("slow").await;
    let body = held.response(DOUBTFUL);
    held.status(400, &[("content-type", "application/json")], &body);
    assert_eq!(soon(calling).await.unwrap().1, -32600);
    let client = Modern::able(&gate.url, json!({ "elicitation": {}, "extensions": { TASKS: {} } }));
    let task = client.call("echo").await;
    client.until(task["taskId"].as_str().unwrap(), "completed").await;
}

#[tokio::test]
async fn an_error_of_a_legacy_server_passes_although_it_has_the_code_of_a_modern_one() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let calling = tokio::spawn(async move { client.refusal("tools/call", json!({ "name": "slow" })).await });
    let held = upstream.held("slow").await;
    let body = held.response(r#""error":{"code":-32022,"message":"its own"}"#);
    held.status(200, &[("content-type", "application/json")], &body);
    assert_eq!(soon(calling).await.unwrap(), (200, -32022, "its own".to_owned()));
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn what_is_known_of_a_server_stays_when_it_refuses_a_credential() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    Modern::plain(&gate.url).call("echo").await;
    upstream.hold("initialize");
    let other = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let calling = tokio::spawn({
        let other = other.clone();
        async move { other.refusal("tools/call", json!({ "name": "echo" })).await }
    });
    upstream.held("initialize").await.status(401, &[], "");
    assert_eq!(soon(calling).await.unwrap().1, -32603);
    let calling = tokio::spawn(async move { other.refusal("tools/call", json!({ "name": "echo" })).await });
    upstream.held("initialize").await.status(401, &[], "");
    soon(calling).await.unwrap();
    assert_eq!(upstream.count("server/discover"), 1);
}
