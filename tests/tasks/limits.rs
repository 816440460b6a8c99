//! Limits: each holds, and is named when it is reached.

use serde_json::json;

use crate::kit::{Client, Gate, Upstream, status_of};

async fn start(toml: &str) -> (Upstream, Gate, Client) {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, toml).await;
    let client = Client::connect(&gate.url).await;
    (upstream, gate, client)
}

#[tokio::test]
async fn calls_over_max_running_wait_for_their_turn_in_order_and_say_so() {
    let (upstream, _gate, client) = start("[tasks]\nmax_running = 2").await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let params = json!({ "name": "slow", "arguments": { "n": n }, "task": {} });
        let task = client.ask("tools/call", params).await["task"].take();
        let message = task["statusMessage"].as_str().unwrap_or_default();
        assert_eq!((status_of(&task), message.starts_with("Queued")), ("working", n >= 2), "{task}");
        ids.push(task["taskId"].as_str().unwrap().to_owned());
    }
    let (mut order, mut running) = (Vec::new(), vec![upstream.held("slow").await, upstream.held("slow").await]);
    while let Some(slow) = running.pop() {
        let n = slow.seen.json()["params"]["arguments"]["n"].as_u64().unwrap();
        assert!(upstream.count("slow") <= order.len() + 2);
        order.push(n);
        slow.result(r#"{"content":[]}"#);
        if order.len() <= 3 {
            running.insert(0, upstream.held("slow").await);
        }
    }
    order[..2].sort_unstable();
    assert_eq!(order, [0, 1, 2, 3, 4]);
    for id in ids {
        assert_eq!(client.until(&id, "completed").await.get("statusMessage"), None);
    }
}

#[tokio::test]
async fn a_queued_task_says_so_and_then_that_it_runs() {
    let (upstream, _gate, client) = start("[tasks]\nmax_running = 1").await;
    client.create_id("slow").await;
    let queued = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    assert!(client.get(&queued).await["statusMessage"].as_str().unwrap().starts_with("Queued"));
    slow.result(r#"{"content":[]}"#);
    let running = client.until_task(&queued, |task| task["statusMessage"] == "Running.").await;
    assert_eq!(status_of(&running), "working");
}

#[tokio::test]
async fn a_call_over_max_queued_is_refused_and_the_limits_are_named() {
    let (upstream, _gate, client) = start("[tasks]\nmax_running = 1\nmax_queued = 1").await;
    let first = client.create_id("slow").await;
    client.create_id("slow").await;
    let (code, message) = client.error("tools/call", json!({ "name": "slow", "task": {} })).await;
    assert_eq!(code, -32603);
    for part in ["\"slow\"", "max_running = 1", "max_queued = 1"] {
        assert!(message.contains(part), "{message}");
    }
    // The limit is that of one tool, and the queue moves on.
    let other = client.create_id("echo").await;
    client.until(&other, "completed").await;
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    client.until(&first, "completed").await;
    upstream.held("slow").await;
    client.create_id("slow").await;
    assert_eq!(client.list().await.len(), 4);
}

#[tokio::test]
async fn plain_calls_do_not_wait_for_a_turn() {
    let (upstream, _gate, client) = start("[tasks]\nmax_running = 1\nmax_queued = 0").await;
    client.create_id("slow").await;
    let _running = upstream.held("slow").await;
    let asked = tokio::spawn(async move { client.ask("tools/call", json!({ "name": "slow" })).await });
    upstream.held("slow").await.result("{}");
    assert_eq!(asked.await.unwrap(), json!({}));
}

#[tokio::test]
async fn a_limit_on_a_pattern_holds_for_each_tool_by_itself() {
    let toml = "[[upstream]]\n[upstream.tools.\"export_*\"]\nmax_running = 1\nmax_queued = 0";
    let (upstream, _gate, client) = start(toml).await;
    client.create_id("export_a").await;
    client.create_id("export_b").await;
    for tool in ["export_a", "export_b"] {
        let (_, message) = client.error("tools/call", json!({ "name": tool, "task": {} })).await;
        assert!(message.contains(tool) && message.contains("max_running = 1"), "{message}");
    }
    upstream.held("export_a").await;
    upstream.held("export_b").await;
}

#[tokio::test]
async fn tasks_over_max_tasks_per_owner_are_refused_for_that_owner_only() {
    let (upstream, gate, client) = start("[tasks]\nmax_tasks_per_owner = 2").await;
    client.create_id("echo").await;
    client.create_id("slow").await;
    let (code, message) = client.error("tools/call", json!({ "name": "echo", "task": {} })).await;
    assert_eq!(code, -32603);
    assert!(message.contains("max_tasks_per_owner = 2"), "{message}");
    let other = Client::connect(&gate.url).await;
    other.create_id("echo").await;
    // A plain call is no task.
    client.ask("tools/call", json!({ "name": "echo" })).await;
    assert_eq!((client.list().await.len(), upstream.count("slow")), (2, 1));
}

#[tokio::test]
async fn tasks_over_max_tasks_are_refused_for_everyone_until_there_is_room() {
    let (_upstream, gate, client) = start("[tasks]\nmax_tasks = 2").await;
    let other = Client::connect(&gate.url).await;
    client.create_id("echo").await;
    other.create_id("echo").await;
    for client in [&client, &other] {
        let (code, message) = client.error("tools/call", json!({ "name": "echo", "task": {} })).await;
        assert_eq!(code, -32603);
        assert!(message.contains("max_tasks = 2"), "{message}");
    }
    other.delete().await;
    client.create_id("echo").await;
}

#[tokio::test]
async fn a_refused_call_takes_no_turn() {
    let (upstream, _gate, client) = start("[tasks]\nmax_running = 1\nmax_queued = 0\nmax_tasks_per_owner = 1").await;
    let id = client.create_id("echo").await;
    client.until(&id, "completed").await;
    for _ in 0..3 {
        let (_, message) = client.error("tools/call", json!({ "name": "slow", "task": {} })).await;
        assert!(message.contains("max_tasks_per_owner"), "{message}");
    }
    assert_eq!(upstream.count("slow"), 0);
}

#[tokio::test]
async fn a_result_over_max_result_fails_the_task_and_names_the_limit() {
    let (upstream, _gate, client) = start("[tasks]\nmax_result = \"1KiB\"").await;
    for size in [2 * 1024, 2 * 1024 * 1024] {
        let id = client.create_id("slow").await;
        upstream.held("slow").await.result(&format!(r#"{{"x":"{}"}}"#, "x".repeat(size)));
        let task = client.until(&id, "failed").await;
        let message = task["statusMessage"].as_str().unwrap();
        assert!(message.contains("max_result = 1024 bytes"), "{message}");
        let error = client.collect(&id).await["error"].take();
        assert_eq!((&error["code"], error["message"].as_str()), (&json!(-32603), Some(message)));
    }
    // Up to the limit it fits; and a plain call has no such limit.
    let id = client.create_id("slow").await;
    let fits = format!(r#"{{"x":"{}"}}"#, "x".repeat(1024 - 8));
    upstream.held("slow").await.result(&fits);
    client.until(&id, "completed").await;
    let asked = tokio::spawn(async move { client.ask("tools/call", json!({ "name": "slow" })).await });
    upstream.held("slow").await.result(&format!(r#"{{"x":"{}"}}"#, "x".repeat(4096)));
    assert_eq!(asked.await.unwrap()["x"].as_str().unwrap().len(), 4096);
}

#[tokio::test]
async fn a_call_over_its_timeout_is_cancelled_upstream_and_the_error_names_the_timeout() {
    let (upstream, _gate, client) = start("[tasks]\ntimeout = \"200ms\"").await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    let response = waiting.message().await;
    let task = client.get(&id).await;
    let message = task["statusMessage"].as_str().unwrap();
    assert_eq!(status_of(&task), "failed");
    assert!(message.contains("timeout = 200ms"), "{message}");
    assert_eq!(response["error"]["message"].as_str(), Some(message));
    let told = upstream.wait_for_message("notifications/cancelled").await;
    assert_eq!(told.json()["params"]["requestId"], slow.seen.json()["id"]);
    slow.abandoned().await;
}

#[tokio::test]
async fn a_call_over_its_timeout_makes_room_for_the_next() {
    let (upstream, _gate, client) = start("[tasks]\ntimeout = \"1s\"\nmax_running = 1").await;
    let first = client.create_id("slow").await;
    let second = client.create_id("echo").await;
    let third = client.create_id("slow").await;
    let hung = upstream.held("slow").await;
    client.until(&second, "completed").await;
    client.until(&first, "failed").await;
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    client.until(&third, "completed").await;
    hung.abandoned().await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_keeps_its_turn_until_the_server_has_been_told() {
    let (upstream, _gate, client) = start("[tasks]\nmax_running = 1").await;
    upstream.hold("notifications/cancelled");
    let first = client.create_id("slow").await;
    let second = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    client.cancel(&first).await;
    let told = upstream.held("notifications/cancelled").await;
    assert!(client.get(&second).await["statusMessage"].as_str().unwrap().starts_with("Queued"));
    assert!(slow.is_open() && upstream.count("slow") == 1);
    told.status(202, &[], "");
    slow.abandoned().await;
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    client.until(&second, "completed").await;
}
