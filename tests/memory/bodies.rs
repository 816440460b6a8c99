//! Bodies that are arriving, in buffers that grow.

use bytes::Bytes;
use serde_json::json;

use super::{
    CONNECTION, House, ITSELF, KIB, MIB, SESSION,
    pieces::{Pieces, Poster},
};
use crate::kit::{Client, Upstream, eventually};

const TOTAL: usize = 16 * MIB;

/// Fills the room for bodies that are arriving with many of so many bytes that come in small pieces. Returns `None` where
/// one of them was refused.
async fn round(client: &Client, poster: &Poster, size: usize, filling: usize) -> Option<()> {
    let ping = Bytes::from(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": {} }).to_string());
    let open: Vec<_> = (0..count(size)).map(|_| poster.begin(client)).collect();
    // All of them grow together.
    let part = Bytes::from(" ".repeat(size / 16));
    for _ in 0..16 {
        for pieces in &open {
            pieces.send(&part, KIB).await;
        }
    }
    // When all of that has come, there is no room for one more. Before, one more may have taken the room of the rest.
    let filling = Bytes::from(" ".repeat(filling));
    while !open.iter().any(Pieces::is_answered) {
        let one_more = Poster::new(false).begin(client);
        one_more.send(&filling, filling.len()).await;
        one_more.send(&ping, 10).await;
        if is_refused(&one_more.end().await.unwrap()) {
            break;
        }
    }
    let mut refused = 0;
    for pieces in open {
        pieces.send(&ping, 10).await;
        refused += usize::from(is_refused(&pieces.end().await.unwrap()));
    }
    (refused == 0).then_some(())
}

/// Returns whether a ping was refused for want of room, and not answered.
fn is_refused(answer: &str) -> bool {
    let refused = answer.contains(&format!("server.max_body_total = {TOTAL}"));
    assert!(refused || answer.contains("result"), "{answer}");
    refused
}

/// Returns how many bodies of that size there is room for.
fn count(size: usize) -> usize {
    TOTAL / (size + 10 * KIB)
}

/// Fills the room several times.
async fn fill(what: &str, http2: bool, size: usize) {
    let upstream = Upstream::json().await;
    let house = House::before(&upstream.url(), &format!("max_body_total = {TOTAL}"), "").await;
    let client = Client::connect(&house.url).await;
    // Over HTTP/2 the requests count too, with a little more than that.
    let request = if http2 { 8 * KIB } else { 0 };
    let filling = TOTAL - count(size) * (size + request) + KIB;
    // In the later rounds buffers get memory that others had before, and all of them is the process's.
    let poster = Poster::new(http2);
    for _ in 0..3 {
        eventually(|| round(&client, &poster, size, filling)).await;
    }
    let connections = if http2 { 3 } else { count(size) + 2 };
    house.holds(what, 2 * TOTAL + connections * CONNECTION + count(size) * 2 * KIB + SESSION + ITSELF);
}

#[tokio::test]
async fn bodies_that_arrive_in_small_pieces_take_no_more_than_twice_max_body_total() {
    fill("bodies over HTTP/1.1", false, 512 * KIB + 2 * KIB).await;
    fill("bodies over HTTP/2", true, 512 * KIB + 2 * KIB).await;
}
