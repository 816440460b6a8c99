//! What is told and found where the disk takes nothing for a while, or when taskgate ends.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use crate::{
    House,
    kit::{Answers, Client, Held, Options, Upstream, status_of},
    resumed::{answer, event, text},
};

const SHORT: &str = "[server]\ndrain_timeout = \"100ms\"\n";
const INITIALIZED: &str =
    r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}"#;
const DONE: &str = r#"{"content":[]}"#;

impl House {
    /// Has the disk take nothing, until [`House::repair`].
    fn breaks(&self) {
        fs::rename(self.folder.path().join("store.db-mark"), self.folder.path().join("away")).unwrap();
    }

    fn repair(&self) {
        fs::rename(self.folder.path().join("away"), self.folder.path().join("store.db-mark")).unwrap();
    }
}

#[tokio::test]
async fn a_stop_leaves_no_call_whose_point_the_disk_has_not_taken() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), SHORT).await;
    let client = Client::connect(&house.url).await;
    let id = client.create_id("slow").await;
    let stream = upstream.held("slow").await.sse();
    house.breaks();
    event(&stream, "e1", "").await;
    stream.progress(1).await;
    client.until_task(&id, |task| task["statusMessage"].is_string()).await;
    let told = house.end(Signal::TERM).await.stderr;
    assert!(told.contains("failed=0 untold=0 left=0 untaken=1"), "{told}");
    upstream.wait_for_message("notifications/cancelled").await;
    house.repair();
    house.start_again().await;
    assert_eq!(status_of(&client.get(&id).await), "failed");
}

#[tokio::test]
async fn a_stop_tells_no_end_that_the_disk_has_not_taken() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), SHORT).await;
    let client = Client::connect(&house.url).await;
    client.create_id("slow").await;
    let held = upstream.held("slow").await;
    house.breaks();
    let told = house.end(Signal::TERM).await.stderr;
    assert!(told.contains("failed=0 untold=0 left=0 untaken=1") && !told.contains("task ended"), "{told}");
    held.abandoned().await;
}

/// Creates a task, and has the disk break while a session for its call is opened. Returns what opens it.
async fn breaks_before_the_call(upstream: &Upstream, house: &House, client: &Client) -> (String, Held) {
    upstream.hold("initialize");
    let id = client.create_id("slow").await;
    let opening = upstream.held("initialize").await;
    house.breaks();
    (id, opening)
}

/// Starts a server without session ids, and taskgate in front of it with a session for each task.
async fn with_a_session_for_each_task(config: &str) -> (Upstream, House) {
    let options = Options { answers: Answers::Sse, sessions: false, listens: true, ..Options::default() };
    let upstream = Upstream::start(options).await;
    let config = format!("{config}[[upstream]]\nsessions = \"request\"\nurl = {:?}\n", upstream.url());
    (upstream, House::configured(&config, &[]).await)
}

#[tokio::test]
async fn a_call_that_was_cancelled_while_the_disk_took_nothing_is_not_missing_at_a_later_stop() {
    let (upstream, mut house) = with_a_session_for_each_task(SHORT).await;
    let client = Client::connect(&house.url).await;
    let (id, opening) = breaks_before_the_call(&upstream, &house, &client).await;
    opening.result(INITIALIZED);
    house.running.as_ref().unwrap().logged_after("the store is unavailable").await;
    let refused = client.answer("tasks/cancel", json!({ "taskId": id })).await.json();
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    house.repair();
    client.until(&id, "cancelled").await;
    let told = house.end(Signal::TERM).await.stderr;
    assert!(!told.contains("the store has not taken the last change"), "{told}");
    assert_eq!(upstream.count("slow"), 0);
}

#[tokio::test]
async fn the_timeout_of_a_resumed_call_counts_from_when_it_was_sent_however_long_the_disk_took_nothing_before() {
    let (upstream, mut house) = with_a_session_for_each_task("[tasks]\ntimeout = \"5s\"\n").await;
    let client = Client::connect(&house.url).await;
    let (id, opening) = breaks_before_the_call(&upstream, &house, &client).await;
    opening.result(INITIALIZED);
    // What is waited for is the timeout itself.
    tokio::time::sleep(Duration::from_secs(6)).await;
    house.repair();
    let stream = upstream.held("slow").await.sse();
    let call = stream.seen.id();
    event(&stream, "e1", "").await;
    stream.progress(1).await;
    client.until_task(&id, |task| task["statusMessage"].is_string()).await;
    // It is acknowledged after the point was written.
    client.create_id("echo").await;
    house.restart().await;
    answer(upstream.resumed().await, &call, &text("done")).await;
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn a_call_that_waited_for_room_in_the_store_has_its_turn_soon_after_there_is_some() {
    let upstream = Upstream::json().await;
    let config = "[store]\nmax_store_bytes = \"16MiB\"\n[tasks]\nmax_running = 1\nmax_result = \"20MiB\"\npoll_interval = \"100ms\"\n";
    let house = House::before(&upstream.url(), config).await;
    let client = Client::connect(&house.url).await;
    let large = json!({ "name": "slow", "arguments": {}, "task": { "ttl": 1000 } });
    client.ask("tools/call", large).await;
    let waits = client.create_id("slow").await;
    let result = json!({ "content": [{ "type": "text", "text": "x".repeat(14_600_000) }] });
    upstream.held("slow").await.result(&result.to_string());
    upstream.held("slow").await.result(DONE);
    client.until(&waits, "completed").await;
}
