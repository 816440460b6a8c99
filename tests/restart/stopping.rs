//! A process that is stopped leaves to the next one what that can go on with.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::Method;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    House,
    kit::{Client, Sse, Upstream, status_of},
};

const SHORT: &str = "[server]\ndrain_timeout = \"100ms\"\n[tasks]\nmax_running = 1\n";
const DONE: &str = r#"{"content":[]}"#;

/// Creates two tasks: the call of one runs, and its answer can be resumed; that of the other waits for its turn.
async fn running_and_waiting(upstream: &Upstream, client: &Client) -> (String, String, Sse) {
    let (running, waits) = (client.create_id("slow").await, client.create_id("slow").await);
    let stream = upstream.held("slow").await.sse();
    stream.raw("id: e1\ndata: \n\n").await;
    stream.progress(1).await;
    client.until_task(&running, |task| task["statusMessage"].is_string()).await;
    (running, waits, stream)
}

#[tokio::test]
async fn a_stop_leaves_sessions_calls_that_wait_and_calls_that_can_be_resumed() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), SHORT).await;
    let client = Client::connect(&house.url).await;
    let (running, waits, stream) = running_and_waiting(&upstream, &client).await;
    let call = stream.seen.id();
    let ended = house.end(Signal::TERM).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(upstream.seen().iter().all(|seen| seen.method != Method::DELETE), "the server's session goes on");
    assert_eq!(upstream.count("notifications/cancelled"), 0);
    house.start_again().await;
    let resumed = upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "e1");
    resumed.event(&format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{DONE}}}"#)).await;
    client.until(&running, "completed").await;
    upstream.held("slow").await.result(DONE);
    client.until(&waits, "completed").await;
    assert_eq!(upstream.count("slow"), 2);
}

#[tokio::test]
async fn a_stop_waits_until_the_server_hears_of_a_call_that_its_client_has_just_cancelled() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "").await;
    let client = Client::connect(&house.url).await;
    let id = client.create_id("slow").await;
    let _held = upstream.held("slow").await;
    assert_eq!(status_of(&client.cancel(&id).await), "cancelled");
    house.end(Signal::TERM).await;
    upstream.wait_for_message("notifications/cancelled").await;
}

#[tokio::test]
async fn a_drain_that_ends_as_the_last_call_is_cancelled_waits_until_the_server_hears_it() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "").await;
    let client = Client::connect(&house.url).await;
    let id = client.create_id("slow").await;
    let _held = upstream.held("slow").await;
    let running = house.running.take().unwrap();
    running.signal(Signal::TERM);
    running.logged_after("draining").await;
    assert_eq!(status_of(&client.cancel(&id).await), "cancelled");
    running.end().await;
    upstream.wait_for_message("notifications/cancelled").await;
}

#[tokio::test]
async fn a_stop_tells_who_waits_for_a_result_to_ask_again() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), SHORT).await;
    let client = Client::connect(&house.url).await;
    let (running, waits, stream) = running_and_waiting(&upstream, &client).await;
    let call = stream.seen.id();
    let mut waiters = [&running, &waits].map(|id| client.stream("tasks/result", json!({ "taskId": id })));
    for waiter in &mut waiters {
        // It waits from here on.
        assert_eq!(waiter.head().await.0, 200);
    }
    house.end(Signal::TERM).await;
    for mut waiter in waiters {
        let error = waiter.message().await["error"].take();
        let message = error["message"].as_str().unwrap();
        assert!(error["code"] == -32603 && message.contains("ask again with tasks/result"), "{message}");
    }
    house.start_again().await;
    upstream.resumed().await.event(&format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{DONE}}}"#)).await;
    assert!(client.collect(&running).await["result"].is_object());
}

#[tokio::test]
async fn a_stop_waits_for_calls_that_run_and_fails_those_that_end_with_the_process() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), SHORT).await;
    let client = Client::connect(&house.url).await;
    let (running, waits) = (client.create_id("slow").await, client.create_id("slow").await);
    let held = upstream.held("slow").await;
    let told = house.end(Signal::TERM).await.stderr;
    assert!(told.contains("failed=1 untold=1 left=1"), "{told}");
    held.abandoned().await;
    upstream.wait_for_message("notifications/cancelled").await;
    house.start_again().await;
    let failed = client.get(&running).await;
    assert_eq!(status_of(&failed), "failed");
    assert!(failed["statusMessage"].as_str().unwrap().contains("drain_timeout"), "{failed}");
    upstream.held("slow").await.result(DONE);
    client.until(&waits, "completed").await;
}

#[tokio::test]
async fn the_log_of_a_stop_says_of_no_task_that_it_has_ended_where_the_store_has_not_taken_that() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), SHORT).await;
    let client = Client::connect(&house.url).await;
    client.create_id("slow").await;
    let held = upstream.held("slow").await;
    std::fs::rename(house.folder.path().join("store.db-mark"), house.folder.path().join("away")).unwrap();
    held.result(DONE);
    house.running.as_ref().unwrap().logged_after("the store is unavailable").await;
    let told = house.end(Signal::TERM).await.stderr;
    assert!(
        told.contains("drained, but the store has not taken") && told.contains("untold=0 left=0 untaken=1"),
        "{told}"
    );
    assert!(!told.contains("every task has ended"), "{told}");
}

#[tokio::test]
async fn the_log_of_a_stop_says_that_the_next_process_tells_of_calls_that_have_failed() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "[server]\ndrain_timeout = \"1s\"\n").await;
    let client = Client::connect(&house.url).await;
    client.create_id("slow").await;
    let _held = upstream.held("slow").await;
    let told = house.end(Signal::TERM).await.stderr;
    let line = told.lines().find(|line| line.contains("drain_timeout is over")).unwrap_or(&told);
    assert!(line.contains("whose owners hear of the end from the next process failed=1 untold=1"), "{told}");
}

#[tokio::test]
async fn the_log_of_a_stop_says_of_no_owner_that_it_has_been_told_where_the_next_process_tells_it() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "[server]\ndrain_timeout = \"1h\"\n").await;
    let client = Client::connect(&house.url).await;
    let id = client.create_id("slow").await;
    let held = upstream.held("slow").await;
    let running = house.running.take().unwrap();
    running.signal(Signal::TERM);
    running.logged_after("draining: ").await;
    held.result(DONE);
    let told = running.end().await.stderr;
    assert!(told.contains("whose owners hear of it from the next process untold=1"), "{told}");
    assert!(!told.contains("has been told"), "{told}");
    house.start_again().await;
    assert!(client.collect(&id).await["result"].is_object());
}

#[tokio::test]
async fn while_a_process_stops_or_is_away_no_client_gets_a_404() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "[server]\ndrain_timeout = \"300ms\"\n").await;
    let client = Client::connect(&house.url).await;
    client.create_id("slow").await;
    let _held = upstream.held("slow").await;
    house.running.as_ref().unwrap().signal(Signal::TERM);
    let over = Arc::new(AtomicBool::new(false));
    let polling = tokio::spawn({
        let (client, over) = (client.clone(), Arc::clone(&over));
        async move {
            let mut statuses = Vec::new();
            while !over.load(Ordering::Relaxed) {
                statuses.extend(status(&client).await);
            }
            statuses
        }
    });
    house.running.take().unwrap().end().await;
    house.start_again().await;
    client.ask("tools/list", json!({})).await;
    over.store(true, Ordering::Relaxed);
    let statuses = polling.await.unwrap();
    assert!(statuses.iter().all(|status| matches!(status.as_str(), "200" | "503")), "{statuses:?}");
    assert!(statuses.iter().any(|status| status == "200"));
}

/// Returns the status of a request in the client's session; `None` where no connection is made, or it breaks.
async fn status(client: &Client) -> Option<String> {
    let authority = client.url().trim_start_matches("http://").split('/').next()?;
    let mut connection = TcpStream::connect(authority).await.ok()?;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/list"}"#;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {authority}\r\naccept: application/json, text/event-stream\r\ncontent-type: \
         application/json\r\nmcp-session-id: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        client.session(),
        body.len()
    );
    connection.write_all(head.as_bytes()).await.ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.ok()?;
    answer.split(' ').nth(1).map(str::to_owned)
}
