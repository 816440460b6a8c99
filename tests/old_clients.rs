//! Clients of the 2024-11-05 HTTP+SSE transport: a stream, and an address for messages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::kit::{Client, Gate, Stream, Upstream, eventually};

/// Such a client in a session.
struct OldClient {
    stream: Stream,
    /// Sends its messages.
    messages: Client,
    next_id: u64,
}

async fn open(gate: &Gate) -> (Stream, String) {
    let url = gate.url.replace("/mcp", "/sse");
    let mut stream = Client::new(&url).get_stream().await;
    let endpoint = stream.next().await.unwrap();
    assert_eq!(endpoint.name, "endpoint");
    (stream, format!("http://{}{}", gate.authority(), endpoint.data))
}

impl OldClient {
    async fn connect(gate: &Gate, version: &str) -> Self {
        let (stream, url) = open(gate).await;
        let mut old = Self { stream, messages: Client::new(&url), next_id: 1 };
        let info = json!({ "name": "test-client", "version": "1.0" });
        let params = json!({ "protocolVersion": version, "capabilities": { "elicitation": {} }, "clientInfo": info });
        let answer = old.request("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        assert_eq!(old.messages.notify("notifications/initialized", json!({})).await, 202);
        old
    }

    async fn ask(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let accepted = self.messages.post(request.to_string()).await;
        assert_eq!((accepted.status.as_u16(), accepted.text()), (202, "Accepted"));
        id
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        loop {
            let message = self.stream.message().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }
}

async fn house() -> (Upstream, Gate) {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[[upstream]]\nsse_path = \"/sse\"").await;
    (upstream, gate)
}

#[tokio::test]
async fn malformed_notifications_and_responses_go_nowhere() {
    let (upstream, gate) = house().await;
    let mut old = OldClient::connect(&gate, "2024-11-05").await;
    for body in [
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{},"_meta":{"progressToken":1}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}"#,
    ] {
        assert_eq!(old.messages.post(body).await.status, 202, "{body}");
    }
    // Nothing was answered, and nothing was forwarded before this.
    let id = old.ask("ping", json!({})).await;
    assert_eq!(old.stream.message().await["id"], id);
    for method in ["tools/call", "notifications/x", "notifications/cancelled"] {
        assert_eq!(upstream.count(method), 0, "{method}");
    }
}

#[tokio::test]
async fn every_message_to_the_client_comes_on_its_stream() {
    let (upstream, gate) = house().await;
    let mut old = OldClient::connect(&gate, "2024-11-05").await;
    let id = old.ask("tools/call", json!({ "name": "slow", "_meta": { "progressToken": 7 } })).await;
    let slow = upstream.held("slow").await.sse();
    slow.progress(1).await;
    assert_eq!(old.stream.message().await["params"], json!({ "progressToken": 7, "progress": 1 }));
    upstream.get_stream().await.notify("notifications/x", json!({})).await;
    assert_eq!(old.stream.message().await["method"], "notifications/x");
    slow.result(r#"{"x":1.50}"#).await;
    assert_eq!(
        old.stream.next().await.unwrap().data,
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":1.50}}}}"#)
    );
}

#[tokio::test]
async fn a_client_of_a_newer_revision_on_the_old_transport_gets_tasks() {
    let (upstream, gate) = house().await;
    let mut old = OldClient::connect(&gate, "2025-11-25").await;
    let created = old.request("tools/call", json!({ "name": "slow", "task": {} })).await;
    let task = created["result"]["task"]["taskId"].clone();
    let slow = upstream.held("slow").await.sse();
    slow.event(r#"{"jsonrpc":"2.0","id":"ask","method":"elicitation/create","params":{"message":"?"}}"#).await;
    assert_eq!(old.stream.message().await["params"]["status"], "input_required");
    let question = old.stream.message().await;
    assert_eq!(old.messages.respond(&question["id"], json!({ "action": "decline" })).await, 202);
    upstream.wait_for(|seen| seen.json()["result"]["action"] == "decline").await;
    slow.result(r#"{"content":[]}"#).await;
    let collected = old.request("tasks/result", json!({ "taskId": task })).await;
    assert_eq!(collected["result"]["content"], json!([]));
}

#[tokio::test]
async fn the_end_of_the_stream_ends_the_session() {
    let (upstream, gate) = house().await;
    let old = OldClient::connect(&gate, "2024-11-05").await;
    drop(old.stream);
    upstream.wait_for(|seen| seen.method == "DELETE").await;
    eventually(async || {
        let late = old.messages.post(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#).await;
        (late.status == 404).then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_sse_path_the_old_transport_is_not_served() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let answer = Client::new(&gate.url.replace("/mcp", "/sse")).send(Method::GET, "").await;
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn invalid_requests_are_refused_as_on_every_transport() {
    let (_upstream, gate) = house().await;
    let (_stream, url) = open(&gate).await;
    let messages = Client::new(&url);
    assert_eq!(messages.post("{").await.refusal().0, 400);
    assert_eq!(messages.with("content-type", "text/plain").post("{}").await.refusal().0, 415);
    assert_eq!(messages.post("x".repeat((4 << 20) + 1)).await.refusal().0, 413);
    let get = messages.send(Method::GET, "").await;
    assert_eq!((get.status.as_u16(), get.header("allow")), (405, "POST"));
    let stream = Client::new(&gate.url.replace("/mcp", "/sse"));
    let post = stream.post("{}").await;
    assert_eq!((post.status.as_u16(), post.header("allow")), (405, "GET"));
    assert_eq!(stream.with("accept", "application/json").send(Method::GET, "").await.refusal().0, 406);
    assert_eq!(stream.with("origin", "https://evil.example").send(Method::GET, "").await.refusal().0, 403);
    for other in [url.replace("sessionId=", "sessionId=0"), url.split('?').next().unwrap().to_owned()] {
        assert_eq!(Client::new(&other).post("{}").await.refusal().0, 404, "{other}");
    }
}

#[tokio::test]
async fn max_sessions_bounds_the_streams_too() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[server]\nmax_sessions = 1\n[[upstream]]\nsse_path = \"/sse\"").await;
    let first = open(&gate).await;
    let second = Client::new(&gate.url.replace("/mcp", "/sse")).send(Method::GET, "").await;
    let (status, code, message) = second.refusal();
    assert_eq!((status, code), (503, -32603));
    assert!(message.contains("max_sessions = 1"), "{message}");
    drop(first);
}

#[tokio::test]
async fn max_sessions_per_owner_bounds_the_streams_of_one_user_and_leaves_room_for_another() {
    let header = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";
    let upstream = Upstream::sse().await;
    let limit = "[server]\nmax_sessions_per_owner = 1\n[[upstream]]\nsse_path = \"/sse\"";
    let gate = Gate::with(&upstream, &format!("{header}{limit}")).await;
    let user = |name| Client::new(&gate.url.replace("/mcp", "/sse")).with("x-user", name);
    let _anns = user("ann").get_stream().await;
    let refused = user("ann").send(Method::GET, "").await;
    assert_eq!(refused.header("retry-after"), "1");
    let (status, _, message) = refused.refusal();
    assert_eq!(status, 503);
    assert!(message.contains("server.max_sessions_per_owner = 1"), "{message}");
    user("bob").get_stream().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_cannot_go_on_sending_requests() {
    let (_upstream, gate) = house().await;
    let old = OldClient::connect(&gate, "2025-11-25").await;
    // Held open, but not read.
    let _stream = old.stream;
    // 32 messages may wait, which are fewer bytes than may.
    let params = json!({ "name": "echo", "arguments": { "text": "x".repeat(200_000) } });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let mut taken = 0;
    while let Ok(accepted) = tokio::time::timeout(Duration::from_secs(1), old.messages.post(request.clone())).await {
        assert_eq!(accepted.status, 202);
        taken += 1;
        // What the channel may hold in either direction, and what the system keeps in flight.
        assert!(taken < 300);
    }
}

#[tokio::test]
async fn messages_that_wait_for_those_before_them_are_bounded_in_bytes() {
    let (upstream, gate) = house().await;
    let old = OldClient::connect(&gate, "2025-11-25").await;
    upstream.hold("notifications/x");
    let large = json!({ "jsonrpc": "2.0", "method": "notifications/x", "params": { "pad": "x".repeat(3 << 20) } });
    // The first takes all the room for messages that are late, so that the next ones wait for the second.
    let mut held = Vec::new();
    for _ in 0..2 {
        assert_eq!(old.messages.post(large.to_string()).await.status, 202);
        held.push(upstream.held("notifications/x").await);
    }
    // Twice `max_body` of 4 MiB may wait.
    for _ in 0..2 {
        assert_eq!(old.messages.post(large.to_string()).await.status, 202);
    }
    let refused = old.messages.post(large.to_string()).await;
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("earlier messages of this session still wait"), "{}", refused.text());
    let small = json!({ "jsonrpc": "2.0", "method": "notifications/x" });
    assert_eq!(old.messages.post(small.to_string()).await.status, 202, "there is room for it");
    for held in held {
        held.status(202, &[], "");
    }
    for _ in 0..3 {
        upstream.held("notifications/x").await.status(202, &[], "");
    }
    eventually(async || (old.messages.post(large.to_string()).await.status == 202).then_some(())).await;
}
