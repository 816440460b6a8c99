//! What a client hears of its tasks without polling: progress, log messages, changes of status.

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Sse, Stream, Upstream};

const RELATED: &str = "io.modelcontextprotocol/related-task";

struct House {
    upstream: Upstream,
    gate: Gate,
    client: Client,
}

async fn house(toml: &str) -> House {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, toml).await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await;
    House { upstream, gate, client }
}

impl House {
    /// Creates a task whose client wants progress under the token "t".
    async fn task(&self) -> (String, Sse) {
        let params = json!({ "name": "slow", "task": {}, "_meta": { "progressToken": "t" } });
        let created = self.client.ask("tools/call", params).await;
        let id = created["task"]["taskId"].as_str().unwrap().to_owned();
        (id, self.upstream.held("slow").await.sse())
    }

    async fn waiting(&self, id: &str) -> Stream {
        let mut waiting = self.client.stream("tasks/result", json!({ "taskId": id }));
        waiting.head().await;
        waiting
    }
}

/// Returns what came until the message with this method, that one included.
async fn until(stream: &mut Stream, last: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        all.push(stream.message().await);
        if all.last().is_some_and(&last) {
            return all;
        }
    }
}

fn progress(n: u32, id: &str) -> Value {
    let params = json!({ "progressToken": "t", "progress": n, "_meta": { RELATED: { "taskId": id } } });
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
}

#[tokio::test]
async fn progress_comes_under_the_clients_token_on_the_get_stream_and_names_the_task() {
    let house = house("").await;
    let mut listener = house.client.get_stream().await;
    let (id, slow) = house.task().await;
    let mut waiting = house.waiting(&id).await;
    slow.progress(1).await;
    slow.progress(2).await;
    assert_eq!(listener.message().await, progress(1, &id));
    assert_eq!(listener.message().await, progress(2, &id));
    slow.result(r#"{"content":[]}"#).await;
    // On one stream only.
    assert!(waiting.message().await["result"].is_object());
}

#[tokio::test]
async fn progress_comes_on_the_stream_that_waits_for_the_result_where_no_get_stream_is_open() {
    let house = house("").await;
    let (id, slow) = house.task().await;
    let mut waiting = house.waiting(&id).await;
    slow.progress(1).await;
    assert_eq!(waiting.message().await, progress(1, &id));
    slow.result(r#"{"content":[]}"#).await;
    assert!(waiting.message().await["result"].is_object());
    assert_eq!(waiting.next().await, None);
}

#[tokio::test]
async fn progress_that_does_not_grow_is_not_passed_on() {
    let house = house("").await;
    let mut listener = house.client.get_stream().await;
    let (id, slow) = house.task().await;
    for n in [1, 3, 3, 2, 4] {
        slow.progress(n).await;
    }
    for n in [1, 3, 4] {
        assert_eq!(listener.message().await, progress(n, &id));
    }
}

#[tokio::test]
async fn a_client_that_asked_for_no_progress_gets_none_and_sees_it_in_the_task() {
    let house = house("").await;
    let mut listener = house.client.get_stream().await;
    let id = house.client.create_id("slow").await;
    let slow = house.upstream.held("slow").await.sse();
    slow.progress(7).await;
    let task = house.client.until_task(&id, |task| task["statusMessage"] == "7").await;
    assert!(task["lastUpdatedAt"].as_str().unwrap() >= task["createdAt"].as_str().unwrap());
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(listener.message().await["method"], "notifications/tasks/status");
}

#[tokio::test]
async fn no_progress_comes_after_the_end_of_the_task() {
    let house = house("").await;
    let mut listener = house.client.get_stream().await;
    for round in 0..20 {
        let (id, slow) = house.task().await;
        for n in 1..50 {
            slow.progress(n).await;
        }
        if round % 2 == 0 {
            house.client.cancel(&id).await;
        } else {
            slow.result(r#"{"content":[]}"#).await;
            house.client.until(&id, "completed").await;
        }
        let ended = until(&mut listener, |message| message["method"] == "notifications/tasks/status").await;
        assert_eq!(ended.last().unwrap()["params"]["taskId"], json!(id));
    }
    // A late message would come before this.
    let (_, slow) = house.task().await;
    slow.notify("notifications/last", json!({})).await;
    let rest = until(&mut listener, |message| message["method"] == "notifications/last").await;
    assert_eq!(rest.len(), 1, "{rest:?}");
}

#[tokio::test]
async fn the_last_progress_of_a_call_comes_before_its_end() {
    let house = house("").await;
    let mut listener = house.client.get_stream().await;
    for _ in 0..20 {
        let (id, slow) = house.task().await;
        slow.progress(1).await;
        slow.result(r#"{"content":[]}"#).await;
        assert_eq!(listener.message().await, progress(1, &id));
        assert_eq!(listener.message().await["params"]["status"], "completed");
    }
}

#[tokio::test]
async fn log_messages_of_a_call_name_its_task_on_the_stream_that_waits_for_the_result_too() {
    let house = house("").await;
    let (id, slow) = house.task().await;
    let mut waiting = house.waiting(&id).await;
    slow.notify("notifications/message", json!({ "level": "info", "data": "x" })).await;
    let related = json!({ RELATED: { "taskId": id } });
    assert_eq!(waiting.message().await["params"], json!({ "level": "info", "data": "x", "_meta": related }));
}

#[tokio::test]
async fn every_change_of_status_comes_on_the_get_stream_with_the_whole_task() {
    let house = house("").await;
    let mut listener = house.client.get_stream().await;
    let (id, slow) = house.task().await;
    slow.event(r#"{"jsonrpc":"2.0","id":"ask","method":"elicitation/create","params":{"message":"?"}}"#).await;
    let asking = listener.message().await;
    assert_eq!(asking["method"], "notifications/tasks/status");
    assert_eq!(asking["params"], house.client.get(&id).await, "no related-task metadata, and nothing left out");
    assert_eq!(asking["params"]["status"], "input_required");
    let question = listener.message().await;
    house.client.respond(&question["id"], json!({ "action": "decline" })).await;
    assert_eq!(listener.message().await["params"]["status"], "working");
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(listener.message().await["params"]["status"], "completed");
    let (cancelled, _slow) = house.task().await;
    house.client.cancel(&cancelled).await;
    let told = listener.message().await;
    assert_eq!((&told["params"]["status"], &told["params"]["taskId"]), (&json!("cancelled"), &json!(cancelled)));
}

#[tokio::test]
async fn a_change_of_status_while_the_get_stream_is_broken_comes_when_it_is_back() {
    let house = house("").await;
    let mut listener = house.client.get_stream().await;
    let (id, slow) = house.task().await;
    slow.progress(1).await;
    let seen = listener.next().await.unwrap();
    drop(listener);
    slow.result(r#"{"content":[]}"#).await;
    house.client.until(&id, "completed").await;
    let mut resumed = house.client.with("last-event-id", seen.id.as_deref().unwrap()).get_stream().await;
    assert_eq!(resumed.message().await["params"]["status"], "completed");
}

#[tokio::test]
async fn status_notifications_can_be_switched_off() {
    let house = house("[[upstream]]\nstatus_notifications = false").await;
    let mut listener = house.client.get_stream().await;
    let (id, slow) = house.task().await;
    slow.result(r#"{"content":[]}"#).await;
    house.client.until(&id, "completed").await;
    let (_, slow) = house.task().await;
    slow.notify("notifications/x", json!({})).await;
    assert_eq!(listener.message().await["method"], "notifications/x");
}

#[tokio::test]
async fn another_session_hears_nothing_of_a_task() {
    let house = house("").await;
    let stranger = Client::connect(&house.gate.url).await;
    let mut strangers = stranger.get_stream().await;
    let mut listener = house.client.get_stream().await;
    let (id, slow) = house.task().await;
    slow.progress(1).await;
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(listener.message().await, progress(1, &id));
    assert_eq!(listener.message().await["params"]["status"], "completed");
    assert_eq!(stranger.delete().await.status, 200);
    assert_eq!(strangers.next().await, None);
}
