//! Revisions: each side agrees on its own, and what depends on them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use kit::{Client, Gate, Options, Seen, Upstream};
use serde_json::{Value, json};

const ALL: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const TASKS: &str = "2025-11-25";

async fn speaking(versions: &[&'static str], strict: bool) -> (Upstream, Gate) {
    let upstream = Upstream::start(Options { versions: versions.to_vec(), strict, ..Options::default() }).await;
    let gate = Gate::before(&upstream).await;
    (upstream, gate)
}

/// A server of revision 2025-06-18 behind taskgate, which does not serve modern clients.
async fn without_modern() -> (Upstream, Gate) {
    let upstream = Upstream::start(Options { versions: vec!["2025-06-18"], ..Options::default() }).await;
    let gate = Gate::configured(&format!("[[upstream]]\nurl = {:?}\nmodern = false\n", upstream.url())).await;
    (upstream, gate)
}

fn offered(seen: &[Seen]) -> Vec<String> {
    let offers = seen.iter().filter(|seen| seen.rpc() == "initialize");
    offers.map(|seen| seen.json()["params"]["protocolVersion"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_pair_of_revisions_works_and_each_side_gets_its_own() {
    for theirs in ALL {
        let (upstream, gate) = speaking(&[theirs], false).await;
        for (n, ours) in ALL.into_iter().enumerate() {
            let client = Client::connect_as(&gate.url, ours, json!({})).await;
            assert_eq!(client.initialized["protocolVersion"], ours, "{ours} in front of {theirs}");
            assert_eq!(client.initialized["capabilities"].get("tasks").is_some(), ours == TASKS);
            let result = client.ask("tools/call", json!({ "name": "echo", "arguments": {} })).await;
            assert_eq!(result["content"][0]["text"], "{}");
            assert_eq!(offered(&upstream.seen())[n], ours);
            let session = format!("upstream-{}", n + 1);
            let after: Vec<_> =
                upstream.seen().into_iter().filter(|seen| seen.header("mcp-session-id") == session).collect();
            assert_eq!(after.len(), 2);
            for seen in after {
                assert_eq!(seen.header("mcp-protocol-version"), theirs, "{ours} in front of {theirs}: {seen:?}");
            }
        }
        // Messages before the agreement name no revision.
        let first = upstream.wait_for_message("initialize").await;
        assert_eq!(first.header("mcp-protocol-version"), "");
    }
}

#[tokio::test]
async fn tasks_work_in_front_of_an_upstream_of_any_revision() {
    for theirs in ALL {
        let (_upstream, gate) = speaking(&[theirs], false).await;
        let client = Client::connect(&gate.url).await;
        let id = client.create_id("echo").await;
        assert_eq!(client.collect(&id).await["result"]["content"][0]["text"], "{}", "{theirs}");
    }
}

#[tokio::test]
async fn an_upstream_that_refuses_a_revision_and_names_others_gets_the_newest_of_those() {
    for (theirs, ours, offers) in [
        (&["2024-11-05", "2025-03-26"][..], "2025-11-25", &["2025-11-25", "2025-03-26"][..]),
        (&["2025-06-18", "1999-01-01"], "2025-11-25", &["2025-11-25", "2025-06-18"]),
        (&["2024-11-05"], "2025-03-26", &["2025-03-26", "2024-11-05"]),
    ] {
        let (upstream, gate) = speaking(theirs, true).await;
        let client = Client::connect_as(&gate.url, ours, json!({})).await;
        assert_eq!(client.initialized["protocolVersion"], ours);
        assert_eq!(offered(&upstream.seen()), offers);
        assert_eq!(client.ask("ping", json!({})).await, json!({}));
        assert_eq!(upstream.wait_for_message("ping").await.header("mcp-protocol-version"), *offers.last().unwrap());
    }
}

#[tokio::test]
async fn the_error_of_an_upstream_with_no_revision_in_common_passes() {
    let (upstream, gate) = speaking(&["2026-07-28", "2025-11-25"], true).await;
    let answer = Client::new(&gate.url).ask_to_initialize("2025-06-18", json!({})).await;
    let error = answer.json();
    assert_eq!((answer.status.as_u16(), &error["id"], &error["error"]["code"]), (200, &json!(0), &json!(-32602)));
    assert_eq!(error["error"]["data"]["supported"], json!(["2026-07-28", "2025-11-25"]));
    assert_eq!(answer.header("mcp-session-id"), "");
    assert_eq!(offered(&upstream.seen()), ["2025-06-18"]);
}

#[tokio::test]
async fn an_upstream_that_answers_with_an_unknown_revision_is_a_clear_error() {
    for version in ["1999-01-01", "2026-07-28", ""] {
        let (_upstream, gate) = speaking(&[version], false).await;
        let (status, code, message) = Client::new(&gate.url).ask_to_initialize(TASKS, json!({})).await.refusal();
        assert_eq!((status, code), (200, -32603), "{version:?}");
        assert!(message.contains(&format!("revision {version:?}")) && message.contains(TASKS), "{message}");
    }
}

#[tokio::test]
async fn a_client_that_asks_for_an_unknown_revision_is_offered_the_latest() {
    for version in ["1999-01-01", "2026-07-28", "latest"] {
        let (_upstream, gate) = speaking(&["2025-06-18"], false).await;
        let client = Client::connect_as(&gate.url, version, json!({})).await;
        assert_eq!(client.initialized["protocolVersion"], TASKS, "{version}");
    }
}

#[tokio::test]
async fn an_initialize_without_a_revision_is_refused() {
    let (upstream, gate) = speaking(&[TASKS], false).await;
    for params in [r"{}", r#"{"protocolVersion":5}"#, r#"{"protocolVersion":null}"#] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}"#);
        let (status, code, message) = Client::new(&gate.url).post(body).await.refusal();
        assert_eq!((status, code), (200, -32602));
        assert!(message.contains("protocolVersion"), "{message}");
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn client_capabilities_reach_the_upstream_unchanged() {
    let (upstream, gate) = speaking(&[TASKS], false).await;
    let capabilities = json!({ "sampling": {}, "elicitation": { "form": {} }, "roots": { "listChanged": true } });
    Client::connect_as(&gate.url, TASKS, capabilities.clone()).await;
    let sent = upstream.wait_for_message("initialize").await.json();
    assert_eq!(sent["params"]["capabilities"], capabilities);
    assert_eq!(sent["params"]["clientInfo"], json!({ "name": "test-client", "version": "1.0" }));
}

#[tokio::test]
async fn a_session_of_an_older_revision_hears_nothing_of_tasks_and_its_task_members_pass() {
    let policy = "[[upstream]]\n[upstream.tools.slow]\nsupport = \"required\"";
    for version in &ALL[..3] {
        let upstream = Upstream::json().await;
        let gate = Gate::with(&upstream, policy).await;
        let client = Client::connect_as(&gate.url, version, json!({})).await;
        assert_eq!(client.initialized["capabilities"], json!({ "tools": {} }));
        let tools = client.ask("tools/list", json!({})).await;
        assert_eq!(tools["tools"][0].get("execution"), None);
        for (method, params) in [
            ("tools/call", r#"{"name":"slow","task":{"ttl":"odd"}, "x":1.50}"#),
            ("tools/call", r#"{"name":"slow"}"#),
            ("tasks/get", r#"{"taskId":"x"}"#),
            ("tasks/list", "{}"),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":"mine","method":"{method}","params":{params}}}"#);
            let asked = tokio::spawn({
                let client = client.clone();
                async move { client.post(body).await }
            });
            let held = upstream.held(method).await;
            assert!(held.seen.text().ends_with(&format!(r#""params":{params}}}"#)), "{}", held.seen.text());
            held.error(r#"{"code":-32601,"message":"Method not found"}"#);
            assert_eq!(asked.await.unwrap().json()["error"]["code"], -32601);
        }
    }
}

#[tokio::test]
async fn with_modern_false_a_modern_request_is_answered_as_by_a_server_that_requires_sessions() {
    let (upstream, gate) = without_modern().await;
    let client = Client::new(&gate.url);
    let meta = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } });
    let request = |method: &str, params: &Value| {
        json!({ "jsonrpc": "2.0", "id": "m", "method": method, "params": params }).to_string()
    };
    let session = Client::connect(&gate.url).await;
    for (client, body) in [
        (client.with("mcp-protocol-version", "2026-07-28"), request("tools/list", &json!({}))),
        (client.with("mcp-protocol-version", "2027-01-01"), request("server/discover", &meta)),
        (client.clone(), request("server/discover", &json!({}))),
        (client.clone(), request("tools/call", &meta)),
        (session.clone(), request("tools/list", &meta)),
    ] {
        let answer = client.post(body).await;
        let (status, code, message) = answer.refusal();
        // No code of the modern generation, which would keep a client from falling back.
        assert_eq!((status, code), (400, -32600), "{message}");
        assert_eq!(answer.json()["error"].get("data"), None);
        assert!(message.contains("initialize"), "{message}");
    }
    assert_eq!(session.ask("ping", json!({})).await, json!({}));
    assert_eq!(upstream.count("tools/list") + upstream.count("tools/call") + upstream.count("server/discover"), 0);
}

#[tokio::test]
async fn with_modern_false_a_modern_client_falls_back_to_a_session() {
    let (_upstream, gate) = without_modern().await;
    let modern =
        Client::new(&gate.url).with("mcp-protocol-version", "2026-07-28").with("mcp-method", "server/discover");
    let refused = modern.post(r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}"#).await;
    assert_eq!(refused.status, 400);
    // The headers that name the method do not make a request modern.
    let client = modern.with("mcp-protocol-version", TASKS).with("mcp-method", "initialize");
    let client = client.initialize(TASKS, json!({})).await;
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn the_version_header_may_be_missing_or_name_any_supported_revision() {
    let (upstream, gate) = speaking(&["2025-06-18"], false).await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(client.without("mcp-protocol-version").ask("ping", json!({})).await, json!({}));
    for version in ALL {
        assert_eq!(client.with("mcp-protocol-version", version).ask("ping", json!({})).await, json!({}));
    }
    let pings = upstream.seen().into_iter().filter(|seen| seen.rpc() == "ping");
    assert!(pings.into_iter().all(|seen| seen.header("mcp-protocol-version") == "2025-06-18"));
}
