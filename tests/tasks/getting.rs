//! `tasks/get`: where a task stands.

use serde_json::json;

use crate::kit::{Client, Gate, Upstream, eventually, house, status_of};

#[tokio::test]
async fn tasks_get_answers_with_a_flat_task_and_all_required_members() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    let answer = client.answer("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(answer.header("content-type"), "application/json");
    let task = answer.json()["result"].take();
    assert_eq!(task["taskId"], json!(id));
    for member in ["createdAt", "lastUpdatedAt"] {
        let text = task[member].as_str().unwrap();
        assert!(text.len() >= 20 && text.ends_with('Z') && &text[10..11] == "T", "{text}");
    }
    assert!(task["ttl"].is_u64() && task["pollInterval"].is_u64(), "{task}");
    assert_eq!(task.get("_meta"), None);
    assert_eq!(task.get("task"), None);
}

#[tokio::test]
async fn a_task_goes_from_working_to_completed_and_stays_there() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let created = client.create("slow", json!({})).await;
    let id = created["taskId"].as_str().unwrap();
    let slow = upstream.held("slow").await;
    assert_eq!(status_of(&client.get(id).await), "working");
    // The clock has moved on, for the time of the update.
    let at = created["createdAt"].as_str().unwrap();
    eventually(async || Some(()).filter(|()| now().as_str() > at)).await;
    slow.result(r#"{"content":[]}"#);
    let task = client.until(id, "completed").await;
    assert_eq!(task["createdAt"], created["createdAt"]);
    assert!(task["lastUpdatedAt"].as_str() > task["createdAt"].as_str(), "{task}");
    let (code, _) = client.error("tasks/cancel", json!({ "taskId": id })).await;
    assert_eq!(code, -32602);
    assert_eq!(client.get(id).await, task);
}

fn now() -> String {
    humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string()
}

#[tokio::test]
async fn the_poll_interval_is_that_of_the_policy() {
    let upstream = Upstream::json().await;
    let toml = "[tasks]\npoll_interval = \"1500ms\"\n[[upstream]]\n[upstream.tools.\"ec*\"]\npoll_interval = \"250ms\"";
    let gate = Gate::with(&upstream, toml).await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(client.create("slow", json!({})).await["pollInterval"], 1500);
    let task = client.create("echo", json!({})).await;
    assert_eq!(task["pollInterval"], 250);
    assert_eq!(client.get(task["taskId"].as_str().unwrap()).await["pollInterval"], 250);
}

#[tokio::test]
async fn a_stray_task_member_and_meta_on_tasks_get_are_ignored() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    let (id, other) = (client.create_id("slow").await, client.create_id("slow").await);
    let meta = json!({ "io.modelcontextprotocol/related-task": { "taskId": other }, "progressToken": 7 });
    let params = json!({ "taskId": id, "task": { "ttl": 1 }, "_meta": meta });
    assert_eq!(client.ask("tasks/get", params.clone()).await["taskId"], json!(id));
    let cancelled = client.ask("tasks/cancel", params.clone()).await;
    assert_eq!((&cancelled["taskId"], &cancelled["status"]), (&json!(id), &json!("cancelled")));
    assert_eq!(status_of(&client.get(&other).await), "working");
    let response = client.request("tasks/result", params).await;
    assert!(response["error"].is_object(), "{response}");
    assert_eq!(client.list().await.len(), 2);
}

#[tokio::test]
async fn progress_of_the_call_shows_in_the_status_message() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let params = json!({ "name": "slow", "task": {}, "_meta": { "progressToken": "t" } });
    let task = client.ask("tools/call", params).await["task"].take();
    let id = task["taskId"].as_str().unwrap();
    let slow = upstream.held("slow").await.sse();
    let token = slow.seen.json()["params"]["_meta"]["progressToken"].take();
    let progress = json!({ "progressToken": token, "progress": 3, "total": 10, "message": "indexing" });
    slow.notify("notifications/progress", progress).await;
    let task = client.until_task(id, |task| !task["statusMessage"].is_null()).await;
    assert_eq!((status_of(&task), &task["statusMessage"]), ("working", &json!("3 of 10: indexing")));
}

#[tokio::test]
async fn unknown_foreign_and_malformed_ids_get_the_same_answer() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let mine = ann.create_id("slow").await;
    let strange = [
        mine.clone(),
        mine.to_uppercase(),
        mine.replace('-', ""),
        uuid::Uuid::new_v4().to_string(),
        "x".into(),
        String::new(),
    ];
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let mut answers = Vec::new();
        for id in &strange {
            answers.push(bob.error(method, json!({ "taskId": id })).await);
        }
        assert_eq!(answers[0].0, -32602);
        assert!(answers[0].1.contains("not found"), "{answers:?}");
        answers.dedup();
        assert_eq!(answers.len(), 1, "{method}: {answers:?}");
    }
    assert_eq!(status_of(&ann.get(&mine).await), "working");
}

#[tokio::test]
async fn a_task_id_that_is_missing_or_not_a_string_is_named() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        for params in [json!({}), json!({ "taskId": 7 }), json!({ "taskId": null }), json!({ "taskID": "x" })] {
            let (code, message) = client.error(method, params).await;
            assert_eq!(code, -32602);
            assert!(message.contains("params.taskId"), "{message}");
        }
    }
    assert_eq!(upstream.count("tasks/get"), 0);
}
