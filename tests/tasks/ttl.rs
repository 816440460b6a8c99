//! How long tasks are kept.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Upstream, eventually, status_of};

const SHORT: &str = "[tasks]\nttl = \"300ms\"\nmax_ttl = \"1h\"\ntimeout = \"50ms\"\npoll_interval = \"5ms\"";

async fn start(toml: &str) -> (Upstream, Gate, Client) {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, toml).await;
    let client = Client::connect(&gate.url).await;
    (upstream, gate, client)
}

async fn ttl_for(client: &Client, task: Value) -> Value {
    let created = client.create("echo", task).await;
    let id = created["taskId"].as_str().unwrap();
    assert_eq!(client.get(id).await["ttl"], created["ttl"]);
    created["ttl"].clone()
}

#[tokio::test]
async fn a_ttl_is_honoured_up_to_the_maximum_and_reported_as_it_is() {
    let toml = "[tasks]\nttl = \"20m\"\nmax_ttl = \"1h\"\ntimeout = \"1m\"\npoll_interval = \"1s\"";
    let (_upstream, _gate, client) = start(toml).await;
    for (asked, given) in [
        (json!({}), 1_200_000),
        (json!({ "ttl": 600_000 }), 600_000),
        (json!({ "ttl": 3_600_000 }), 3_600_000),
        (json!({ "ttl": 3_600_001 }), 3_600_000),
        (json!({ "ttl": 1e300 }), 3_600_000),
        (json!({ "ttl": null }), 3_600_000),
        // At least the timeout and time to collect, ten polls.
        (json!({ "ttl": 60_000 }), 70_000),
        (json!({ "ttl": 0 }), 70_000),
        // An integer, whatever was asked for.
        (json!({ "ttl": 600_000.4 }), 600_001),
    ] {
        assert_eq!(ttl_for(&client, asked.clone()).await, json!(given), "{asked}");
    }
}

#[tokio::test]
async fn the_defaults_keep_a_task_longer_than_its_call_may_run() {
    let (_upstream, _gate, client) = start("").await;
    let hour = 3_600_000;
    assert!(ttl_for(&client, json!({ "ttl": 60_000 })).await.as_u64().unwrap() > hour);
    assert_eq!(ttl_for(&client, json!({ "ttl": 1e12 })).await, json!(24 * hour));
}

#[tokio::test]
async fn each_tool_has_the_ttl_of_its_pattern() {
    let toml = "[tasks]\ntimeout = \"1s\"\npoll_interval = \"1s\"\n[[upstream]]\n[upstream.tools.\"e*\"]\nttl = \"30m\"\nmax_ttl = \"40m\"";
    let (_upstream, _gate, client) = start(toml).await;
    assert_eq!(ttl_for(&client, json!({})).await, 1_800_000);
    assert_eq!(ttl_for(&client, json!({ "ttl": 1e9 })).await, 2_400_000);
    assert_eq!(client.create("slow", json!({})).await["ttl"], 900_000);
}

#[tokio::test]
async fn an_expired_task_is_gone_as_if_it_had_never_been_and_not_before() {
    let (_upstream, _gate, client) = start(SHORT).await;
    let before = Instant::now();
    let task = client.create("echo", json!({})).await;
    assert_eq!(task["ttl"], 300);
    let id = task["taskId"].as_str().unwrap();
    let error =
        eventually(async || client.request("tasks/get", json!({ "taskId": id })).await.get("error").cloned()).await;
    let lived = before.elapsed();
    assert!((Duration::from_millis(300)..Duration::from_secs(5)).contains(&lived), "{lived:?}");
    let unknown = client.request("tasks/get", json!({ "taskId": uuid::Uuid::new_v4().to_string() })).await;
    assert_eq!(error, unknown["error"]);
    for method in ["tasks/result", "tasks/cancel"] {
        assert_eq!(client.request(method, json!({ "taskId": id })).await["error"], unknown["error"]);
    }
    assert_eq!(client.list().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_expired_task_makes_room_for_another() {
    let (_upstream, _gate, client) = start(&format!("{SHORT}\nmax_tasks = 1\nmax_tasks_per_owner = 1")).await;
    client.create_id("echo").await;
    let params = json!({ "name": "echo", "task": {} });
    assert!(client.request("tools/call", params.clone()).await["error"].is_object());
    eventually(async || client.request("tools/call", params.clone()).await.get("result").cloned()).await;
}

#[tokio::test]
async fn no_task_is_lost_before_its_ttl_is_over_however_many_there_are() {
    let (_upstream, _gate, client) = start("[tasks]\nmax_tasks_per_owner = 5000").await;
    let mut ids = Vec::new();
    for _ in 0..1000 {
        ids.push(client.create_id("echo").await);
    }
    // Many reads of a few, which a cache would take for a reason to drop the others.
    for _ in 0..200 {
        client.get(&ids[0]).await;
    }
    for id in &ids {
        client.get(id).await;
    }
    assert_eq!(client.list().await.len(), 1000);
}

#[tokio::test]
async fn a_task_that_is_queued_until_it_cannot_finish_any_more_fails_and_says_why() {
    let toml = "[tasks]\nttl = \"1s\"\ntimeout = \"800ms\"\npoll_interval = \"300ms\"\nmax_running = 1";
    let (upstream, _gate, client) = start(toml).await;
    client.create_id("slow").await;
    let queued = client.create_id("slow").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": queued }));
    // The first runs into its timeout; the second gets what is left of its own time.
    let _first = upstream.held("slow").await;
    let response = waiting.message().await;
    assert!(response["error"]["message"].is_string(), "{response}");
    let task = client.get(&queued).await;
    assert_eq!(status_of(&task), "failed");
    assert_eq!(task["statusMessage"], response["error"]["message"]);
}
