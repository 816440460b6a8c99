//! Requests in flight of clients of revision 2026-07-28, whose bodies come in pieces.

use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{CONNECTION, FULL, HALF, House, ITSELF, KIB, MIB, pieces::Poster};
use crate::kit::{Client, Upstream, soon};

/// What the requests of one owner may take.
const TOTAL: usize = 64 * MIB;
/// What a plain call in flight may take besides (`docs/security.md`).
const CALL: usize = 64 * KIB;

/// Returns the client and the body of a call of the tool `slow` with so many bytes more.
fn call(house: &House, more: usize) -> (Client, String) {
    const VERSION: &str = "2026-07-28";
    let headers = [("mcp-protocol-version", VERSION), ("mcp-method", "tools/call"), ("mcp-name", "slow")];
    let client = headers.iter().fold(Client::new(&house.url), |client, (name, value)| client.with(name, value));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "slow", "_meta": meta, "arguments": { "x": "y".repeat(more) } });
    (client, json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string())
}

/// Takes all the room with calls with so many bytes more that come in pieces, and returns their answers.
async fn fill(house: &House, more: usize) -> Vec<JoinHandle<String>> {
    let (client, body) = call(house, more);
    let (poster, whole) = (Poster::new(false), Bytes::from(body.clone()));
    let mut answers = Vec::new();
    for sent in 1..=TOTAL / (body.len() + 12 * KIB) {
        let pieces = poster.begin(&client);
        pieces.send(&whole, 64 * KIB).await;
        answers.push(pieces.end());
        house.shows("sessionless_requests", sent).await;
    }
    let (_, _, why) = client.post(body).await.refusal();
    assert!(why.contains("requests of yours in flight take 64MiB"), "{why}");
    answers
}

#[tokio::test]
async fn requests_of_modern_clients_take_what_they_count_whatever_the_buffers_that_they_came_in() {
    let upstream = Upstream::json().await;
    // Little may be arriving at a time.
    let house = House::before(&upstream.url(), &format!("max_body_total = {}", 4 * MIB), "").await;
    // The buffer of each has 4 MiB. One that is filled leaves memory to one of which a half is not used.
    for more in [FULL, HALF, FULL] {
        let answers = fill(&house, more).await;
        // They may come to the server in another order.
        for _ in &answers {
            upstream.held("slow").await.result(r#"{"content":[]}"#);
        }
        for answer in answers {
            assert!(soon(answer).await.unwrap().contains(r#""content":[]"#));
        }
        house.shows("sessionless_requests", 0).await;
        upstream.forget();
    }
    let kept = fill(&house, HALF).await;
    house.settles("modern requests", TOTAL + kept.len() * (CALL + CONNECTION) + ITSELF).await;
    house.shows("sessionless_requests", kept.len()).await;
}
