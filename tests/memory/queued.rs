//! Calls that wait for their turn.

use serde_json::json;

use super::{CONNECTION, House, ITSELF, KIB, MIB, SESSION};
use crate::kit::{Client, Upstream};

const TOTAL: usize = 4 * MIB;

/// Fills the queue with calls of a client, and returns how many wait.
async fn fill(what: &str, burden: impl FnOnce(Client) -> Client) -> usize {
    let upstream = Upstream::json().await;
    let sections = format!(
        "[tasks]\nmax_running = 1\nmax_queued = 10000\nmax_queued_per_owner = 10000\nmax_tasks_per_owner = 10000\n\
         max_queued_bytes = {TOTAL}"
    );
    let house = House::before(&upstream.url(), "", &sections).await;
    let client = burden(Client::connect(&house.url).await);
    client.create_id("slow").await;
    let _running = upstream.held("slow").await;
    let mut waiting = 0;
    let refused = loop {
        let answer = client.request("tools/call", json!({ "name": "slow", "task": {} })).await;
        match answer["error"]["message"].as_str() {
            Some(why) => break why.to_owned(),
            None => waiting += 1,
        }
    };
    assert!(refused.contains(&format!("tasks.max_queued_bytes = {TOTAL}")), "{refused}");
    // Each is a task, too.
    house.holds(what, TOTAL + waiting * KIB + SESSION + 2 * CONNECTION + ITSELF);
    waiting
}

#[tokio::test]
async fn queued_calls_count_with_their_headers_and_keep_no_buffer() {
    let small = fill("small calls", |client| client).await;
    assert!(small > 700, "{small}");
    let burdened = fill("calls with headers", |client| {
        (0..60).fold(client, |client, n| client.with(&format!("x-{n}"), &"y".repeat(180)))
    });
    let burdened = burdened.await;
    assert!((100..200).contains(&burdened), "{burdened}");
}
