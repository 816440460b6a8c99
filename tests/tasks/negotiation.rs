//! Who has tasks: capabilities, and what `tools/list` says of each tool.

use serde_json::{Value, json};

use crate::kit::{Answers, Client, Gate, Options, Upstream, house};

const POLICY: &str = r#"
[[upstream]]
[upstream.tools."never_*"]
support = "forbidden"
[upstream.tools."always_*"]
support = "required"
[upstream.tools."always_not"]
support = "forbidden"
"#;

fn native() -> Options {
    let tasks = json!({ "list": {}, "requests": { "tools": { "call": {} } }, "x": 1 });
    Options { versions: vec!["2025-11-25"], capabilities: json!({ "tools": {}, "tasks": tasks }), ..Options::default() }
}

#[tokio::test]
async fn initialize_advertises_tasks_and_leaves_the_other_capabilities_alone() {
    for (theirs, kept) in [
        (
            json!({ "tools": { "listChanged": true }, "logging": {} }),
            json!({ "tools": { "listChanged": true }, "logging": {} }),
        ),
        // Tasks for other requests than tool calls do not count.
        (json!({ "tasks": { "list": {}, "requests": { "x": {} } } }), json!({})),
    ] {
        let upstream = Upstream::start(Options { capabilities: theirs, ..Options::default() }).await;
        let gate = Gate::before(&upstream).await;
        let client = Client::connect(&gate.url).await;
        let mut expected = kept;
        expected["tasks"] = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        assert_eq!(client.initialized["capabilities"], expected);
    }
}

#[tokio::test]
async fn tools_list_says_of_each_tool_what_the_policy_says_and_keeps_the_rest() {
    for answers in [Answers::Json, Answers::Sse] {
        let upstream = Upstream::start(Options { answers, ..Options::default() }).await;
        upstream.hold("tools/list");
        let gate = Gate::with(&upstream, POLICY).await;
        let client = Client::connect(&gate.url).await;
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.post(r#"{"jsonrpc":"2.0","id":"mine","method":"tools/list"}"#).await }
        });
        upstream.held("tools/list").await.result(concat!(
            r#"{"tools":[{"name":"any", "x":1.50},{"name":"never_this","execution":{"taskSupport":"optional","y":[ ]}},"#,
            r#"{"name":"always_that","execution":{"taskSupport":"forbidden"}},{"name":"always_not","execution":{}}],"nextCursor":"\u0041"}"#
        ));
        assert_eq!(
            asked.await.unwrap().raw_response(),
            concat!(
                r#"{"jsonrpc":"2.0","id":"mine","result":{"tools":[{"execution":{"taskSupport":"optional"},"name":"any", "x":1.50},"#,
                r#"{"name":"never_this","execution":{"taskSupport":"forbidden","y":[ ]}},"#,
                r#"{"name":"always_that","execution":{"taskSupport":"required"}},"#,
                r#"{"name":"always_not","execution":{"taskSupport":"forbidden"}}],"nextCursor":"\u0041"}}"#
            ),
            "{answers:?}"
        );
    }
}

#[tokio::test]
async fn a_forbidden_tool_called_as_a_task_is_refused_and_says_what_to_do() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, POLICY).await;
    let client = Client::connect(&gate.url).await;
    let (code, message) = client.error("tools/call", json!({ "name": "never_this", "task": {} })).await;
    assert_eq!(code, -32601);
    assert!(message.contains("never_this") && message.contains("without params.task"), "{message}");
    assert_eq!(upstream.count("tools/call"), 0);
    let asked = tokio::spawn(async move { client.ask("tools/call", json!({ "name": "never_this" })).await });
    upstream.held("never_this").await.result("{}");
    assert_eq!(asked.await.unwrap(), json!({}));
}

#[tokio::test]
async fn a_required_tool_called_plainly_is_refused_and_says_what_to_do() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, POLICY).await;
    let client = Client::connect(&gate.url).await;
    let (code, message) = client.error("tools/call", json!({ "name": "always_that" })).await;
    assert_eq!(code, -32601);
    assert!(message.contains("always_that") && message.contains("add params.task"), "{message}");
    assert_eq!(upstream.count("tools/call"), 0);
    let id = client.create_id("always_that").await;
    upstream.held("always_that").await.result("{}");
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn an_optional_tool_can_be_called_either_way() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    let plain = client.ask("tools/call", json!({ "name": "echo", "arguments": {} })).await;
    let id = client.create_id("echo").await;
    assert_eq!(client.collect(&id).await["result"]["content"], plain["content"]);
}

#[tokio::test]
async fn an_upstream_with_tasks_of_its_own_can_be_left_alone() {
    let upstream = Upstream::start(native()).await;
    let gate = Gate::with(&upstream, &format!("[tasks]\nnative = \"keep\"\n{POLICY}")).await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(client.initialized["capabilities"], native().capabilities);
    let tools = client.ask("tools/list", json!({})).await;
    assert_eq!(tools, json!({ "tools": native().tools }));
    for (method, params) in [
        ("tools/call", r#"{"name":"never_this","task":{"ttl":"x"}}"#),
        ("tools/call", r#"{"name":"always_that"}"#),
        ("tasks/get", r#"{"taskId":"theirs"}"#),
        ("tasks/result", r#"{"taskId":"theirs"}"#),
        ("tasks/list", "{}"),
        ("tasks/cancel", r#"{"taskId":"theirs"}"#),
    ] {
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.request(method, serde_json::from_str(params).unwrap()).await }
        });
        let held = upstream.held(method).await;
        assert_eq!(held.seen.json()["params"], serde_json::from_str::<Value>(params).unwrap());
        held.result(r#"{"theirs":1.50}"#);
        assert_eq!(asked.await.unwrap()["result"], json!({ "theirs": 1.50 }), "{method}");
    }
}

#[tokio::test]
async fn the_policy_can_replace_an_upstreams_own_tasks() {
    for toml in ["[[upstream]]\nnative = \"replace\"", "[tasks]\nnative = \"replace\""] {
        let upstream = Upstream::start(native()).await;
        let gate = Gate::with(&upstream, toml).await;
        let client = Client::connect(&gate.url).await;
        let tasks = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        assert_eq!(client.initialized["capabilities"], json!({ "tools": {}, "tasks": tasks }));
        let id = client.create_id("echo").await;
        client.until(&id, "completed").await;
        assert_eq!(upstream.wait_for_message("tools/call").await.json()["params"].get("task"), None);
        assert_eq!(upstream.count("tasks/get"), 0);
    }
}
