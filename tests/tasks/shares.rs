//! What one owner may have, and all together: each limit holds, and is named when it is reached.

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Stream, Upstream, eventually, status_of};

const HEADER: &str = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";

/// Starts a server, taskgate that knows its users, and two of them.
async fn two(toml: &str) -> (Upstream, Gate, [Client; 2]) {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &format!("{HEADER}{toml}")).await;
    let user = async |name| Client::new(&gate.url).with("x-user", name).initialize("2025-11-25", json!({})).await;
    let users = [user("ann").await, user("bob").await];
    (upstream, gate, users)
}

fn is_queued(task: &Value) -> bool {
    task["statusMessage"].as_str().unwrap_or_default().starts_with("Queued")
}

/// Checks that a call as a task is refused, with these words in the error.
async fn refused(client: &Client, tool: &str, parts: &[&str]) {
    let (code, message) = client.error("tools/call", json!({ "name": tool, "task": {} })).await;
    assert_eq!(code, -32603);
    for part in parts {
        assert!(message.contains(part), "no {part} in {message}");
    }
}

/// Sends a request that waits for a task, if it may.
async fn may_wait(client: &Client, id: &str) -> Option<Stream> {
    let mut waiter = client.stream("tasks/result", json!({ "taskId": id }));
    let streams = waiter.head().await.1["content-type"] == "text/event-stream";
    streams.then_some(waiter)
}

#[tokio::test]
async fn calls_of_one_owner_over_max_running_per_owner_wait_whatever_their_tools() {
    let (upstream, _gate, [ann, bob]) = two("[tasks]\nmax_running_per_owner = 2").await;
    let tasks = [ann.create("a", json!({})).await, ann.create("b", json!({})).await, ann.create("c", json!({})).await];
    assert_eq!(tasks.each_ref().map(is_queued), [false, false, true]);
    assert!(!is_queued(&bob.create("c", json!({})).await));
    let (first, _second, bobs) = (upstream.held("a").await, upstream.held("b").await, upstream.held("c").await);
    bobs.result("{}");
    first.result("{}");
    upstream.held("c").await.result("{}");
    ann.until(tasks[2]["taskId"].as_str().unwrap(), "completed").await;
}

#[tokio::test]
async fn calls_over_max_running_total_wait_whatever_their_owners() {
    let (upstream, _gate, [ann, bob]) = two("[tasks]\nmax_running_total = 1").await;
    ann.create_id("a").await;
    let queued = bob.create("b", json!({})).await;
    assert!(is_queued(&queued), "{queued}");
    upstream.held("a").await.result("{}");
    upstream.held("b").await.result("{}");
    bob.until(queued["taskId"].as_str().unwrap(), "completed").await;
}

#[tokio::test]
async fn the_full_queue_of_one_owner_leaves_room_for_another() {
    let (upstream, _gate, [ann, bob]) = two("[tasks]\nmax_running = 1\nmax_queued = 1").await;
    ann.create_id("slow").await;
    ann.create_id("slow").await;
    refused(&ann, "slow", &["max_running = 1 calls of it run", "max_queued = 1 of yours"]).await;
    assert!(is_queued(&bob.create("slow", json!({})).await));
    refused(&bob, "slow", &["max_queued = 1 of yours"]).await;
    upstream.held("slow").await;
}

#[tokio::test]
async fn a_call_over_max_queued_per_owner_or_max_queued_total_is_refused_and_the_limit_is_named() {
    let limits = "[tasks]\nmax_running_per_owner = 1\nmax_queued_per_owner = 2\nmax_queued_total = 3";
    let (upstream, _gate, [ann, bob]) = two(limits).await;
    for tool in ["a", "b", "c"] {
        ann.create_id(tool).await;
    }
    refused(&ann, "d", &["\"d\"", "tasks.max_running_per_owner = 1", "tasks.max_queued_per_owner = 2"]).await;
    bob.create_id("a").await;
    bob.create_id("a").await;
    refused(&bob, "b", &["tasks.max_running_per_owner = 1", "tasks.max_queued_total = 3"]).await;
    // Calls that have a place keep it.
    for tool in ["a", "b", "c", "a", "a"] {
        upstream.held(tool).await.result("{}");
    }
    for client in [ann, bob] {
        for id in client.list().await {
            client.until(&id, "completed").await;
        }
    }
}

#[tokio::test]
async fn queued_requests_are_bounded_in_bytes_for_each_owner_and_in_total() {
    let limits = "max_running_per_owner = 1\nmax_queued_bytes_per_owner = 30000\nmax_queued_bytes = 60000";
    let (upstream, _gate, [ann, bob]) = two(&format!("[tasks]\n{limits}")).await;
    let call = json!({ "name": "slow", "task": {}, "arguments": { "x": "x".repeat(20_000) } });
    let create = async |client: &Client| client.request("tools/call", call.clone()).await;
    for client in [&ann, &ann, &bob] {
        assert!(create(client).await["result"]["task"].is_object());
    }
    let why = async |client: &Client| create(client).await["error"]["message"].to_string();
    assert!(why(&ann).await.contains("tasks.max_queued_bytes_per_owner = 30000 bytes of yours would wait"));
    assert!(create(&bob).await["result"]["task"].is_object());
    let carl = Client::new(ann.url()).with("x-user", "carl").initialize("2025-11-25", json!({})).await;
    create(&carl).await;
    assert!(why(&carl).await.contains("tasks.max_queued_bytes = 60000 bytes would wait"));
    // A small call finds room, and a turn makes room.
    carl.create_id("slow").await;
    for _ in 0..3 {
        upstream.held("slow").await.result("{}");
    }
    eventually(async || create(&ann).await["result"]["task"].is_object().then_some(())).await;
}

#[tokio::test]
async fn over_max_result_bytes_new_tasks_are_refused_and_all_acknowledged_ones_can_be_collected() {
    let limits = "[tasks]\nmax_result_bytes = 2500\nmax_result_bytes_per_owner = 1500";
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, limits).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let result = format!(r#"{{"x":"{}"}}"#, "x".repeat(1000 - 8));
    let tasks = [ann.create_id("slow").await, ann.create_id("slow").await];
    for _ in &tasks {
        upstream.held("slow").await.result(&result);
    }
    for id in &tasks {
        ann.until(id, "completed").await;
    }
    refused(&ann, "slow", &["tasks.max_result_bytes_per_owner = 1500"]).await;
    let bobs = bob.create_id("slow").await;
    upstream.held("slow").await.result(&result);
    bob.until(&bobs, "completed").await;
    refused(&bob, "slow", &["tasks.max_result_bytes = 2500"]).await;
    for (client, id) in [(&ann, &tasks[0]), (&ann, &tasks[1]), (&bob, &bobs)] {
        assert_eq!(client.collect(id).await["result"]["x"].as_str().unwrap().len(), 1000 - 8);
    }
    // The end of a session removes its tasks.
    ann.delete().await;
    assert_eq!(status_of(&bob.create("slow", json!({})).await), "working");
}

#[tokio::test]
async fn requests_over_max_waiters_per_owner_or_max_waiters_total_do_not_wait() {
    let (upstream, _gate, [ann, bob]) = two("[tasks]\nmax_waiters_per_owner = 2\nmax_waiters_total = 3").await;
    let ids = [ann.create_id("slow").await, ann.create_id("slow").await, ann.create_id("slow").await];
    let (first, second) = (may_wait(&ann, &ids[0]).await.unwrap(), may_wait(&ann, &ids[1]).await.unwrap());
    let (code, message) = ann.error("tasks/result", json!({ "taskId": ids[2] })).await;
    assert_eq!(code, -32603);
    assert!(message.contains("tasks.max_waiters_per_owner = 2"), "{message}");
    let bobs = [bob.create_id("slow").await, bob.create_id("slow").await];
    let _third = may_wait(&bob, &bobs[0]).await.unwrap();
    let (_, message) = bob.error("tasks/result", json!({ "taskId": bobs[1] })).await;
    assert!(message.contains("tasks.max_waiters_total = 3"), "{message}");
    // A waiter that leaves makes room for another, and those that wait are answered.
    drop(second);
    let fourth = eventually(async || may_wait(&bob, &bobs[1]).await).await;
    for _ in 0..5 {
        upstream.held("slow").await.result(r#"{"content":[]}"#);
    }
    for mut answered in [first, fourth] {
        assert!(answered.message().await["result"].is_object());
    }
}

#[tokio::test]
async fn a_queued_call_gets_no_turn_while_the_results_of_its_owner_use_up_their_bytes() {
    let limits = "[tasks]\nmax_running = 1\nmax_result_bytes_per_owner = 1000\npoll_interval = \"50ms\"";
    let (upstream, _gate, [ann, bob]) = two(limits).await;
    let first = ann.create("slow", json!({ "ttl": 1 })).await["taskId"].as_str().unwrap().to_owned();
    let second = ann.create_id("slow").await;
    let bobs = bob.create_id("slow").await;
    let result = format!(r#"{{"x":"{}"}}"#, "x".repeat(1000 - 8));
    upstream.held("slow").await.result(&result);
    // Another owner's turn comes first, and the first result is gone before its own.
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    let third = upstream.held("slow").await;
    assert_eq!(ann.list().await, [second.as_str()], "{first} is still kept");
    third.result(r#"{"content":[]}"#);
    bob.until(&bobs, "completed").await;
    ann.until(&second, "completed").await;
}

#[tokio::test]
async fn a_call_that_waits_too_long_for_room_for_results_fails_and_names_the_limit() {
    let limits = "[tasks]\nmax_running = 1\nmax_result_bytes = 1000\ntimeout = \"3s\"\nttl = \"1h\"";
    let (upstream, _gate, [ann, bob]) = two(limits).await;
    ann.create_id("slow").await;
    let waiting = bob.create("slow", json!({ "ttl": 1 })).await["taskId"].as_str().unwrap().to_owned();
    let result = format!(r#"{{"x":"{}"}}"#, "x".repeat(1000 - 8));
    upstream.held("slow").await.result(&result);
    let failed = bob.until(&waiting, "failed").await;
    let message = failed["statusMessage"].as_str().unwrap();
    for part in ["limit reached: the task waited for its turn for 3s; ", "tasks.max_result_bytes = 1000 bytes"] {
        assert!(message.contains(part), "no {part} in {message}");
    }
    assert_eq!(upstream.count("slow"), 1);
}
