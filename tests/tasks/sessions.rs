//! Idle sessions end, but not while a stream, a call or a task needs them.

use http::Method;
use serde_json::json;

use crate::kit::{Client, Gate, Upstream, eventually, soon};

const IDLE: &str = "[server]\nsession_idle = \"500ms\"";

#[tokio::test]
async fn an_idle_session_ends_on_both_sides() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, IDLE).await;
    let client = Client::connect(&gate.url).await;
    upstream.wait_for(|seen| seen.method == "DELETE" && seen.header("mcp-session-id") == "upstream-1").await;
    assert_eq!(client.answer("ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn a_session_with_an_open_stream_or_a_call_in_flight_is_not_idle() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, IDLE).await;
    let (listening, calling) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let _listener = listening.get_stream().await;
    let asked = tokio::spawn({
        let calling = calling.clone();
        async move { calling.request("tools/call", json!({ "name": "slow" })).await }
    });
    let slow = upstream.held("slow").await;
    // Two sessions that are idle, one after the other, measure the time.
    for n in 3..=4 {
        Client::connect(&gate.url).await;
        let id = format!("upstream-{n}");
        upstream.wait_for(|seen| seen.method == "DELETE" && seen.header("mcp-session-id") == id).await;
    }
    slow.result("{}");
    assert_eq!(asked.await.unwrap()["result"], json!({}));
    assert_eq!(listening.ask("ping", json!({})).await, json!({}));
    assert_eq!(calling.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn a_session_with_a_task_stays_as_long_as_the_task_is_kept() {
    let upstream = Upstream::json().await;
    let toml = "[tasks]\nttl = \"3s\"\ntimeout = \"500ms\"\npoll_interval = \"10ms\"";
    let gate = Gate::with(&upstream, &format!("{IDLE}\n{toml}")).await;
    let client = Client::connect(&gate.url).await;
    let id = client.create_id("echo").await;
    client.until(&id, "completed").await;
    Client::connect(&gate.url).await;
    upstream.wait_for(|seen| seen.method == "DELETE" && seen.header("mcp-session-id") == "upstream-2").await;
    assert!(client.collect(&id).await["result"].is_object());
    upstream.wait_for(|seen| seen.method == "DELETE" && seen.header("mcp-session-id") == "upstream-1").await;
    let gone = eventually(async || Some(client.answer("ping", json!({})).await.status)).await;
    assert_eq!(gone, 404);
}

/// Returns how many tasks are kept.
async fn kept(gate: &Gate) -> String {
    let metrics = Client::new(&format!("{}/metrics", gate.admin.as_ref().unwrap())).send(Method::GET, "").await;
    let kept = metrics.text().lines().find(|line| line.starts_with("taskgate_tasks_kept ")).unwrap();
    kept.split(' ').next_back().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_created_while_its_session_ends_does_not_outlive_it() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, "[server]\nadmin = \"127.0.0.1:0\"").await;
    for _ in 0..300 {
        let client = Client::connect(&gate.url).await;
        let creating: Vec<_> = (0..4)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.answer("tools/call", json!({ "name": "echo", "task": {} })).await })
            })
            .collect();
        assert_eq!(client.delete().await.status, 200);
        for created in creating {
            // Acknowledged before the end, or refused because of it.
            let answer = soon(created).await.unwrap();
            assert!([200, 404].contains(&answer.status.as_u16()), "{answer:?}");
        }
    }
    eventually(async || (kept(&gate).await == "0").then_some(())).await;
}
