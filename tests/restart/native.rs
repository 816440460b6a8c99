//! Servers with tasks of their own: a session goes on with both kinds of tasks.

use serde_json::json;

use crate::{
    House,
    kit::{Client, Options, Upstream, status_of},
};

#[tokio::test]
async fn a_session_with_both_kinds_of_tasks_goes_on_with_both() {
    let capabilities = json!({ "tools": {}, "tasks": { "list": {}, "requests": { "tools": { "call": {} } } } });
    let tools = json!([
        { "name": "theirs", "inputSchema": { "type": "object" }, "execution": { "taskSupport": "optional" } },
        { "name": "echo", "inputSchema": { "type": "object" } },
    ]);
    let options = Options { capabilities, tools, versions: vec!["2025-11-25"], ..Options::default() };
    let upstream = Upstream::start(options).await;
    let config = format!("[[upstream]]\nurl = \"{}\"\nnative = \"auto\"\n", upstream.url());
    let mut house = House::configured(&config, &[]).await;
    let client = Client::connect(&house.url).await;
    let ours = client.create_id("echo").await;
    client.until(&ours, "completed").await;
    house.restart().await;
    assert_eq!(status_of(&client.get(&ours).await), "completed");
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.ask("tools/call", json!({ "name": "theirs", "arguments": {}, "task": {} })).await }
    });
    let task = json!({ "taskId": "t-1", "status": "working", "ttl": null, "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z" });
    let held = upstream.held("theirs").await;
    assert!(held.seen.json()["params"]["task"].is_object(), "the server makes it");
    held.result(&json!({ "task": task }).to_string());
    assert_eq!(calling.await.unwrap()["task"]["taskId"], "t-1");
    let again = client.create_id("echo").await;
    client.until(&again, "completed").await;
    house.restart().await;
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.get("t-1").await }
    });
    upstream.held("tasks/get").await.result(&task.to_string());
    assert_eq!(asking.await.unwrap()["status"], "working");
    assert_eq!(status_of(&client.get(&again).await), "completed");
}
