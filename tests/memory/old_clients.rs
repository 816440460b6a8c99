//! What clients of HTTP+SSE have sent that waits for what they sent before.

use bytes::Bytes;
use serde_json::json;

use super::{CONNECTION, House, ITSELF, KIB, MIB, SESSION, pieces::Poster};
use crate::kit::{Client, Upstream, soon};

const TOTAL: usize = 16 * MIB;
/// A buffer that doubles is twice as large as a message with so many bytes more.
const SIZE: usize = 512 * KIB;

#[tokio::test]
async fn what_waits_for_earlier_messages_of_http_sse_clients_takes_no_more_than_max_body_total() {
    let upstream = Upstream::json().await;
    upstream.hold("notifications/x");
    let server = format!("max_body = {MIB}\nmax_body_total = {TOTAL}");
    let house = House::in_front_of(&format!("url = {:?}\nsse_path = \"/sse\"", upstream.url()), &server, "").await;
    let message = json!({ "jsonrpc": "2.0", "method": "notifications/x", "params": { "x": "y".repeat(SIZE) } });
    let message = Bytes::from(message.to_string());
    let poster = Poster::new(false);
    let mut streams = Vec::new();
    let why = 'full: loop {
        let mut stream = Client::new(&house.url.replace("/mcp", "/sse")).get_stream().await;
        let messages = Client::new(&house.url.replace("/mcp", &stream.next().await.unwrap().data));
        let info = json!({ "name": "test-client", "version": "1.0" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
        assert_eq!(messages.answer("initialize", params).await.text(), "Accepted");
        stream.message().await;
        messages.notify("notifications/initialized", json!({})).await;
        streams.push(stream);
        // One is on its way, and others wait for that one, until its stream has no room.
        loop {
            let pieces = poster.begin(&messages);
            pieces.send(&message, 16 * KIB).await;
            let answer = soon(pieces.end()).await.unwrap();
            if answer.contains("server.max_body_total") {
                break 'full answer;
            }
            if answer != "Accepted" {
                assert!(answer.contains("earlier messages of this session still wait"), "{answer}");
                break;
            }
        }
    };
    assert!(why.contains(&format!("{TOTAL} bytes of messages of HTTP+SSE clients wait")), "{why}");
    let others = streams.len() * (2 * message.len() + SESSION + 2 * CONNECTION);
    house.holds("HTTP+SSE", TOTAL + others + ITSELF);
}
