//! Tasks in front of an old server, which knows nothing of them.

use serde_json::json;

use super::all;
use crate::kit::{Client, Seen, eventually, status_of, text_in};

const TEXT: &str = r#"{"content":[{"type":"text","text":"done"}]}"#;
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

#[tokio::test]
async fn a_call_becomes_a_task_that_is_polled_and_collected() {
    let (server, _gate, client) = all().await;
    let id = client.create_id("slow").await;
    let call = server.message("slow").await;
    assert_eq!(call.json()["params"].get("task"), None, "{call:?}");
    assert_eq!(status_of(&client.get(&id).await), "working");
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    server.answer(&call, TEXT).await;
    let result = waiting.message().await["result"].take();
    assert_eq!(text_in(&result), "done");
    assert_eq!(result["_meta"][RELATED_TASK], json!({ "taskId": id }));
    assert_eq!(status_of(&client.get(&id).await), "completed");
    assert_eq!(server.count("slow"), 1);
}

#[tokio::test]
async fn tasks_that_overlap_get_their_own_results_and_progress() {
    let (server, _gate, client) = all().await;
    let mut tasks = Vec::new();
    for n in 0..3 {
        let params = json!({ "name": format!("slow-{n}"), "task": {}, "_meta": { "progressToken": format!("t{n}") } });
        let task = client.ask("tools/call", params).await["task"]["taskId"].as_str().unwrap().to_owned();
        tasks.push((task, server.message(&format!("slow-{n}")).await));
    }
    for (n, (task, call)) in tasks.iter().enumerate().rev() {
        let token = call.json()["params"]["_meta"]["progressToken"].take();
        let progress = json!({ "progressToken": token, "progress": n, "total": 3, "message": "on it" });
        server.stream(1).notify("notifications/progress", progress).await;
        let message = format!("{n} of 3: on it");
        client.until_task(task, |task| task["statusMessage"] == message).await;
    }
    for (n, (task, call)) in tasks.iter().enumerate().rev() {
        server.answer(call, &TEXT.replace("done", &n.to_string())).await;
        client.until(task, "completed").await;
    }
    for (n, (task, _)) in tasks.iter().enumerate() {
        assert_eq!(text_in(&client.collect(task).await["result"]), n.to_string());
    }
}

#[tokio::test]
async fn cancelling_a_task_is_posted_under_the_id_of_the_call() {
    let (server, _gate, client) = all().await;
    let id = client.create_id("slow").await;
    let call = server.message("slow").await;
    assert_eq!(status_of(&client.cancel(&id).await), "cancelled");
    let cancelled = server.message("notifications/cancelled").await;
    assert_eq!(cancelled.json()["params"]["requestId"], call.json()["id"]);
    // A server that still answers changes nothing, and the session goes on.
    server.answer(&call, TEXT).await;
    client.ask("ping", json!({})).await;
    assert_eq!(status_of(&client.get(&id).await), "cancelled");
}

#[tokio::test]
async fn a_message_of_the_server_in_the_middle_of_a_task_names_the_task() {
    let (server, gate, _) = all().await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await;
    let mut listening = client.get_stream().await;
    let id = client.create_id("ask").await;
    let call = server.message("ask").await;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    server.stream(2).event(log).await;
    let message = listening.message().await;
    assert_eq!(message["method"], "notifications/message");
    assert_eq!(message["params"]["_meta"][RELATED_TASK], json!({ "taskId": id }));
    server.answer(&call, TEXT).await;
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn a_question_of_the_server_in_the_middle_of_a_task_is_asked_and_its_answer_posted() {
    let (server, gate, _) = all().await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await;
    let mut listening = client.get_stream().await;
    let id = client.create_id("ask").await;
    let call = server.message("ask").await;
    let question = r#"{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"Really?"}}"#;
    server.stream(2).event(question).await;
    let question = loop {
        let message = listening.message().await;
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    assert_eq!(question["params"]["_meta"][RELATED_TASK], json!({ "taskId": id }));
    client.until(&id, "input_required").await;
    assert_eq!(client.respond(&question["id"], json!({ "action": "decline" })).await, 202);
    let answered = |seen: &Seen| seen.json()["id"] == "q-1" && seen.json()["result"]["action"] == "decline";
    eventually(async || server.seen().into_iter().find(answered)).await;
    client.until(&id, "working").await;
    server.answer(&call, TEXT).await;
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn a_task_whose_post_is_refused_fails_with_status_and_text() {
    let (server, _gate, client) = all().await;
    server.hold("slow");
    let id = client.create_id("slow").await;
    server.held("slow").await.status(503, &[], "out for lunch");
    let task = client.until(&id, "failed").await;
    let message = task["statusMessage"].as_str().unwrap();
    assert!(message.contains("503") && message.contains("out for lunch"), "{message}");
    assert_eq!(server.count("slow"), 1);
}
