//! A link to a modern server is shared by all credentials of an owner; what is opened with one credential is not.

use serde_json::json;
use tokio::task::JoinHandle;

use crate::{
    client::Modern,
    kit::{Answer, Client, Gate, Options, Upstream, eventually, soon},
};

/// Returns a client that sends a credential.
fn with_credential(url: &str, credential: &str) -> Modern {
    Modern { http: Client::new(url).with("authorization", credential), capabilities: json!({}) }
}

/// Has taskgate find out that its server is a modern one, without a link to it.
async fn known_as_modern(gate: &Gate) {
    let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
    assert_eq!(answer.json()["error"]["code"], -32022, "{answer:?}");
}

fn calling(client: Modern) -> JoinHandle<Answer> {
    tokio::spawn(async move { client.send("tools/call", json!({ "name": "echo", "arguments": {} })).await })
}

#[tokio::test]
async fn each_request_on_a_shared_link_has_its_own_credential() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    let able = Modern { capabilities: json!({ "elicitation": {} }), ..with_credential(&gate.url, "Bearer a") };
    able.call("echo").await;
    for credential in ["Bearer a", "Bearer b", "Bearer a"] {
        with_credential(&gate.url, credential).call("echo").await;
        let last = upstream.seen().into_iter().rfind(|seen| seen.rpc() == "tools/call").unwrap();
        assert_eq!(last.header("authorization"), credential);
    }
    Modern::plain(&gate.url).call("echo").await;
    let last = upstream.seen().into_iter().rfind(|seen| seen.rpc() == "tools/call").unwrap();
    assert_eq!(last.header("authorization"), "");
    assert_eq!(upstream.count("server/discover"), 1);
}

#[tokio::test]
async fn a_refused_credential_fails_no_other_that_waits_for_the_same_link() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, "[server]\nadmin = \"127.0.0.1:0\"\n").await;
    let (good, bad) = (with_credential(&gate.url, "Bearer good"), with_credential(&gate.url, "Bearer bad"));
    known_as_modern(&gate).await;
    upstream.hold("server/discover");
    let refused = calling(bad);
    let asked = upstream.held("server/discover").await;
    let waits = calling(good);
    let url = format!("{}/metrics", gate.admin.as_ref().unwrap());
    eventually(async || {
        let metrics = Client::new(&url).send(http::Method::GET, "").await;
        metrics.text().contains("\ntaskgate_sessionless_requests 2\n").then_some(())
    })
    .await;
    asked.status(401, &[], "");
    assert_eq!(soon(refused).await.unwrap().status, 401);
    let asked = upstream.held("server/discover").await;
    assert_eq!(asked.seen.header("authorization"), "Bearer good");
    asked.result(r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#);
    assert_eq!(soon(waits).await.unwrap().json()["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_session_id_that_a_modern_server_gives_means_nothing() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    upstream.hold("server/discover");
    let client = Modern::plain(&gate.url);
    let slow = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let asked = upstream.held("server/discover").await;
    let known = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#;
    let known = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{known}}}"#, asked.seen.id());
    asked.status(200, &[("content-type", "application/json"), ("mcp-session-id", "s")], &known);
    let running = upstream.held("slow").await;
    assert_eq!(running.seen.header("mcp-session-id"), "");
    upstream.hold("prompts/list");
    let refused = tokio::spawn(async move { client.refusal("prompts/list", json!({})).await });
    let asked = upstream.held("prompts/list").await;
    let unknown = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32601,"message":"none"}}}}"#, asked.seen.id());
    asked.status(404, &[("content-type", "application/json")], &unknown);
    assert_eq!(soon(refused).await.unwrap(), (404, -32601, "none".to_owned()));
    running.result(r#"{"resultType":"complete","content":[]}"#);
    assert_eq!(soon(slow).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn a_session_with_a_server_that_was_taken_for_a_modern_one_is_for_its_credential_alone() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    known_as_modern(&gate).await;
    upstream.stop().await;
    let second = Upstream::start_in_place_of(&upstream, Options::default()).await;
    with_credential(&gate.url, "Bearer b").call("echo").await;
    Modern::plain(&gate.url).call("echo").await;
    let calls: Vec<_> = second.seen().into_iter().filter(|seen| seen.rpc() == "tools/call").collect();
    let [of_b, of_none] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((of_b.header("authorization"), of_none.header("authorization")), ("Bearer b", ""));
    assert_ne!(of_b.header("mcp-session-id"), of_none.header("mcp-session-id"));
}
