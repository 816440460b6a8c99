//! Tasks go on with the settings of the new process, and no call that waited fails for their change.

use serde_json::json;

use crate::{
    House,
    kit::{Client, Upstream, status_of},
};

const DONE: &str = r#"{"content":[]}"#;
const BEFORE: &str = "max_running = 1\ntimeout = \"1m\"\nttl = \"2s\"\npoll_interval = \"100ms\"\n";

/// Has four calls wait for a turn, starts taskgate again with `changed` settings, and finds that each is sent once.
async fn all_are_sent_after(changed: &str) {
    let upstream = Upstream::json().await;
    let config = |tasks: &str| format!("[tasks]\n{tasks}\n[[upstream]]\nurl = \"{}\"\n", upstream.url());
    let mut house = House::configured(&config(BEFORE), &[]).await;
    let client = Client::connect(&house.url).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(client.create("slow", json!({ "ttl": 1000 })).await["taskId"].as_str().unwrap().to_owned());
    }
    let first = upstream.held("slow").await;
    house.configure(&config(changed));
    house.restart().await;
    drop(first);
    for (n, id) in ids.iter().enumerate().skip(1) {
        let held = upstream.held("slow").await;
        for id in &ids[n..] {
            assert_eq!(status_of(&client.get(id).await), "working", "{changed}");
        }
        held.result(DONE);
        client.until(id, "completed").await;
    }
    assert_eq!(upstream.count("slow"), 5, "{changed}");
}

#[tokio::test]
async fn calls_that_waited_are_sent_although_a_call_may_take_longer_now() {
    all_are_sent_after("max_running = 1\ntimeout = \"20m\"\nttl = \"2s\"\npoll_interval = \"100ms\"\n").await;
    all_are_sent_after("max_running = 1\ntimeout = \"1m\"\nttl = \"2s\"\npoll_interval = \"1m\"\n").await;
}

#[tokio::test]
async fn calls_that_waited_are_sent_although_fewer_may_wait_now() {
    for limit in
        ["max_queued = 0", "max_queued_per_owner = 1", "max_queued_total = 1", "max_queued_bytes_per_owner = \"4KiB\""]
    {
        all_are_sent_after(&format!("{BEFORE}{limit}\n")).await;
    }
}
