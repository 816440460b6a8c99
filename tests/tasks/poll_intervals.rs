//! What clients are told of the time: when to poll, and how long calls usually take.

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Upstream, eventually};

const RESULT: &str = r#"{"content":[]}"#;

async fn house(toml: &str) -> (Upstream, Gate, Client) {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, toml).await;
    let client = Client::connect(&gate.url).await;
    (upstream, gate, client)
}

/// Has the tool give so many results.
async fn run(upstream: &Upstream, client: &Client, calls: usize) {
    for _ in 0..calls {
        let id = client.create_id("slow").await;
        upstream.held("slow").await.result(RESULT);
        client.until(&id, "completed").await;
    }
}

fn interval(task: &Value) -> u64 {
    task["pollInterval"].as_u64().unwrap()
}

#[tokio::test]
async fn a_task_says_how_long_calls_of_its_tool_usually_take_once_that_is_known() {
    let (upstream, _gate, client) = house("[tasks]\nimmediate_response = \"Started.\"").await;
    let first = client.create("slow", json!({})).await;
    assert_eq!((interval(&first), first.get("statusMessage")), (500, None), "{first}");
    upstream.held("slow").await.result(RESULT);
    let ended = client.until(first["taskId"].as_str().unwrap(), "completed").await;
    assert_eq!((interval(&ended), ended.get("statusMessage")), (2000, None), "{ended}");
    run(&upstream, &client, 3).await;

    let created = client.ask("tools/call", json!({ "name": "slow", "task": {} })).await;
    let text = created["_meta"]["io.modelcontextprotocol/model-immediate-response"].as_str().unwrap();
    assert!(text.starts_with("Started. Usually done "), "{text}");
    let told = |task: &Value| task["statusMessage"].as_str().is_some_and(|text| text.starts_with("Usually done "));
    assert!(told(&created["task"]), "{created}");
    let task = client.get(created["task"]["taskId"].as_str().unwrap()).await;
    assert!(told(&task) && (500..=30_000).contains(&interval(&task)), "{task}");
    assert!(client.list().await.len() == 5);
    let listed = client.ask("tasks/list", json!({})).await["tasks"].take();
    assert!(told(listed.as_array().unwrap().last().unwrap()), "{listed}");
}

#[tokio::test]
async fn with_a_fixed_interval_nothing_is_said_of_the_time() {
    let toml = "[tasks]\npoll_interval = \"7s\"\nimmediate_response = \"Started.\"";
    let (upstream, _gate, client) = house(toml).await;
    run(&upstream, &client, 5).await;
    let created = client.ask("tools/call", json!({ "name": "slow", "task": {} })).await;
    let meta = json!({ "io.modelcontextprotocol/model-immediate-response": "Started." });
    assert_eq!((interval(&created["task"]), &created["_meta"]), (7000, &meta));
    let task = client.get(created["task"]["taskId"].as_str().unwrap()).await;
    assert_eq!((interval(&task), task.get("statusMessage")), (7000, None), "{task}");
}

#[tokio::test]
async fn the_bounds_of_a_tool_hold_for_its_tasks() {
    let toml = "[[upstream]]\n[upstream.tools.slow]\nmin_poll_interval = \"3s\"\nmax_poll_interval = \"3s\"";
    let (_upstream, _gate, client) = house(toml).await;
    let task = client.create("slow", json!({})).await;
    assert_eq!(interval(&task), 3000);
    assert_eq!(interval(&client.get(task["taskId"].as_str().unwrap()).await), 3000);
}

#[tokio::test]
async fn a_client_that_uses_up_its_rate_is_told_to_wait_longer_before_it_is_refused() {
    let (_upstream, _gate, client) = house("[rate]\ntask_methods = \"10/h\"").await;
    let id = client.create_id("slow").await;
    assert!(interval(&client.get(&id).await) <= 1000);
    for _ in 0..7 {
        client.get(&id).await;
    }
    assert_eq!(interval(&client.get(&id).await), 30_000, "the ninth");
}

#[tokio::test]
async fn a_call_that_waits_for_its_turn_is_polled_ever_more_seldom() {
    let (upstream, _gate, client) = house("[tasks]\nmin_poll_interval = \"10ms\"\nmax_running = 1").await;
    let running = client.create_id("slow").await;
    let _slow = upstream.held("slow").await;
    let queued = client.create_id("slow").await;
    // The longer it waits, the longer the interval; it has no time to tell.
    let longer = async || Some(client.get(&queued).await).filter(|task| interval(task) > 20);
    let task = eventually(longer).await;
    assert!(task["statusMessage"].as_str().unwrap().starts_with("Queued:"), "{task}");
    client.cancel(&running).await;
}
