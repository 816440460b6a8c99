//! taskgate makes tasks of calls of a modern server that has none.

use serde_json::json;

use crate::{
    client::{Modern, TASKS},
    kit::{Gate, Upstream, eventually, soon},
};

const SOON: &str = "[tasks]\ntask_after = \"50ms\"\n";

#[tokio::test]
async fn a_call_that_takes_long_is_adopted_shows_its_progress_and_ends_with_the_servers_own_result() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, SOON).await;
    let client = Modern::with_tasks(&gate.url);
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let slow = upstream.held("slow").await.sse();
    let task = soon(calling).await.unwrap();
    assert_eq!(task["resultType"], "task");
    let id = task["taskId"].as_str().unwrap();
    let token = slow.seen.json()["params"]["_meta"]["progressToken"].clone();
    let progress = json!({ "progressToken": token, "progress": 1, "message": "half done" });
    slow.notify("notifications/progress", progress).await;
    eventually(async || Some(client.get(id).await).filter(|task| task["statusMessage"] == "1: half done")).await;
    slow.result(r#"{"resultType":"complete","content":[],"x":1}"#).await;
    let ended = client.until(id, "completed").await;
    assert_eq!(ended["result"], json!({ "resultType": "complete", "content": [], "x": 1 }));
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_task_has_a_result_of_an_extensions_type_as_it_is_and_fails_with_one_that_is_a_task() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::able(&gate.url, json!({ "extensions": { TASKS: {}, "com.example/x": {} } }));
    for (result, status) in [
        (json!({ "resultType": "com.example/x", "v": 1 }), "completed"),
        (json!({ "resultType": "task", "taskId": "theirs" }), "failed"),
    ] {
        let task = client.call("slow").await;
        upstream.held("slow").await.result(&result.to_string());
        let ended = client.until(task["taskId"].as_str().unwrap(), status).await;
        assert_eq!(ended["result"] == result, status == "completed", "{ended}");
    }
}

#[tokio::test]
async fn a_task_at_once_goes_up_with_its_headers_and_cancelling_it_closes_the_request() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await;
    let held = upstream.held("slow").await;
    assert_eq!((held.seen.header("mcp-method"), held.seen.header("mcp-name")), ("tools/call", "slow"));
    client.result("tasks/cancel", json!({ "taskId": task["taskId"] })).await;
    held.abandoned().await;
    client.until(task["taskId"].as_str().unwrap(), "cancelled").await;
    assert_eq!(upstream.count("notifications/cancelled"), 0);
}

#[tokio::test]
async fn a_task_whose_call_gives_an_error_fails_with_it() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await;
    let held = upstream.held("slow").await;
    let body = held.response(r#""error":{"code":-32602,"message":"no"}"#);
    held.status(400, &[("content-type", "application/json")], &body);
    let ended = client.until(task["taskId"].as_str().unwrap(), "failed").await;
    assert_eq!(ended["error"], json!({ "code": -32602, "message": "no" }));
}

#[tokio::test]
async fn tasks_are_there_while_the_server_is_not() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("echo").await;
    let id = task["taskId"].as_str().unwrap();
    client.until(id, "completed").await;
    upstream.stop().await;
    assert_eq!(client.get(id).await["status"], "completed");
}
