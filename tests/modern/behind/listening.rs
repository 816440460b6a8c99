//! `subscriptions/listen` goes through, and taskgate tells of its own tasks.

use serde_json::json;

use crate::{
    client::{Modern, TASKS},
    kit::{Gate, Options, Sse, Upstream, soon},
    limits::shows,
};

const ID: &str = "io.modelcontextprotocol/subscriptionId";

async fn notify(stream: &Sse, method: &str, mut params: serde_json::Value) {
    params["_meta"][ID] = stream.seen.json()["id"].clone();
    stream.notify(method, params).await;
}

#[tokio::test]
async fn a_subscription_goes_up_without_tasks_of_taskgate_and_both_tell_under_the_clients_id() {
    let upstream = Upstream::modern(json!({ "tools": { "listChanged": true } })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await["taskId"].clone();
    let slow = upstream.held("slow").await;
    let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["file:///a"], "taskIds": [task] });
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": filter }));
    let theirs = upstream.held("subscriptions/listen").await.sse();
    let wanted = theirs.seen.json()["params"]["notifications"].clone();
    assert_eq!(wanted, json!({ "toolsListChanged": true, "resourceSubscriptions": ["file:///a"] }));
    let honoured = json!({ "notifications": { "toolsListChanged": true } });
    notify(&theirs, "notifications/subscriptions/acknowledged", honoured).await;
    let acknowledged = stream.message().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({ "toolsListChanged": true, "taskIds": [task] }));
    let id = acknowledged["params"]["_meta"][ID].clone();
    assert_ne!(id, theirs.seen.json()["id"]);
    notify(&theirs, "notifications/tools/list_changed", json!({})).await;
    let changed = stream.message().await;
    assert_eq!(
        (&changed["method"], &changed["params"]["_meta"][ID]),
        (&json!("notifications/tools/list_changed"), &id)
    );
    slow.result(r#"{"resultType":"complete","content":[]}"#);
    let told = stream.message().await;
    assert_eq!((&told["method"], &told["params"]["status"]), (&json!("notifications/tasks"), &json!("completed")));
    assert_eq!(told["params"]["_meta"][ID], id);
    let theirs_id = theirs.seen.id();
    theirs.result(&format!(r#"{{"resultType":"complete","_meta":{{"{ID}":{theirs_id}}}}}"#)).await;
    let torn_down = stream.message().await;
    assert_eq!((&torn_down["method"], &torn_down["params"]["requestId"]), (&json!("notifications/cancelled"), &id));
    let end = stream.message().await;
    assert_eq!((&end["id"], &end["result"]["_meta"][ID]), (&id, &id));
}

#[tokio::test]
async fn a_subscription_to_tasks_of_taskgate_alone_does_not_reach_the_server() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await["taskId"].clone();
    let slow = upstream.held("slow").await;
    let mut stream =
        client.stream("subscriptions/listen", json!({ "notifications": { "taskIds": [task, "unknown"] } }));
    assert_eq!(stream.message().await["params"]["notifications"], json!({ "taskIds": [task] }));
    slow.result(r#"{"resultType":"complete","content":[]}"#);
    assert_eq!(stream.message().await["params"]["status"], "completed");
    assert_eq!(upstream.count("subscriptions/listen"), 0);
}

#[tokio::test]
async fn a_subscription_tells_of_tasks_of_taskgate_although_the_server_knows_no_subscriptions() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await["taskId"].clone();
    let slow = upstream.held("slow").await;
    let wanted = json!({ "taskIds": [task], "toolsListChanged": true });
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": wanted }));
    let theirs = upstream.held("subscriptions/listen").await;
    let unknown = theirs.response(r#""error":{"code":-32601,"message":"Method not found"}"#);
    theirs.status(404, &[("content-type", "application/json")], &unknown);
    assert_eq!(stream.message().await["params"]["notifications"], json!({ "taskIds": [task] }));
    slow.result(r#"{"resultType":"complete","content":[]}"#);
    assert_eq!(stream.message().await["params"]["status"], "completed");
}

#[tokio::test]
async fn a_client_that_closes_its_subscription_closes_the_one_at_the_server_and_a_stop_ends_it() {
    let upstream = Upstream::modern(json!({ "tools": { "listChanged": true } })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let params = json!({ "notifications": { "toolsListChanged": true } });
    let stream = client.stream("subscriptions/listen", params.clone());
    let theirs = upstream.held("subscriptions/listen").await;
    drop(stream);
    theirs.abandoned().await;
    let mut stream = client.stream("subscriptions/listen", params);
    let theirs = upstream.held("subscriptions/listen").await.sse();
    notify(&theirs, "notifications/subscriptions/acknowledged", json!({ "notifications": {} })).await;
    stream.message().await;
    // A second one, which the server has not acknowledged.
    let mut silent = client.stream("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    let _theirs = upstream.held("subscriptions/listen").await.sse();
    let stopping = tokio::spawn(gate.stop());
    assert_eq!(silent.message().await["method"], "notifications/subscriptions/acknowledged");
    for stream in [&mut stream, &mut silent] {
        assert_eq!(stream.message().await["method"], "notifications/cancelled");
        assert_eq!(stream.message().await["result"]["resultType"], "complete");
    }
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_subscription_is_acknowledged_once_and_tells_nothing_before_whatever_the_server_does() {
    let upstream = Upstream::modern(json!({ "tools": { "listChanged": true } })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    let theirs = upstream.held("subscriptions/listen").await.sse();
    let acknowledgement = "notifications/subscriptions/acknowledged";
    notify(&theirs, "notifications/tools/list_changed", json!({})).await;
    for _ in 0..2 {
        notify(&theirs, acknowledgement, json!({ "notifications": { "toolsListChanged": true } })).await;
    }
    notify(&theirs, "notifications/tools/list_changed", json!({})).await;
    theirs.result(r#"{"resultType":"complete"}"#).await;
    for method in [acknowledgement, "notifications/tools/list_changed", "notifications/cancelled"] {
        assert_eq!(stream.message().await["method"], method);
    }
    assert_eq!(stream.message().await["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_subscription_that_the_server_ends_unacknowledged_is_acknowledged_and_cancelled_first() {
    let upstream = Upstream::modern(json!({ "tools": { "listChanged": true } })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    upstream.held("subscriptions/listen").await.result(r#"{"resultType":"complete"}"#);
    assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(stream.message().await["method"], "notifications/cancelled");
    assert_eq!(stream.message().await["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_subscription_to_what_another_extension_tells_goes_up_without_tasks_of_taskgate() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await["taskId"].clone();
    let wanted = json!({ "taskIds": [task], "com.example/events": true });
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": wanted }));
    let theirs = upstream.held("subscriptions/listen").await.sse();
    let sent = theirs.seen.json()["params"]["notifications"].clone();
    assert_eq!(sent, json!({ "com.example/events": true }));
    notify(&theirs, "notifications/subscriptions/acknowledged", json!({ "notifications": sent })).await;
    let honoured = stream.message().await["params"]["notifications"].clone();
    assert_eq!(honoured, json!({ "com.example/events": true, "taskIds": [task] }));
}

#[tokio::test]
async fn with_replace_a_subscription_shows_nothing_of_the_servers_own_tasks() {
    let upstream = Upstream::modern(json!({ "tools": { "listChanged": true }, "extensions": { TASKS: {} } })).await;
    let gate = Gate::with(&upstream, "[tasks]\nnative = \"replace\"\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await["taskId"].clone();
    let slow = upstream.held("slow").await;
    let filter = json!({ "toolsListChanged": true, "taskIds": [task, "theirs"] });
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": filter }));
    let theirs = upstream.held("subscriptions/listen").await.sse();
    let sent = theirs.seen.json()["params"].clone();
    assert_eq!(sent["notifications"], json!({ "toolsListChanged": true }));
    assert_eq!(sent["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({ "extensions": {} }));
    let honoured = json!({ "notifications": { "toolsListChanged": true, "taskIds": ["theirs"] } });
    notify(&theirs, "notifications/subscriptions/acknowledged", honoured).await;
    let acknowledged = stream.message().await["params"]["notifications"].clone();
    assert_eq!(acknowledged, json!({ "toolsListChanged": true, "taskIds": [task] }));
    notify(&theirs, "notifications/tasks", json!({ "taskId": "theirs", "status": "working" })).await;
    notify(&theirs, "notifications/tools/list_changed", json!({})).await;
    assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
    slow.result(r#"{"resultType":"complete","content":[]}"#);
    assert_eq!(stream.message().await["params"]["taskId"], task);
}

#[tokio::test]
async fn with_auto_the_server_tells_of_its_own_tasks_and_of_none_of_taskgate() {
    let upstream = Upstream::modern(json!({ "tools": {}, "extensions": { TASKS: {} } })).await;
    let required = "[[upstream]]\n[upstream.tools.\"slow\"]\nsupport = \"required\"\n";
    let gate = Gate::with(&upstream, &format!("[tasks]\nnative = \"auto\"\n{required}")).await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await["taskId"].clone();
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": { "taskIds": [task, "theirs"] } }));
    let theirs = upstream.held("subscriptions/listen").await.sse();
    let honoured = json!({ "notifications": { "taskIds": ["theirs"] } });
    notify(&theirs, "notifications/subscriptions/acknowledged", honoured).await;
    stream.message().await;
    notify(&theirs, "notifications/tasks", json!({ "taskId": task, "status": "failed" })).await;
    notify(&theirs, "notifications/tasks", json!({ "taskId": "theirs", "status": "working" })).await;
    assert_eq!(stream.message().await["params"]["taskId"], "theirs");
}

#[tokio::test]
async fn a_subscription_is_acknowledged_first_also_where_what_the_server_says_of_it_cannot_be_read() {
    let upstream = Upstream::modern(json!({ "tools": { "listChanged": true } })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await["taskId"].clone();
    let slow = upstream.held("slow").await;
    let filter = json!({ "toolsListChanged": true, "taskIds": [task] });
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": filter }));
    let theirs = upstream.held("subscriptions/listen").await.sse();
    notify(&theirs, "notifications/subscriptions/acknowledged", json!({ "notifications": "all" })).await;
    let acknowledged = stream.message().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({ "taskIds": [task] }));
    slow.result(r#"{"resultType":"complete","content":[]}"#);
    assert_eq!(stream.message().await["params"]["taskId"], task);
}

#[tokio::test]
async fn a_subscription_tells_nothing_that_its_client_has_not_asked_for_whatever_the_server_does() {
    let capabilities = json!({ "tools": {}, "extensions": { TASKS: {} } });
    let upstream = Upstream::modern(capabilities).await;
    let gate = Gate::with(&upstream, "[tasks]\nnative = \"keep\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["file:///a"], "taskIds": ["theirs"] });
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": wanted }));
    let theirs = upstream.held("subscriptions/listen").await.sse();
    let mut honoured = wanted.clone();
    honoured["promptsListChanged"] = json!(true);
    notify(&theirs, "notifications/subscriptions/acknowledged", json!({ "notifications": honoured })).await;
    assert_eq!(stream.message().await["params"]["notifications"], wanted);
    for (method, params) in [
        ("notifications/prompts/list_changed", json!({})),
        ("notifications/resources/list_changed", json!({})),
        ("notifications/resources/updated", json!({ "uri": "file:///b" })),
        ("notifications/message", json!({ "level": "error", "data": "x" })),
        ("notifications/com.example/own", json!({})),
        ("notifications/tasks", json!({ "taskId": "another", "status": "working" })),
        ("notifications/tasks", json!({ "status": "working" })),
        ("notifications/tasks", json!({ "taskId": "theirs", "status": "working" })),
    ] {
        notify(&theirs, method, params).await;
    }
    assert_eq!(stream.message().await["params"]["taskId"], "theirs");
    notify(&theirs, "notifications/resources/updated", json!({ "uri": "file:///a" })).await;
    assert_eq!(stream.message().await["params"]["uri"], "file:///a");
}

#[tokio::test]
async fn a_subscription_finds_out_that_a_server_with_sessions_has_taken_the_place_of_a_modern_one() {
    let upstream = Upstream::modern(json!({ "tools": { "listChanged": true } })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await["taskId"].clone();
    drop(upstream.held("slow").await);
    client.until(task.as_str().unwrap(), "failed").await;
    upstream.stop().await;
    let capabilities = json!({ "tools": { "listChanged": true } });
    let legacy = Options { listens: true, capabilities, ..Options::default() };
    let legacy = Upstream::start_in_place_of(&upstream, legacy).await;
    let filter = json!({ "toolsListChanged": true, "taskIds": [task] });
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": filter }));
    let server = legacy.get_stream().await;
    let acknowledged = stream.message().await;
    assert_eq!(acknowledged["params"]["notifications"], filter, "{acknowledged}");
    let told = stream.message().await;
    assert_eq!((&told["method"], &told["params"]["status"]), (&json!("notifications/tasks"), &json!("failed")));
    server.notify("notifications/tools/list_changed", json!({})).await;
    assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
    assert_eq!(legacy.count("subscriptions/listen"), 1, "refused once");
}

#[tokio::test]
async fn a_subscription_that_goes_on_in_a_session_lets_go_of_the_link_and_tells_of_the_tasks_it_named() {
    let capabilities = json!({ "tools": { "listChanged": true } });
    let legacy = || Options { listens: true, capabilities: capabilities.clone(), ..Options::default() };
    let upstream = Upstream::start(legacy()).await;
    let rest = "[server]\nadmin = \"127.0.0.1:0\"\n[tasks]\nnative = \"keep\"\ntask_after = \"0s\"\n";
    let gate = Gate::with(&upstream, rest).await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("echo").await["taskId"].clone();
    client.until(task.as_str().unwrap(), "completed").await;
    upstream.stop().await;
    let extended = json!({ "tools": { "listChanged": true }, "extensions": { TASKS: {} } });
    let modern = Options { modern: true, sessions: false, capabilities: extended, ..Options::default() };
    let modern = Upstream::start_in_place_of(&upstream, modern).await;
    client.result("tools/list", json!({})).await;
    modern.stop().await;
    let legacy = Upstream::start_in_place_of(&modern, legacy()).await;
    let filter = json!({ "toolsListChanged": true, "taskIds": [task] });
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": filter }));
    let _server = legacy.get_stream().await;
    assert_eq!(stream.message().await["params"]["notifications"], filter);
    assert_eq!(stream.message().await["params"]["status"], "completed");
    assert_eq!(legacy.count("subscriptions/listen"), 1, "the server was known as a modern one");
    shows(&gate, &["pooled_sessions 1".to_owned()]).await;
}

#[tokio::test]
async fn a_subscription_that_the_server_does_not_acknowledge_begins_all_the_same() {
    let upstream = Upstream::modern(json!({ "tools": { "listChanged": true } })).await;
    let gate = Gate::before(&upstream).await;
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let listening = Modern::plain(&gate.url);
    let mut stream = listening.stream("subscriptions/listen", wanted);
    let theirs = upstream.held("subscriptions/listen").await.sse();
    assert_eq!(soon(stream.head()).await.0, 200);
    notify(&theirs, "notifications/subscriptions/acknowledged", json!({ "notifications": {} })).await;
    assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
}
