//! What a server reports on its own tasks: status, progress, and what its messages are related to.

use serde_json::json;

use super::{RELATED, house, options, passed, research, task};
use crate::kit::{Answers, Client, Gate, Options, Stream, Upstream, status_of};

#[tokio::test]
async fn the_status_of_a_servers_task_passes_where_its_tasks_are_visible_and_is_dropped_elsewhere() {
    for (native, told) in [("auto", true), ("keep", true), ("replace", false)] {
        let toml = format!("[server]\nadmin = \"127.0.0.1:0\"\n[[upstream]]\nnative = \"{native}\"");
        let (upstream, gate, client) = house(options(), &toml).await;
        let theirs = upstream.get_stream().await;
        let mut stream = client.get_stream().await;
        theirs.notify("notifications/tasks/status", task("theirs", "working")).await;
        theirs.notify("notifications/x", json!({ "_meta": { RELATED: { "taskId": "theirs" }, "y": 1 } })).await;
        if told {
            assert_eq!(stream.message().await["params"], task("theirs", "working"));
        }
        let meta = if told { json!({ RELATED: { "taskId": "theirs" }, "y": 1 }) } else { json!({ "y": 1 }) };
        assert_eq!(stream.message().await["params"]["_meta"], meta, "{native}");
        let metrics = Client::new(&format!("{}/metrics", gate.admin.unwrap()));
        let metrics = metrics.send(http::Method::GET, "").await;
        let dropped = format!("taskgate_hidden_statuses_total {}", i32::from(!told));
        assert!(metrics.text().contains(&dropped), "{}", metrics.text());
    }
}

#[tokio::test]
async fn a_message_of_a_taskgate_task_is_related_to_that_task_alone() {
    for native in ["auto", "replace"] {
        let toml = format!("[[upstream]]\nnative = \"{native}\"");
        let (upstream, _gate, client) = house(Options { answers: Answers::Sse, ..options() }, &toml).await;
        let mut stream = client.get_stream().await;
        let id = client.create_id("slow").await;
        let slow = upstream.held("slow").await.sse();
        let theirs = upstream.get_stream().await;
        if native == "replace" {
            slow.notify("notifications/tasks/status", task("theirs", "working")).await;
        }
        slow.notify("notifications/x", json!({ "n": 1 })).await;
        let related = async |stream: &mut Stream| {
            let message = stream.message().await;
            (message["method"].clone(), message["params"]["_meta"][RELATED]["taskId"].clone())
        };
        assert_eq!(related(&mut stream).await, (json!("notifications/x"), json!(id)));
        if native == "auto" {
            // A message about a task of the server is not about the only task of taskgate.
            let params = json!({ "message": "?", "_meta": { RELATED: { "taskId": "theirs" } } });
            let question = json!({ "jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params });
            theirs.event(&question.to_string()).await;
            assert_eq!(related(&mut stream).await, (json!("elicitation/create"), json!("theirs")));
            slow.notify("notifications/tasks/status", task("theirs", "working")).await;
            assert_eq!(stream.message().await["params"], task("theirs", "working"));
            assert_eq!(status_of(&client.get(&id).await), "working");
        }
        slow.result(&json!({ "_meta": { RELATED: { "taskId": "theirs" } } }).to_string()).await;
        assert_eq!(
            client.response("tasks/result", json!({ "taskId": id })).await["result"]["_meta"][RELATED]["taskId"],
            *id
        );
    }
}

#[tokio::test]
async fn progress_of_a_task_of_the_server_goes_on_after_its_creation_until_its_end() {
    for native in ["auto", "keep"] {
        let toml = format!("[[upstream]]\nnative = \"{native}\"");
        let (upstream, gate, client) = house(options(), &toml).await;
        client.ask("tools/list", json!({})).await;
        let theirs = upstream.get_stream().await;
        let mut stream = client.get_stream().await;
        let mut others = Client::connect(&gate.url).await.get_stream().await;
        let to_others = upstream.get_stream().await;
        let ours = research(&upstream, &client, json!({ "progressToken": "mine" })).await;
        let progress = async |n: u32| {
            theirs.notify("notifications/progress", json!({ "progressToken": ours, "progress": n })).await;
        };
        progress(1).await;
        assert_eq!(stream.message().await["params"], json!({ "progressToken": "mine", "progress": 1 }));
        // On the stream on which the server sends it.
        upstream.hold("tasks/result");
        let mut waiting = client.stream("tasks/result", json!({ "taskId": "theirs" }));
        let result = upstream.held("tasks/result").await.sse();
        result.notify("notifications/progress", json!({ "progressToken": ours, "progress": 2 })).await;
        assert_eq!(waiting.message().await["params"], json!({ "progressToken": "mine", "progress": 2 }));
        theirs.notify("notifications/tasks/status", task("theirs", "completed")).await;
        progress(3).await;
        theirs.notify("notifications/x", json!({})).await;
        assert_eq!(stream.message().await["method"], "notifications/tasks/status");
        assert_eq!(stream.message().await["method"], "notifications/x", "no progress after the end");
        to_others.notify("notifications/y", json!({})).await;
        assert_eq!(others.message().await["method"], "notifications/y", "nothing of it is for others");
    }
}

#[tokio::test]
async fn the_answers_of_the_task_methods_tell_that_a_task_of_the_server_has_ended() {
    for (method, ended, answer) in [
        ("tasks/get", false, task("theirs", "working")),
        ("tasks/get", true, task("theirs", "failed")),
        ("tasks/cancel", true, task("theirs", "cancelled")),
        ("tasks/result", true, json!({ "content": [] })),
    ] {
        let (upstream, _gate, client) = house(options(), "").await;
        let theirs = upstream.get_stream().await;
        let mut stream = client.get_stream().await;
        let ours = research(&upstream, &client, json!({ "progressToken": 7 })).await;
        passed(&upstream, &client, method, json!({ "taskId": "theirs" }), answer).await;
        theirs.notify("notifications/progress", json!({ "progressToken": ours, "progress": 1 })).await;
        theirs.notify("notifications/x", json!({})).await;
        let next = stream.message().await["method"].clone();
        assert_eq!(next == "notifications/x", ended, "{method}");
    }
}

#[tokio::test]
async fn a_task_of_taskgates_asks_its_client_beside_those_of_the_server() {
    let options = Options { answers: Answers::Sse, ..options() };
    let upstream = Upstream::start(options).await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await;
    let mut stream = client.get_stream().await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    let params = json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } });
    let question = json!({ "jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params });
    slow.event(&question.to_string()).await;
    let asked = loop {
        let message = stream.message().await;
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    assert_eq!(asked["params"]["_meta"][RELATED]["taskId"], *id);
    assert_eq!(client.respond(&asked["id"], json!({ "action": "accept", "content": {} })).await, 202);
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == 7).await;
    slow.result("{}").await;
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn a_message_of_a_task_names_it_even_before_any_stream_is_open() {
    for native in ["auto", "replace"] {
        let toml = format!("[[upstream]]\nnative = \"{native}\"");
        let (upstream, _gate, client) = house(Options { answers: Answers::Sse, ..options() }, &toml).await;
        let id = client.create_id("slow").await;
        let held = upstream.held("slow").await;
        let token = held.seen.json()["params"]["_meta"]["progressToken"].take();
        let slow = held.sse();
        slow.notify("notifications/x", json!({})).await;
        let progress = json!({ "progressToken": token, "progress": 1, "message": "told" });
        slow.notify("notifications/progress", progress).await;
        client.until_task(&id, |task| task["statusMessage"].is_string()).await;
        let message = client.get_stream().await.message().await;
        assert_eq!(message["params"]["_meta"][RELATED]["taskId"], *id, "{native}: {message}");
    }
}
