//! Bodies that are arriving, in buffers that grow.

use bytes::Bytes;
use serde_json::json;

use super::{CONNECTION, House, ITSELF, KIB, MIB, SESSION, pieces::Poster};
use crate::kit::{Client, Upstream, eventually};

const TOTAL: usize = 16 * MIB;

/// Fills the room for bodies that are arriving with many of so many bytes that come in small pieces.
async fn fill(what: &str, http2: bool, size: usize) {
    let upstream = Upstream::json().await;
    let house = House::before(&upstream.url(), &format!("max_body_total = {TOTAL}"), "").await;
    let client = Client::connect(&house.url).await;
    let count = TOTAL / (size + 10 * KIB);
    let ping = Bytes::from(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": {} }).to_string());
    let part = Bytes::from(" ".repeat(size / 16));
    // In the later rounds buffers get memory that others had before, and all of them is the process's.
    let poster = Poster::new(http2);
    for _ in 0..3 {
        let open: Vec<_> = (0..count).map(|_| poster.begin(&client)).collect();
        // All of them grow together.
        for _ in 0..16 {
            for pieces in &open {
                pieces.send(&part, KIB).await;
            }
        }
        // When all of that has come, there is no room for one more.
        let filling = Bytes::from(" ".repeat(TOTAL - count * size + KIB));
        eventually(async || {
            let one_more = Poster::new(false).begin(&client);
            one_more.send(&filling, filling.len()).await;
            one_more.send(&ping, 10).await;
            let answer = one_more.end().await.unwrap();
            answer.contains(&format!("server.max_body_total = {TOTAL}")).then_some(())
        })
        .await;
        for pieces in open {
            pieces.send(&ping, 10).await;
            let answer = pieces.end().await.unwrap();
            assert!(answer.contains("result"), "{answer}");
        }
    }
    let connections = if http2 { 3 } else { count + 2 };
    house.holds(what, 2 * TOTAL + connections * CONNECTION + count * 2 * KIB + SESSION + ITSELF);
}

#[tokio::test]
async fn bodies_that_arrive_in_small_pieces_take_no_more_than_twice_max_body_total() {
    fill("bodies over HTTP/1.1", false, 512 * KIB + 2 * KIB).await;
    fill("bodies over HTTP/2", true, 512 * KIB + 2 * KIB).await;
}
