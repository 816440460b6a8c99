//! Servers that come up later than taskgate, as after a reboot: calls that waited for their turns are sent when they
//! are there.

use rustix::process::Signal;
use serde_json::json;

use crate::{
    House,
    kit::{Client, Upstream, status_of},
    modern_client::Modern,
};

const ONE_AT_A_TIME: &str = "[tasks]\ntask_after = \"0s\"\nmax_running = 1\n";
const DONE: &str = r#"{"content":[]}"#;
/// What the log says of a call that is tried again.
const WAITS: &str = "waits for its server";

/// taskgate that was killed together with its server and started again alone, after a call and two that wait for their
/// turns.
async fn without_server(config: &str) -> (Upstream, House, Client, [String; 2]) {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), config).await;
    let client = Client::connect(&house.url).await;
    client.create_id("slow").await;
    let held = upstream.held("slow").await;
    let waiting = [client.create_id("slow").await, client.create_id("slow").await];
    house.end(Signal::KILL).await;
    drop(held);
    upstream.stop().await;
    house.start_again().await;
    (upstream, house, client, waiting)
}

/// Answers the calls in their order, and checks that each was sent once.
async fn are_sent_once(upstream: &Upstream, client: &Client, waiting: &[String]) {
    for (n, id) in waiting.iter().enumerate() {
        let held = upstream.held("slow").await;
        assert_eq!(upstream.count("slow"), n + 2, "one at a time");
        held.result(DONE);
        client.until(id, "completed").await;
    }
}

#[tokio::test]
async fn calls_that_waited_are_sent_once_when_their_server_is_up() {
    for forgets in [false, true] {
        let (upstream, house, client, waiting) = without_server(ONE_AT_A_TIME).await;
        house.running.as_ref().unwrap().logged_after(WAITS).await;
        for id in &waiting {
            assert_eq!(status_of(&client.get(id).await), "working");
        }
        if forgets {
            upstream.forget_sessions();
        }
        upstream.start_again().await;
        are_sent_once(&upstream, &client, &waiting).await;
    }
}

#[tokio::test]
async fn a_call_of_a_client_without_a_session_is_sent_when_its_server_of_either_generation_is_up() {
    for upstream in [Upstream::json().await, Upstream::modern(json!({ "tools": {} })).await] {
        let mut house = House::before(&upstream.url(), ONE_AT_A_TIME).await;
        let client = Modern::with_tasks(&house.url);
        client.call("slow").await;
        let held = upstream.held("slow").await;
        let id = client.call("slow").await["taskId"].as_str().unwrap().to_owned();
        house.end(Signal::KILL).await;
        drop(held);
        upstream.stop().await;
        house.start_again().await;
        house.running.as_ref().unwrap().logged_after(WAITS).await;
        upstream.start_again().await;
        upstream.held("slow").await.result(DONE);
        client.until(&id, "completed").await;
        assert_eq!(upstream.count("slow"), 2);
    }
}

#[tokio::test]
async fn calls_fail_and_say_that_they_were_not_sent_when_their_server_stays_away() {
    // Shorter than the half a minute: a call does not wait for its server longer than it may run.
    let (upstream, _house, client, waiting) = without_server(&format!("{ONE_AT_A_TIME}timeout = \"4s\"\n")).await;
    for id in &waiting {
        let task = client.until(id, "failed").await;
        let why = task["statusMessage"].as_str().unwrap();
        assert!(why.contains("was not sent") && why.contains("cannot be reached"), "{why}");
    }
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_stop_while_calls_wait_for_their_server_leaves_them_to_the_next_process() {
    let (upstream, mut house, client, waiting) = without_server(ONE_AT_A_TIME).await;
    house.running.as_ref().unwrap().logged_after(WAITS).await;
    house.end(Signal::TERM).await;
    upstream.start_again().await;
    house.start_again().await;
    are_sent_once(&upstream, &client, &waiting).await;
}

#[tokio::test]
async fn a_call_that_waits_for_its_server_can_be_cancelled() {
    let (upstream, house, client, [first, second]) = without_server(ONE_AT_A_TIME).await;
    house.running.as_ref().unwrap().logged_after(WAITS).await;
    assert_eq!(status_of(&client.cancel(&first).await), "cancelled");
    upstream.start_again().await;
    are_sent_once(&upstream, &client, &[second]).await;
}
