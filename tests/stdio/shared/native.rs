//! A shared server sees one client, so every session could reach its own tasks: they are hidden, whatever is
//! configured.

use serde_json::json;

use super::SHARED;
use crate::kit::{Children, Client, Script, text_in};

/// Has tasks of its own, for a tool that it lists with them, and reports on one.
const SERVER: Script = Script {
    setup: "",
    tools: r#"*'"method":"initialize"'*)
        reply "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"list":{},"requests":{"tools":{"call":{}}}}}}' ;;
    *'"method":"tools/list"'*)
        reply "$id" '{"tools":[{"name":"research","execution":{"taskSupport":"required"}}]}' ;;
    *'"name":"research"'*)
        echo '{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"theirs","status":"working"}}'
        echo '{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{}}'
        text "$id" done ;;"#,
    after: "",
};

#[tokio::test]
async fn a_shared_servers_own_tasks_are_hidden_and_no_task_method_reaches_it() {
    for native in ["auto", "replace"] {
        let children = Children::new(SERVER);
        let gate = children.gate(&format!("{SHARED}\nnative = \"{native}\"")).await;
        let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
        let child = children.only().await;
        let tasks = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        assert_eq!(ann.initialized["capabilities"]["tasks"], tasks);
        let tools = ann.ask("tools/list", json!({})).await;
        assert_eq!(tools["tools"][0]["execution"]["taskSupport"], "optional");
        let (mut to_ann, mut to_bob) = (ann.get_stream().await, bob.get_stream().await);
        let id = ann.create_id("research").await;
        ann.until(&id, "completed").await;
        assert!(!child.line("research").await.contains("\"task\""));
        // The status of the server's task is hidden; that of taskgate's task goes to its owner.
        assert_eq!(to_bob.message().await["method"], "notifications/prompts/list_changed");
        let told = [to_ann.message().await, to_ann.message().await].map(|message| message["method"].clone());
        assert!(
            told.contains(&json!("notifications/prompts/list_changed"))
                && told.contains(&json!("notifications/tasks/status"))
        );
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            for named in ["theirs", &id] {
                assert_eq!(bob.error(method, json!({ "taskId": named })).await.0, -32602, "{method}");
            }
        }
        assert_eq!((ann.list().await, bob.list().await), (vec![id], Vec::new()));
        // The last message is read after everything else.
        bob.ask("ping", json!({})).await;
        child.line("\"ping\"").await;
        assert!(!child.lines().join("\n").contains("\"tasks/"), "{:?}", child.lines());
    }
}

#[tokio::test]
async fn a_session_of_a_revision_without_tasks_reaches_no_task_of_a_shared_server() {
    let children = Children::new(SERVER);
    let gate = children.gate(SHARED).await;
    let client = Client::connect_as(&gate.url, "2025-06-18", json!({})).await;
    let child = children.only().await;
    for method in ["tasks/get", "tasks/result", "tasks/list", "tasks/cancel"] {
        assert_eq!(client.error(method, json!({ "taskId": "theirs" })).await.0, -32601, "{method}");
    }
    let mut stream = client.get_stream().await;
    assert_eq!(text_in(&client.ask("tools/call", json!({ "name": "research", "task": {} })).await), "done");
    assert!(!child.line("research").await.contains("\"task\""));
    assert_eq!(stream.message().await["method"], "notifications/prompts/list_changed");
    assert!(!child.lines().join("\n").contains("\"tasks/"), "{:?}", child.lines());
}
