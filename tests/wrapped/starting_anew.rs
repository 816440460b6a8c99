//! A client whose session the server has ended opens another one on the same channel.

use serde_json::{Value, json};

use crate::kit::{Children, Script, Upstream, Wrapped};

/// Makes the server forget its sessions, and the client notice.
async fn lost(client: &mut Wrapped, upstream: &Upstream) {
    upstream.forget_sessions();
    for _ in 0..2 {
        let refused = client.request("tools/list", json!({})).await;
        let why = refused["error"]["message"].as_str().unwrap();
        assert!(why.contains("start a new one with initialize"), "{why}");
    }
}

async fn create(client: &mut Wrapped, tool: &str) -> Value {
    let created = client.request("tools/call", json!({ "name": tool, "task": {} })).await;
    json!({ "taskId": created["result"]["task"]["taskId"] })
}

#[tokio::test]
async fn after_the_servers_session_has_ended_initialize_opens_a_new_one() {
    let upstream = Upstream::json().await;
    let mut client = Wrapped::connect(&["--upstream", &upstream.url()]).await;
    lost(&mut client, &upstream).await;
    let answer = client.initialize().await;
    assert!(answer["result"]["capabilities"].is_object(), "{answer}");
    assert!(client.request("ping", json!({})).await["result"].is_object());
    client.close();
    assert_eq!(client.end().await.0, Some(0));
    assert_eq!(upstream.count("initialize"), 2);
}

#[tokio::test]
async fn after_a_400_that_speaks_of_an_unknown_session_initialize_opens_a_new_one() {
    let upstream = Upstream::json().await;
    upstream.hold("slow");
    let mut client = Wrapped::connect(&["--upstream", &upstream.url()]).await;
    let id = client.ask("tools/call", json!({ "name": "slow" })).await;
    upstream.held("slow").await.status(400, &[("content-type", "text/plain")], "Invalid or missing session ID");
    let refused = client.until(|message| message["id"] == id).await;
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("start a new one with initialize"), "{why}");
    let answer = client.initialize().await;
    assert!(answer["result"]["capabilities"].is_object(), "{answer}");
    assert_eq!(upstream.count("initialize"), 2);
}

#[tokio::test]
async fn tasks_of_the_session_that_has_ended_are_collected_in_the_new_one() {
    let upstream = Upstream::json().await;
    upstream.hold("slow");
    let mut client = Wrapped::connect(&["--upstream", &upstream.url()]).await;
    let (done, running) = (create(&mut client, "echo").await, create(&mut client, "slow").await);
    client.request("tasks/result", done.clone()).await;
    let _never_answered = upstream.held("slow").await;
    lost(&mut client, &upstream).await;
    client.initialize().await;
    let collected = client.request("tasks/result", done).await;
    assert!(collected["result"]["content"].is_array(), "{collected}");
    // A request that runs in an ended session is never answered.
    let failed = client.request("tasks/result", running).await;
    assert!(failed["error"]["message"].as_str().unwrap().contains("has ended the session"), "{failed}");
    let listed = client.request("tasks/list", json!({})).await;
    assert_eq!(listed["result"]["tasks"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn while_the_server_is_away_initialize_is_refused_and_tasks_are_kept() {
    let upstream = Upstream::json().await;
    let mut client = Wrapped::connect(&["--upstream", &upstream.url()]).await;
    let task = create(&mut client, "echo").await;
    client.request("tasks/result", task.clone()).await;
    lost(&mut client, &upstream).await;
    upstream.stop().await;
    let refused = client.initialize_alone().await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("cannot be reached"), "{refused}");
    upstream.start_again().await;
    assert!(client.initialize().await["result"].is_object());
    assert!(client.request("tasks/result", task).await["result"]["content"].is_array());
}

#[tokio::test]
async fn a_process_that_has_died_is_started_again_while_tasks_are_kept() {
    let children = Children::new(Script::default());
    let mut client = Wrapped::connect(&[&["--"], &children.command()[..]].concat()).await;
    let task = create(&mut client, "pid").await;
    let first = client.request("tasks/result", task.clone()).await["result"]["content"][0]["text"].clone();
    client.request("tools/call", json!({ "name": "die" })).await;
    children.only().await.gone().await;
    assert!(client.initialize().await["result"].is_object());
    let second = client.request("tools/call", json!({ "name": "pid" })).await["result"]["content"][0]["text"].clone();
    assert_ne!(first, second);
    assert_eq!(client.request("tasks/result", task).await["result"]["content"][0]["text"], first);
    client.close();
    assert_eq!(client.end().await.0, Some(0));
}
