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

/// Returns the ttl of a task that runs.
async fn ttl_for(client: &Client, tool: &str, task: Value) -> Value {
    let created = client.create(tool, task).await;
    let id = created["taskId"].as_str().unwrap();
    assert_eq!(client.get(id).await["ttl"], created["ttl"]);
    created["ttl"].clone()
}

#[tokio::test]
async fn a_ttl_is_honoured_between_its_bounds_and_reported_as_applied() {
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
        // An integer, whatever the client asked for.
        (json!({ "ttl": 600_000.4 }), 600_001),
    ] {
        assert_eq!(ttl_for(&client, "slow", asked.clone()).await, json!(given), "{asked}");
    }
}

#[tokio::test]
async fn the_defaults_keep_a_task_longer_than_its_call_may_run() {
    let (_upstream, _gate, client) = start("").await;
    let hour = 3_600_000;
    assert!(ttl_for(&client, "slow", json!({ "ttl": 60_000 })).await.as_u64().unwrap() > hour);
    assert_eq!(ttl_for(&client, "slow", json!({ "ttl": 1e12 })).await, json!(24 * hour));
}

#[tokio::test]
async fn each_tool_has_the_ttl_of_its_pattern() {
    let toml = "[tasks]\ntimeout = \"1s\"\npoll_interval = \"1s\"\n[[upstream]]\n[upstream.tools.\"slow_*\"]\nttl = \"30m\"\nmax_ttl = \"40m\"";
    let (_upstream, _gate, client) = start(toml).await;
    assert_eq!(ttl_for(&client, "slow_one", json!({})).await, 1_800_000);
    assert_eq!(ttl_for(&client, "slow_one", json!({ "ttl": 1e9 })).await, 2_400_000);
    assert_eq!(client.create("slow", json!({})).await["ttl"], 900_000);
}

#[tokio::test]
async fn a_task_is_found_until_it_expires_and_then_looks_unknown() {
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
    let (_upstream, _gate, client) =
        start(&format!("{}\nmax_tasks = 1\nmax_tasks_per_owner = 1", SHORT.replace("300ms", "3s"))).await;
    client.create_id("echo").await;
    let params = json!({ "name": "echo", "task": {} });
    assert!(client.request("tools/call", params.clone()).await["error"].is_object());
    eventually(async || client.request("tools/call", params.clone()).await.get("result").cloned()).await;
}

#[tokio::test]
async fn no_task_is_lost_before_its_ttl_however_many_there_are() {
    let (_upstream, _gate, client) = start("[tasks]\nmax_tasks_per_owner = 5000").await;
    let mut ids = Vec::new();
    for _ in 0..1000 {
        ids.push(client.create_id("echo").await);
    }
    // Many reads of a few, which a cache would take for a reason to evict the others.
    for _ in 0..200 {
        client.get(&ids[0]).await;
    }
    for id in &ids {
        client.get(id).await;
    }
    assert_eq!(client.list().await.len(), 1000);
}

#[tokio::test]
async fn an_ended_task_is_kept_for_the_ttl_that_its_client_asked_for_and_says_so() {
    let (upstream, _gate, client) = start("[tasks]\npoll_interval = \"1s\"").await;
    let hour = 3_600_000;
    let mut stream = client.get_stream().await;
    for (asked, kept) in
        [(json!({ "ttl": 60_000 }), 60_000), (json!({ "ttl": 1 }), 10_000), (json!({ "ttl": 0 }), 10_000)]
    {
        let before = Instant::now();
        let task = client.create("slow", asked).await;
        assert_eq!(task["ttl"], hour + 10_000, "while it runs it has time for its call and for the client");
        let id = task["taskId"].as_str().unwrap();
        if kept == 60_000 {
            upstream.held("slow").await.result(r#"{"content":[]}"#);
        } else {
            assert_ne!(client.cancel(id).await["ttl"], task["ttl"], "the answer tells what holds from now on");
        }
        // In notifications, `tasks/get` and `tasks/list` it is the same.
        let told = stream.message().await["params"].take();
        let ttl = told["ttl"].as_u64().unwrap();
        // One more, as both moments are told in whole milliseconds.
        let ran = u64::try_from(before.elapsed().as_millis()).unwrap() + 1;
        assert!((kept..=kept + ran).contains(&ttl), "{ttl} after {ran} ms");
        assert_eq!(client.get(id).await, told);
        assert!(client.ask("tasks/list", json!({})).await["tasks"].as_array().unwrap().contains(&told));
    }
}

#[tokio::test]
async fn a_task_whose_client_asked_for_no_ttl_is_kept_for_the_one_reported_at_creation() {
    let (_upstream, _gate, client) = start("").await;
    let task = client.create("echo", json!({})).await;
    let ended = client.until(task["taskId"].as_str().unwrap(), "completed").await;
    assert_eq!(ended["ttl"], task["ttl"]);
    // Where the configured ttl is more than what is left of that, it counts from the end.
    let (upstream, _gate, client) = start("[tasks]\nttl = \"1m\"\ntimeout = \"50s\"\npoll_interval = \"1s\"").await;
    let before = Instant::now();
    let task = client.create("slow", json!({})).await;
    assert_eq!(task["ttl"], 60_000);
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    let ended = client.until(task["taskId"].as_str().unwrap(), "completed").await;
    let ran = u64::try_from(before.elapsed().as_millis()).unwrap() + 1;
    assert!((60_000..=60_000 + ran).contains(&ended["ttl"].as_u64().unwrap()), "{ended} after {ran} ms");
}

#[tokio::test]
async fn a_client_of_many_quick_tasks_with_a_short_ttl_is_not_locked_out() {
    // The defaults but for the number of tasks, and ten polls take five seconds and not twenty. Eight tasks are made
    // well before the first of them expires.
    let (_upstream, _gate, client) = start("[tasks]\nmax_tasks_per_owner = 8\npoll_interval = \"500ms\"").await;
    let call = json!({ "name": "echo", "task": { "ttl": 1000 } });
    for _ in 0..8 {
        let task = client.ask("tools/call", call.clone()).await["task"].take();
        assert!(client.collect(task["taskId"].as_str().unwrap()).await["result"].is_object());
    }
    let (_, message) = client.error("tools/call", call.clone()).await;
    assert!(message.contains("max_tasks_per_owner = 8"), "{message}");
    eventually(async || client.request("tools/call", call.clone()).await.get("result").cloned()).await;
}

/// One call of each owner at a time, of tools with timeouts of their own.
const ONE: &str = "[tasks]\nmax_running_per_owner = 1\npoll_interval = \"300ms\"\n[[upstream]]\n\
    [upstream.tools.first]\ntimeout = \"500ms\"\n[upstream.tools.brief]\ntimeout = \"100ms\"\n\
    [upstream.tools.second]\ntimeout = \"4s\"\n";

#[tokio::test]
async fn the_timeout_of_a_queued_call_counts_from_its_turn() {
    let (upstream, _gate, client) = start(ONE).await;
    let before = Instant::now();
    client.create_id("first").await;
    let task = client.create("second", json!({ "ttl": 1 })).await;
    assert_eq!(task["ttl"], 2 * 4000 + 3000, "it may wait for as long as it may run");
    let id = task["taskId"].as_str().unwrap();
    // Some of it has passed when the first call reaches its own timeout.
    let _first = upstream.held("first").await;
    let _second = upstream.held("second").await;
    let failed = client.until(id, "failed").await;
    let ran = before.elapsed();
    assert!(ran >= Duration::from_millis(4500), "{ran:?}");
    assert_eq!(failed["statusMessage"], "timeout = 4s is over and the call was cancelled");
}

#[tokio::test]
async fn a_task_queued_until_it_can_no_longer_finish_fails_and_says_why() {
    let (upstream, _gate, client) = start(&format!("{ONE}[upstream.tools.slow]\ntimeout = \"1h\"")).await;
    let running = client.create_id("slow").await;
    let _running = upstream.held("slow").await;
    let queued = client.create("brief", json!({ "ttl": 1 })).await;
    let id = queued["taskId"].as_str().unwrap();
    let response = client.stream("tasks/result", json!({ "taskId": id })).message().await;
    let message = response["error"]["message"].as_str().unwrap();
    for part in ["limit reached: ", "waited for its turn for 100ms", "timeout = 100ms", "longer ttl"] {
        assert!(message.contains(part), "no {part} in {message}");
    }
    let task = client.get(id).await;
    assert_eq!((status_of(&task), task["statusMessage"].as_str()), ("failed", Some(message)));
    assert_eq!(upstream.count("brief"), 0);
    assert_eq!(status_of(&client.get(&running).await), "working");
}
