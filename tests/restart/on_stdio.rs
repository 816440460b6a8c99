//! A client on stdin and stdout starts taskgate again on the same file.

use std::{fs, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::{Upstream, Wrapped};

/// `_meta` of each request of a client of revision 2026-07-28 that knows tasks.
fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    })
}

async fn create(client: &mut Wrapped, tool: &str) -> Value {
    let created = client.request("tools/call", json!({ "name": tool, "arguments": {}, "_meta": meta() })).await;
    assert_eq!(created["result"]["resultType"], "task", "{created}");
    created["result"]["taskId"].clone()
}

async fn get(client: &mut Wrapped, task: &Value) -> Value {
    client.request("tasks/get", json!({ "taskId": task, "_meta": meta() })).await
}

async fn until_completed(client: &mut Wrapped, task: &Value) -> Value {
    loop {
        let answer = get(client, task).await;
        if answer["result"]["status"] == "completed" {
            return answer["result"].clone();
        }
    }
}

fn start(folder: &Path, upstream: &Upstream) -> Wrapped {
    let [config, store] = ["config.toml", "store.db"].map(|file| folder.join(file));
    let tasks = "[upstream.tools.\"*\"]\ntask_after = \"0s\"\n";
    fs::write(&config, format!("[[upstream]]\nurl = \"{}\"\n{tasks}", upstream.url())).unwrap();
    Wrapped::start(&["--config", config.to_str().unwrap(), "--store", store.to_str().unwrap()])
}

#[tokio::test]
async fn tasks_of_a_client_without_a_session_on_stdio_are_found_by_its_next_taskgate_however_the_first_ended() {
    type End = fn(&mut Wrapped);
    let stdin_ends: End = Wrapped::close;
    for end in [stdin_ends, |client| client.signal(Signal::TERM), |client| client.signal(Signal::KILL)] {
        let (upstream, folder) = (Upstream::json().await, tempfile::tempdir().unwrap());
        let mut client = start(folder.path(), &upstream);
        let ended = create(&mut client, "echo").await;
        let result = until_completed(&mut client, &ended).await;
        let running = create(&mut client, "slow").await;
        upstream.held("slow").await;
        end(&mut client);
        client.end().await;
        let mut client = start(folder.path(), &upstream);
        assert_eq!(until_completed(&mut client, &ended).await, result);
        let failed = get(&mut client, &running).await;
        assert_eq!(failed["result"]["status"], "failed", "{failed}");
        assert_eq!(upstream.count("slow"), 1);
        client.close();
        client.end().await;
    }
}

#[tokio::test]
async fn tasks_of_a_session_on_stdio_end_with_it() {
    let (upstream, folder) = (Upstream::json().await, tempfile::tempdir().unwrap());
    let mut client = start(folder.path(), &upstream);
    client.initialize().await;
    let created = client.request("tools/call", json!({ "name": "echo", "task": {} })).await;
    let task = created["result"]["task"]["taskId"].clone();
    client.close();
    client.end().await;
    let mut client = start(folder.path(), &upstream);
    for answer in [get(&mut client, &task).await, {
        client.initialize().await;
        client.request("tasks/get", json!({ "taskId": task })).await
    }] {
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}
