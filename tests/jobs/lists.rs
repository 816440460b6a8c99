//! `tools/list`, `instructions` and the names of the tools for jobs.

use serde_json::{Value, json};

use crate::{
    host::{House, Job, SOON, call, text, wait},
    kit::{Answers, Client, Gate, Options, Upstream, soon},
    modern_client::Modern,
};

const OURS: [&str; 3] = ["wait_for_job", "cancel_job", "list_jobs"];

fn names(page: &Value) -> Vec<&str> {
    page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// Asks for a page, which the server answers with `result`.
async fn page(house: &House, params: Value, result: Value) -> Value {
    house.upstream.hold("tools/list");
    let asking = tokio::spawn({
        let host = house.host.clone();
        async move { host.ask("tools/list", params).await }
    });
    house.upstream.held("tools/list").await.result(&result.to_string());
    soon(asking).await.unwrap()
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

#[tokio::test]
async fn the_tools_for_jobs_stand_behind_those_of_the_server_with_descriptions_schemas_and_annotations() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let upstream = Upstream::json().await;
        let gate = Gate::with(&upstream, SOON).await;
        let host = Client::connect_as(&gate.url, version, json!({})).await;
        let listed = host.ask("tools/list", json!({})).await;
        assert_eq!(names(&listed), [["echo"].as_slice(), &OURS].concat(), "{version}");
        for ours in &listed["tools"].as_array().unwrap()[1..] {
            assert!(ours["description"].as_str().is_some_and(|text| text.len() > 40), "{ours}");
            assert_eq!(ours["inputSchema"]["type"], "object", "{ours}");
            assert_eq!(ours["annotations"]["readOnlyHint"], ours["name"] != "cancel_job", "{ours}");
            assert_eq!((ours.get("outputSchema"), ours.get("execution")), (None, None), "{ours}");
        }
        let instructions = host.initialized["instructions"].as_str().unwrap();
        assert!(instructions.contains("id of a job") && instructions.contains("do not make the call again"));
    }
}

#[tokio::test]
async fn a_tool_that_may_be_answered_with_a_job_has_no_output_schema_and_any_other_keeps_it() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "number" } } });
    let tools = json!([
        { "outputSchema": schema, "name": "slow", "inputSchema": {}, "x": 1.50 },
        { "name": "quick", "inputSchema": {}, "outputSchema": schema },
        { "execution": {}, "outputSchema": schema, "name": "slow_too", "inputSchema": {} },
    ]);
    let toml = "[[upstream]]\n[upstream.tools.\"slow*\"]\njob_after = \"1s\"";
    for version in ["2025-06-18", "2025-11-25"] {
        let upstream = Upstream::start(Options { tools: tools.clone(), ..Options::default() }).await;
        let gate = Gate::with(&upstream, toml).await;
        let host = Client::connect_as(&gate.url, version, json!({})).await;
        let listed = host.ask("tools/list", json!({})).await;
        let has = |at: usize| listed["tools"][at].get("outputSchema").is_some();
        assert_eq!([has(0), has(1), has(2)], [false, true, false], "{listed}");
        assert_eq!(listed["tools"][0]["x"], json!(1.5));
    }
}

#[tokio::test]
async fn where_no_name_is_left_for_the_tools_for_jobs_every_tool_keeps_its_output_schema() {
    let named = |name: &str| json!({ "name": name, "inputSchema": {}, "outputSchema": { "type": "object" } });
    let tools = json!(["slow", "wait_for_job", "taskgate_cancel_job", "taskgate2_list_jobs"].map(named));
    let house = House::of(Options { tools: tools.clone(), ..Options::default() }, SOON).await;
    assert_eq!(house.host.ask("tools/list", json!({})).await["tools"], tools);
    assert_eq!(Modern::plain(&house.gate.url).result("tools/list", json!({})).await["tools"], tools);
}

#[tokio::test]
async fn where_a_tool_takes_no_plain_call_it_keeps_its_output_schema_and_brings_no_tools_for_jobs() {
    let tools = json!([{ "name": "slow", "inputSchema": {}, "outputSchema": { "type": "object" } }]);
    let upstream = Upstream::start(Options { tools: tools.clone(), ..Options::default() }).await;
    let gate = Gate::with(&upstream, &format!("{SOON}\ntasks.support = \"required\"")).await;
    for (version, has_jobs) in [("2025-06-18", true), ("2025-11-25", false)] {
        let host = Client::connect_as(&gate.url, version, json!({})).await;
        let listed = host.ask("tools/list", json!({})).await;
        assert_eq!(names(&listed).len(), if has_jobs { 4 } else { 1 }, "{version}");
        assert_eq!(listed["tools"][0].get("outputSchema").is_none(), has_jobs, "{version}");
        assert_eq!(host.initialized.get("instructions").is_some(), has_jobs, "{version}");
    }
    let host = Modern::plain(&gate.url);
    let listed = host.result("tools/list", json!({})).await;
    assert_eq!((names(&listed), listed["tools"][0].get("outputSchema").is_some()), (vec!["slow"], true), "{listed}");
    assert_eq!(host.result("server/discover", json!({})).await.get("instructions"), None);
}

#[tokio::test]
async fn the_last_page_has_them_once() {
    let house = House::open(SOON).await;
    let first = page(&house, json!({}), json!({ "tools": [tool("a")], "nextCursor": "2" })).await;
    assert_eq!(names(&first), ["a"]);
    let second = page(&house, json!({ "cursor": "2" }), json!({ "tools": [tool("b")], "nextCursor": "3" })).await;
    assert_eq!(names(&second), ["b"]);
    let last = page(&house, json!({ "cursor": "3" }), json!({ "tools": [] })).await;
    assert_eq!(names(&last), OURS);
}

#[tokio::test]
async fn names_that_the_server_has_get_a_prefix_whatever_page_they_are_on() {
    let house = House::open(SOON).await;
    page(&house, json!({}), json!({ "tools": [tool("list_jobs")], "nextCursor": "2" })).await;
    let last = page(&house, json!({ "cursor": "2" }), json!({ "tools": [tool("b")] })).await;
    assert_eq!(names(&last), ["b", "taskgate_wait_for_job", "taskgate_cancel_job", "taskgate_list_jobs"]);
    let calling = house.host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let slow = house.upstream.held("slow").await.sse();
    let words = text(&calling.last().await["result"]);
    let (_, id) = words.split_once("call taskgate_wait_for_job with {\"job_ids\":[\"").unwrap();
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    let id = id.split('"').next().unwrap();
    let result = call(&house.host, "taskgate_wait_for_job", json!({ "job_ids": [id] })).await;
    assert_eq!(text(&result), "done");
    // The server's own tool is the server's.
    let theirs = house.host.stream("tools/call", json!({ "name": "list_jobs", "arguments": {} }));
    house.upstream.held("list_jobs").await.result(r#"{"content":[{"type":"text","text":"theirs"}]}"#);
    assert_eq!(text(&theirs.last().await["result"]), "theirs");
}

#[tokio::test]
async fn a_host_that_never_lists_does_not_take_a_tool_of_the_server_for_one_of_taskgate() {
    let tools = json!([tool("cancel_job")]);
    let house = House::of(Options { answers: Answers::Sse, tools, ..Options::default() }, SOON).await;
    let theirs = house.host.stream("tools/call", json!({ "name": "cancel_job", "arguments": {} }));
    house.upstream.held("cancel_job").await.result(r#"{"content":[{"type":"text","text":"theirs"}]}"#);
    assert_eq!(text(&theirs.last().await["result"]), "theirs");
}

#[tokio::test]
async fn a_tool_of_the_server_on_a_page_that_the_host_has_not_read_is_the_servers() {
    let house = House::open(SOON).await;
    let first = json!({ "tools": [tool("a")], "nextCursor": "2" });
    page(&house, json!({}), first.clone()).await;
    let theirs = house.host.stream("tools/call", json!({ "name": "cancel_job", "arguments": {} }));
    // taskgate reads on by itself.
    for told in [first, json!({ "tools": [tool("cancel_job")] })] {
        house.upstream.held("tools/list").await.result(&told.to_string());
    }
    house.upstream.held("cancel_job").await.result(r#"{"content":[{"type":"text","text":"theirs"}]}"#);
    assert_eq!(text(&theirs.last().await["result"]), "theirs");
}

#[tokio::test]
async fn the_words_name_the_tools_for_jobs_and_the_title_also_where_no_list_has_told_them() {
    let tools = json!([tool("wait_for_job"), { "name": "slow", "title": "Export all", "inputSchema": {} }]);
    let options = || Options { answers: Answers::Sse, tools: tools.clone(), ..Options::default() };
    let says = "call taskgate_wait_for_job with {\"job_ids\":[\"";
    let house = House::of(options(), SOON).await;
    let words = text(&house.host.stream("tools/call", json!({ "name": "slow" })).last().await["result"]);
    assert!(words.starts_with("\"Export all\" is still running") && words.contains(says), "{words}");
    // Each request of a modern client has a session of its own here.
    let upstream = Upstream::start(options()).await;
    let gate = Gate::with(&upstream, &format!("{SOON}\n[[upstream]]\nsessions = \"request\"")).await;
    let host = Modern::plain(&gate.url);
    host.result("tools/list", json!({})).await;
    let words = text(&host.call("slow").await);
    assert!(words.starts_with("\"Export all\" is still running") && words.contains(says), "{words}");
    // A request of taskgate's own has nothing of the client's in its headers.
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, SOON).await;
    Job::in_words(&Modern::plain(&gate.url).call("slow").await);
    let listing = upstream.wait_for_message("tools/list").await;
    assert_eq!((listing.header("mcp-method"), listing.header("mcp-name")), ("tools/list", ""));
}

#[tokio::test]
async fn the_names_follow_the_tools_of_the_server_as_they_come_and_go() {
    let capabilities = json!({ "tools": { "listChanged": true } });
    let options = Options { answers: Answers::Sse, listens: true, capabilities, ..Options::default() };
    let house = House::of(options, SOON).await;
    let mut listener = house.host.get_stream().await;
    let server = house.upstream.get_stream().await;
    for (theirs, ours) in [("a", "wait_for_job"), ("wait_for_job", "taskgate_wait_for_job"), ("b", "wait_for_job")] {
        server.notify("notifications/tools/list_changed", json!({})).await;
        assert_eq!(listener.message().await["method"], "notifications/tools/list_changed");
        let listed = page(&house, json!({}), json!({ "tools": [tool(theirs)] })).await;
        assert_eq!(names(&listed)[..2], [theirs, ours]);
    }
}

#[tokio::test]
async fn a_call_of_a_tool_for_jobs_as_a_task_is_refused() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, SOON).await;
    let host = Client::connect(&gate.url).await;
    let params = json!({ "name": "wait_for_job", "arguments": { "job_ids": ["x"] }, "task": {} });
    let (code, message) = host.error("tools/call", params).await;
    assert!(code == -32601 && message.contains("cannot be called as a task"), "{message}");
}

#[tokio::test]
async fn several_upstreams_have_jobs_of_their_own() {
    let (one, two) = (Upstream::sse().await, Upstream::sse().await);
    let toml = format!(
        "{SOON}\n[[upstream]]\npath = \"/one\"\nurl = {:?}\n[[upstream]]\npath = \"/two\"\nurl = {:?}\n\
         [upstream.tools.\"*\"]\njob_after = \"off\"",
        one.url(),
        two.url()
    );
    let gate = Gate::configured(&toml).await;
    let hosts = [&gate.urls[0], &gate.urls[1]].map(|url| Client::connect_as(url, "2025-06-18", json!({})));
    let [with, without] = hosts;
    let (with, without) = (with.await, without.await);
    assert_eq!(names(&with.ask("tools/list", json!({})).await).len(), 4);
    assert_eq!(
        names(&without.ask("tools/list", json!({})).await).len(),
        4,
        "[tasks] holds for tools without a pattern"
    );
    let calling = with.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let slow = one.held("slow").await.sse();
    let job = Job::in_words(&calling.last().await["result"]);
    assert_eq!(wait(&without, &job, 0.0).await["isError"], true);
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&wait(&with, &job, 50.0).await), "done");
}

#[tokio::test]
async fn a_server_with_tasks_of_its_own_has_jobs_for_hosts_that_know_none() {
    let tasks = json!({ "requests": { "tools": { "call": {} } } });
    let capabilities = json!({ "tools": {}, "tasks": tasks });
    let tools = json!([{ "name": "slow", "inputSchema": {}, "execution": { "taskSupport": "optional" } }]);
    for native in ["auto", "keep", "replace"] {
        let options = Options {
            answers: Answers::Sse,
            versions: vec!["2025-11-25"],
            capabilities: capabilities.clone(),
            tools: tools.clone(),
            ..Options::default()
        };
        let upstream = Upstream::start(options).await;
        let gate = Gate::with(&upstream, &format!("{SOON}\ntasks.native = {native:?}")).await;
        let host = Client::connect(&gate.url).await;
        assert_eq!(names(&host.ask("tools/list", json!({})).await)[1..], OURS, "{native}");
        let calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
        let slow = upstream.held("slow").await.sse();
        let job = Job::in_words(&calling.last().await["result"]);
        slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
        assert_eq!(text(&wait(&host, &job, 50.0).await), "done", "{native}");
    }
}
