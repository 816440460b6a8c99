//! A server that has tasks of its own for some of its tools: they stay, and every other tool gets taskgate's.

mod telling;
mod tools;

use http::StatusCode;
use serde_json::{Value, json};

use crate::kit::{Answers, Client, Gate, Options, Upstream};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Returns the options of a server that runs "research" and "maybe" as tasks itself, and lists its tasks.
fn options() -> Options {
    let tasks = json!({ "list": {}, "requests": { "tools": { "call": {} }, "x": {} } });
    let tools = json!([
        { "name": "research", "execution": { "taskSupport": "required" } },
        { "name": "maybe", "execution": { "taskSupport": "optional" }, "x": [] },
        { "name": "echo", "execution": { "taskSupport": "forbidden" } },
        { "name": "slow" },
    ]);
    Options {
        versions: vec!["2025-11-25"],
        capabilities: json!({ "tools": {}, "tasks": tasks }),
        tools,
        listens: true,
        ..Options::default()
    }
}

async fn house(options: Options, toml: &str) -> (Upstream, Gate, Client) {
    let upstream = Upstream::start(options).await;
    let gate = Gate::with(&upstream, toml).await;
    let client = Client::connect(&gate.url).await;
    (upstream, gate, client)
}

/// Returns what the client gets for a request, or a call of a tool, that the server answers with `result`, and how the
/// server saw its params.
async fn passed(upstream: &Upstream, client: &Client, method: &str, params: Value, result: Value) -> (Value, Value) {
    upstream.hold(method);
    let asked = tokio::spawn({
        let rpc = if method.contains('/') { method } else { "tools/call" };
        let (client, method) = (client.clone(), rpc.to_owned());
        async move { client.request(&method, params).await }
    });
    let held = upstream.held(method).await;
    let seen = held.seen.json()["params"].take();
    held.result(&result.to_string());
    (asked.await.unwrap()["result"].take(), seen)
}

fn task(id: &str, status: &str) -> Value {
    json!({ "taskId": id, "status": status, "createdAt": "x", "lastUpdatedAt": "x", "ttl": null })
}

/// Calls "research" as a task, with a progress token if there is one, and has the server create the task "theirs".
async fn research(upstream: &Upstream, client: &Client, meta: Value) -> Value {
    let params = json!({ "name": "research", "task": {}, "_meta": meta });
    let created = json!({ "task": task("theirs", "working") });
    let (answer, seen) = passed(upstream, client, "research", params, created.clone()).await;
    assert_eq!((answer, &seen["task"]), (created, &json!({})));
    seen["_meta"]["progressToken"].clone()
}

#[tokio::test]
async fn the_capability_is_that_of_the_server_with_what_taskgate_adds() {
    let (_upstream, _gate, client) = house(options(), "").await;
    let tasks = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} }, "x": {} } });
    assert_eq!(client.initialized["capabilities"], json!({ "tools": {}, "tasks": tasks }));
}

#[tokio::test]
async fn task_methods_go_to_the_side_that_has_the_id_and_those_that_pass_count_against_no_rate() {
    let rate = "[rate]\ntask_methods = \"3/h\"\nfailed_lookups = \"1/h\"";
    let (upstream, gate, client) = house(options(), rate).await;
    let other = Client::connect(&gate.url).await;
    let id = client.create_id("echo").await;
    client.until(&id, "completed").await;
    // An id of taskgate's is for its owner alone, and for every other client as unknown as any other.
    let unknown = "5b0d1f4e-5d2c-4c39-9a5e-0d1a2b3c4d5e";
    for (asker, id) in [(&client, "theirs"), (&client, unknown), (&other, &*id), (&other, unknown)] {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let params = json!({ "taskId": id, "x": 1.5 });
            let (answer, seen) = passed(&upstream, asker, method, params.clone(), json!({ "theirs": 1 })).await;
            assert_eq!((answer, seen), (json!({ "theirs": 1 }), params), "{method}");
        }
    }
    let collected = client.collect(&id).await;
    assert_eq!(collected["result"]["_meta"][RELATED]["taskId"], *id);
}

#[tokio::test]
async fn the_list_has_taskgates_tasks_first_and_then_the_servers_page_by_page() {
    let (upstream, gate, client) = house(options(), "").await;
    let list = async |params: Value, result: Value| passed(&upstream, &client, "tasks/list", params, result).await;
    // Without tasks of taskgate's own, the list is the server's.
    let (page, _) = list(json!({}), json!({ "tasks": [task("a", "working")], "x": 1 })).await;
    assert_eq!(page, json!({ "tasks": [task("a", "working")], "x": 1 }));
    let mut own = Vec::new();
    for _ in 0..51 {
        own.push(client.create_id("echo").await);
    }
    let ids = |page: &Value| -> Vec<String> {
        page["tasks"].as_array().unwrap().iter().map(|task| task["taskId"].as_str().unwrap().to_owned()).collect()
    };
    let before = upstream.count("tasks/list");
    let first = client.ask("tasks/list", json!({})).await;
    assert_eq!((ids(&first), upstream.count("tasks/list")), (own[..50].to_vec(), before), "a full page of its own");
    let cursor = first["nextCursor"].clone();
    let theirs = json!({ "tasks": [task("a", "working")], "nextCursor": "page \"2\"" });
    let (second, seen) = list(json!({ "cursor": cursor, "_meta": {} }), theirs).await;
    assert_eq!((ids(&second), seen), (vec![own[50].clone(), "a".to_owned()], json!({ "_meta": {} })));
    let cursor = second["nextCursor"].clone();
    assert!(!cursor.as_str().unwrap().contains("page"), "{cursor}");
    let (third, seen) = list(json!({ "cursor": cursor }), json!({ "tasks": [] })).await;
    assert_eq!((third, seen), (json!({ "tasks": [] }), json!({ "cursor": "page \"2\"" })));
    // No other client can use it, and it cannot be made up.
    let other = Client::connect(&gate.url).await;
    for (asker, cursor) in [(&other, cursor.as_str().unwrap()), (&client, "server.AAAA"), (&client, "page \"2\"")] {
        let (code, message) = asker.error("tasks/list", json!({ "cursor": cursor })).await;
        assert!(code == -32602 && message.contains("cursor"), "{message}");
    }
}

#[tokio::test]
async fn taskgates_tasks_are_listed_whatever_the_server_does() {
    let (upstream, _gate, client) = house(options(), "").await;
    let id = client.create_id("echo").await;
    upstream.hold("tasks/list");
    let ask = |params: Value| {
        let client = client.clone();
        tokio::spawn(async move { client.request("tasks/list", params).await })
    };
    for broken in [r#"{"x":1}"#, r#"{"tasks":{}}"#, "[]"] {
        let asked = ask(json!({}));
        upstream.held("tasks/list").await.result(broken);
        let page = asked.await.unwrap()["result"].take();
        assert_eq!((page["tasks"].as_array().unwrap().len(), &page["tasks"][0]["taskId"]), (1, &json!(id)));
    }
    let asked = ask(json!({}));
    drop(upstream.held("tasks/list").await);
    let page = asked.await.unwrap()["result"].take();
    assert_eq!(page["tasks"][0]["taskId"], *id);
    // A client that may not ask the server does not get the others either.
    let refused = tokio::spawn({
        let client = client.clone();
        async move { client.answer("tasks/list", json!({})).await.status }
    });
    upstream.held("tasks/list").await.status(401, &[], "");
    assert_eq!(refused.await.unwrap(), StatusCode::UNAUTHORIZED);
    // The next page is the server's alone, and so is its error.
    let asked = ask(json!({ "cursor": page["nextCursor"] }));
    upstream.held("tasks/list").await.error(r#"{"code":-32000,"message":"not now"}"#);
    assert_eq!(asked.await.unwrap()["error"]["message"], "not now");
    upstream.forget_sessions();
    let page = client.ask("tasks/list", json!({})).await;
    assert_eq!((&page["tasks"][0]["taskId"], page.get("nextCursor")), (&json!(id), None));
}

#[tokio::test]
async fn a_server_that_does_not_list_its_tasks_is_not_asked_for_them() {
    let mut options = options();
    options.capabilities["tasks"].as_object_mut().unwrap().remove("list");
    let (upstream, _gate, client) = house(options, "").await;
    assert_eq!(client.list().await, Vec::<String>::new());
    let id = client.create_id("echo").await;
    assert_eq!((client.list().await, upstream.count("tasks/list")), (vec![id], 0));
}

#[tokio::test]
async fn a_server_of_an_older_revision_has_no_tasks_of_its_own() {
    for native in ["auto", "keep"] {
        let toml = format!("[[upstream]]\nnative = \"{native}\"");
        let (upstream, _gate, client) = house(Options { versions: vec!["2025-06-18"], ..options() }, &toml).await;
        let id = client.create_id("maybe").await;
        assert_eq!(upstream.held("maybe").await.seen.json()["params"].get("task"), None);
        assert_eq!((client.list().await, upstream.count("tasks/list")), (vec![id], 0));
    }
}

#[tokio::test]
async fn tasks_list_counts_as_a_stream_because_the_server_may_answer_with_one() {
    let options = Options { answers: Answers::Sse, ..options() };
    let (upstream, _gate, client) = house(options, "[server]\nmax_streams = 1").await;
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    slow.notify("notifications/x", json!({})).await;
    call.message().await;
    let (code, message) = client.error("tasks/list", json!({})).await;
    assert!(code == -32603 && message.contains("server.max_streams = 1"), "{message}");
    assert_eq!(upstream.count("tasks/list"), 0);
    slow.result("{}").await;
}
