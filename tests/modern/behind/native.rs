//! Servers that declare the tasks extension themselves.

use serde_json::{Value, json};

use crate::{
    client::{Modern, TASKS},
    kit::{Gate, Upstream, soon},
};

const CREATED: &str = r#"{"resultType":"task","taskId":"theirs-1","status":"working","createdAt":"2026-11-22T00:00:00Z","lastUpdatedAt":"2026-11-22T00:00:00Z","ttlMs":1000}"#;

async fn house(native: &str, rest: &str) -> (Upstream, Gate, Modern) {
    let upstream = Upstream::modern(json!({ "tools": {}, "extensions": { TASKS: { "a": 1 } } })).await;
    let gate = Gate::with(&upstream, &format!("[tasks]\nnative = {native:?}\ntask_after = \"20ms\"\n{rest}")).await;
    let client = Modern::with_tasks(&gate.url);
    (upstream, gate, client)
}

/// Calls a tool that the server answers with a task of its own, later than taskgate would make one.
async fn created(upstream: &Upstream, client: &Modern) -> (Value, Value) {
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let held = upstream.held("slow").await;
    let declared = held.seen.json()["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    held.result(CREATED);
    (soon(calling).await.unwrap(), declared)
}

#[tokio::test]
async fn with_keep_and_auto_the_server_makes_the_tasks_and_answers_for_them() {
    for native in ["keep", "auto"] {
        let (upstream, _gate, client) = house(native, "").await;
        let (task, declared) = created(&upstream, &client).await;
        assert_eq!(declared, client.capabilities, "{native}");
        assert_eq!(task, serde_json::from_str::<Value>(CREATED).unwrap(), "{native}");
        let discovered = client.result("server/discover", json!({})).await;
        assert_eq!(discovered["capabilities"]["extensions"][TASKS], json!({ "a": 1 }), "{native}");
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let asking = tokio::spawn({
                let client = client.clone();
                async move { client.result(method, json!({ "taskId": "theirs-1", "inputResponses": {} })).await }
            });
            let held = upstream.held(method).await;
            assert_eq!(held.seen.json()["params"]["taskId"], "theirs-1");
            held.result(r#"{"resultType":"complete","x":1}"#);
            assert_eq!(soon(asking).await.unwrap()["x"], 1, "{native}");
        }
    }
}

#[tokio::test]
async fn with_auto_a_tool_that_is_always_a_task_has_tasks_of_taskgate_beside_those_of_the_server() {
    let (upstream, _gate, client) =
        house("auto", "[[upstream]]\n[upstream.tools.\"slow\"]\nsupport = \"required\"\n").await;
    let task = client.call("slow").await;
    let held = upstream.held("slow").await;
    let declared = held.seen.json()["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone();
    assert_eq!(declared, json!({ "extensions": {} }), "the server is not asked for a task of its own");
    held.result(r#"{"resultType":"complete","content":[]}"#);
    client.until(task["taskId"].as_str().unwrap(), "completed").await;
    assert_eq!(upstream.count("tasks/get"), 0);
}

#[tokio::test]
async fn a_server_that_has_not_declared_the_extension_is_not_told_of_it_as_one_that_has_may_take_its_place() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    Modern::with_tasks(&gate.url).call("echo").await;
    let call = upstream.wait_for(|seen| seen.rpc() == "tools/call").await;
    let declared = call.json()["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone();
    assert_eq!(declared, json!({ "extensions": {} }));
}

#[tokio::test]
async fn with_replace_the_server_is_not_told_of_the_extension_and_taskgate_makes_the_tasks() {
    let (upstream, _gate, client) = house("replace", "").await;
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let held = upstream.held("slow").await;
    let declared = held.seen.json()["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone();
    assert_eq!(declared, json!({ "extensions": {} }));
    let task = soon(calling).await.unwrap();
    assert_eq!(task["resultType"], "task");
    let id = task["taskId"].as_str().unwrap();
    assert_eq!(client.get(id).await["status"], "working");
    held.result(r#"{"resultType":"complete","content":[]}"#);
    client.until(id, "completed").await;
    let unknown = client.refusal("tasks/get", json!({ "taskId": "theirs-1" })).await;
    assert_eq!((unknown.1, upstream.count("tasks/get")), (-32602, 0));
}

#[tokio::test]
async fn a_task_of_the_server_for_a_call_that_is_a_task_fails_it() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await;
    upstream.held("slow").await.result(CREATED);
    let failed = client.until(task["taskId"].as_str().unwrap(), "failed").await;
    assert!(failed["error"]["message"].as_str().unwrap().contains("task"), "{failed}");
}
