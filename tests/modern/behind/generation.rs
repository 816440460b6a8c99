//! What a server speaks is found out once, and again when it has changed.

use serde_json::json;

use crate::{
    client::Modern,
    kit::{Client, Gate, Options, Upstream},
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
