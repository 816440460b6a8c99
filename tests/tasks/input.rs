//! Messages of the server that belong to a task carry its id, and the answers find their way back.

use serde_json::json;

use crate::kit::{Client, Gate, Upstream, status_of};

const RELATED: &str = "io.modelcontextprotocol/related-task";

#[tokio::test]
async fn a_server_request_of_a_task_comes_on_the_get_stream_and_names_the_task() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect(&gate.url).await;
    let mut listener = client.get_stream().await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    slow.event(r#"{"jsonrpc":"2.0","id":"ask","method":"elicitation/create","params":{"message":"?","x":95.50}}"#)
        .await;
    let event = listener.next().await.unwrap();
    assert_eq!(event.json()["params"]["_meta"], json!({ RELATED: { "taskId": id } }));
    assert!(event.data.contains(r#""x":95.50"#), "{event:?}");
    client.respond(&json!("ask"), json!({ "action": "accept", "content": {} })).await;
    upstream.wait_for(|seen| seen.json()["result"]["action"] == "accept").await;
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(status_of(&client.until(&id, "completed").await), "completed");
}

#[tokio::test]
async fn a_server_request_of_a_task_waits_for_the_get_stream_to_open() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect(&gate.url).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    slow.event(r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?"}}"#).await;
    let mut listener = client.get_stream().await;
    let request = listener.message().await;
    assert_eq!(request["params"], json!({ "message": "?", "_meta": { RELATED: { "taskId": id } } }));
}

#[tokio::test]
async fn a_notification_of_a_task_names_the_task_too() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect(&gate.url).await;
    let mut listener = client.get_stream().await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    slow.notify("notifications/message", json!({ "level": "info", "data": "x" })).await;
    slow.event(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#).await;
    let related = json!({ RELATED: { "taskId": id } });
    assert_eq!(listener.message().await["params"], json!({ "level": "info", "data": "x", "_meta": related }));
    assert_eq!(listener.message().await["params"], json!({ "_meta": related }));
}
