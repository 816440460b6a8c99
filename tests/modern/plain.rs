//! Requests that are no tasks.

use std::time::Duration;

use serde_json::json;

use crate::{
    client::{LOG_LEVEL, Modern, VERSION},
    kit::{Answers, Gate, Options, Seen, Upstream, soon, within},
};

#[tokio::test]
async fn discover_tells_what_the_server_says_of_itself_and_the_tasks_extension() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let result = Modern::plain(&gate.url).result("server/discover", json!({})).await;
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert!(result["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object(), "{result}");
    assert!(result["capabilities"]["tasks"].is_null(), "{result}");
    assert!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"].is_string(), "{result}");
    assert!(result["ttlMs"].is_u64() && result["cacheScope"] == "private", "{result}");
}

#[tokio::test]
async fn lists_have_the_members_of_the_revision_and_tools_no_execution() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    upstream.hold("tools/list");
    let client = Modern::plain(&gate.url);
    let listing = tokio::spawn(async move { client.result("tools/list", json!({})).await });
    let tools =
        r#"{"tools":[{"name":"a","execution":{"taskSupport":"optional"},"inputSchema":{"type":"object"}}],"x":1}"#;
    upstream.held("tools/list").await.result(tools);
    let result = soon(listing).await.unwrap();
    assert_eq!(result["tools"], json!([{ "name": "a", "inputSchema": { "type": "object" } }]));
    assert_eq!(
        (&result["resultType"], &result["ttlMs"], &result["cacheScope"], &result["x"]),
        (&json!("complete"), &json!(0), &json!("private"), &json!(1))
    );
}

#[tokio::test]
async fn the_server_gets_a_request_of_its_own_revision_in_a_session_that_is_opened_once() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    for _ in 0..3 {
        let params = json!({ "name": "echo", "arguments": { "a": 1 }, "_meta": { "com.example/x": 1 } });
        assert_eq!(client.result("tools/call", params).await["resultType"], "complete");
    }
    assert_eq!(upstream.count("initialize"), 1);
    let call = upstream.wait_for(|seen| seen.rpc() == "tools/call").await;
    let params = call.json()["params"].clone();
    let keys: Vec<_> = params["_meta"].as_object().unwrap().keys().cloned().collect();
    assert!(keys.iter().all(|key| !key.starts_with("io.modelcontextprotocol/")), "{params}");
    assert_eq!(params["_meta"]["com.example/x"], 1);
    assert!(call.header("mcp-protocol-version").starts_with("2025-"), "{call:?}");
    assert_eq!((call.header("mcp-method"), call.header("mcp-name")), ("", ""));
}

#[tokio::test]
async fn a_server_that_has_forgotten_its_session_costs_one_initialize() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    client.call("echo").await;
    upstream.forget_sessions();
    assert_eq!(client.call("echo").await["resultType"], "complete");
    assert_eq!(upstream.count("initialize"), 2);
}

#[tokio::test]
async fn progress_comes_on_the_stream_of_its_call_under_the_clients_token_and_logs_at_the_level_that_it_names() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let meta = json!({ "progressToken": "mine", "io.modelcontextprotocol/logLevel": "warning" });
    let mut stream =
        Modern::plain(&gate.url).stream("tools/call", json!({ "name": "slow", "arguments": {}, "_meta": meta }));
    let slow = upstream.held("slow").await.sse();
    slow.progress(1).await;
    for level in ["info", "error"] {
        slow.notify("notifications/message", json!({ "level": level, "data": level })).await;
    }
    let progress = stream.message().await;
    assert_eq!(progress["params"]["progressToken"], "mine", "{progress}");
    let log = stream.message().await;
    assert_eq!(log["params"]["level"], "error", "{log}");
    slow.result(r#"{"content":[]}"#).await;
    let response = stream.message().await;
    assert_eq!(response["result"]["resultType"], "complete", "{response}");
}

#[tokio::test]
async fn a_server_is_asked_for_progress_only_of_a_call_that_may_become_a_task_and_otherwise_gets_no_meta() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    for (client, token_is_given) in [(Modern::plain(&gate.url), false), (Modern::with_tasks(&gate.url), true)] {
        let calling = tokio::spawn(async move { client.call("slow").await });
        let slow = upstream.held("slow").await;
        let (id, params) = (slow.seen.json()["id"].clone(), slow.seen.json()["params"].clone());
        let plain = json!({ "name": "slow", "arguments": {} });
        let with_token = json!({ "name": "slow", "arguments": {}, "_meta": { "progressToken": id } });
        assert_eq!(params, if token_is_given { with_token } else { plain });
        slow.result(r#"{"content":[]}"#);
        assert_eq!(soon(calling).await.unwrap()["resultType"], "complete");
    }
}

#[tokio::test]
async fn a_server_that_knows_sessions_gets_no_meta_and_no_wish_for_a_task_wherever_they_stand() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    for (client, token_is_given) in [(Modern::plain(&gate.url), false), (Modern::with_tasks(&gate.url), true)] {
        let meta = client.params(json!({}))["_meta"].to_string();
        for params in [
            format!(r#"{{"_meta":{meta},"name":"slow","arguments":{{}}}}"#),
            format!(r#"{{"name":"slow" , "_meta" :{meta} , "arguments":{{}} }}"#),
            format!(r#"{{"name":"slow","arguments":{{}},"_meta":{meta}}}"#),
            format!(r#"{{ "name":"slow","arguments":{{}} ,"\u005fmeta": {meta} }}"#),
            format!(r#"{{"task":{{"ttl":1}},"name":"slow","_meta":{meta},"arguments":{{}}}}"#),
            format!(r#"{{"name":"slow","arguments":{{}},"_meta":{meta},"t\u0061sk":{{}}}}"#),
        ] {
            let request = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#);
            let http = client.http.with("mcp-protocol-version", VERSION).with("mcp-method", "tools/call");
            let http = http.with("mcp-name", "slow");
            let calling = tokio::spawn(async move { http.post(request).await });
            let slow = upstream.held("slow").await;
            let sent = slow.seen.json();
            let mut expected = json!({ "name": "slow", "arguments": {} });
            if token_is_given {
                expected["_meta"] = json!({ "progressToken": sent["id"] });
            }
            assert_eq!(sent["params"], expected, "{params}");
            slow.result(r#"{"content":[]}"#);
            assert_eq!(soon(calling).await.unwrap().json()["result"]["resultType"], "complete", "{params}");
        }
    }
}

#[tokio::test]
async fn notifications_that_there_is_no_room_for_take_no_answer_with_them() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[server]\nmax_outbox = \"4KiB\"\n").await;
    let client = Modern::plain(&gate.url);
    // With the client's long token two notifications do not fit that came together, and each drives out the other.
    let params = json!({ "name": "slow", "arguments": {}, "_meta": { "progressToken": "t".repeat(900) } });
    let calling = tokio::spawn(async move { client.result("tools/call", params).await });
    let slow = upstream.held("slow").await.sse();
    let token = slow.seen.json()["params"]["_meta"]["progressToken"].clone();
    let events = [(1, 1), (2, 2000)].map(|(progress, length)| {
        let params = json!({ "progressToken": token, "progress": progress, "message": "m".repeat(length) });
        format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))
    });
    slow.raw(&events.concat()).await;
    // What comes after them shows that they have been taken in.
    slow.event(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#).await;
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q").await;
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(soon(calling).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn a_silent_call_becomes_a_stream_that_ends_with_the_answer() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let mut answer = Modern::plain(&gate.url).stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await;
    let (status, headers) = within(Duration::from_secs(30), answer.head()).await;
    assert_eq!((status.as_u16(), headers["content-type"].to_str().unwrap()), (200, "text/event-stream"));
    slow.result(r#"{"content":[]}"#);
    assert_eq!(answer.message().await["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_call_whose_client_leaves_before_the_server_has_said_anything_is_cancelled_there() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let calling = tokio::spawn(async move { client.call("slow").await });
    let slow = upstream.held("slow").await;
    calling.abort();
    let cancelled = upstream.wait_for(|seen| seen.rpc() == "notifications/cancelled").await;
    assert_eq!(cancelled.json()["params"]["requestId"], slow.seen.json()["id"]);
}

#[tokio::test]
async fn every_result_says_which_server_gave_it() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let (client, at_once) = (Modern::plain(&gate.url), Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await);
    let mut results = Vec::new();
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("tools/call", json!({ "name": "echo", "arguments": {} })),
    ] {
        results.push(client.result(method, params).await);
    }
    let client = Modern::with_tasks(&at_once.url);
    let task = client.call("echo").await;
    let id = task["taskId"].clone();
    results.extend([client.until(id.as_str().unwrap(), "completed").await, task]);
    for (method, params) in
        [("tasks/update", json!({ "taskId": id, "inputResponses": {} })), ("tasks/cancel", json!({ "taskId": id }))]
    {
        results.push(client.result(method, params).await);
    }
    for result in results {
        assert!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"].is_string(), "{result}");
    }
}

#[tokio::test]
async fn a_server_that_logs_is_told_the_least_severe_level_that_requests_have_named() {
    let capabilities = json!({ "tools": {}, "logging": {} });
    let upstream = Upstream::start(Options { capabilities, ..Options::default() }).await;
    let gate = Gate::before(&upstream).await;
    for (level, is_told) in [("warning", true), ("error", false), ("debug", true), ("info", false)] {
        let before = upstream.count("logging/setLevel");
        let params = json!({ "name": "echo", "_meta": { "io.modelcontextprotocol/logLevel": level } });
        let client = Modern::plain(&gate.url);
        let calling = client.result("tools/call", params);
        let telling = async {
            if is_told {
                let told = upstream.held("logging/setLevel").await;
                assert_eq!(told.seen.json()["params"], json!({ "level": level }));
                told.result("{}");
            }
        };
        tokio::join!(calling, telling);
        assert_eq!(upstream.count("logging/setLevel") - before, usize::from(is_told), "{level}");
    }
}

#[tokio::test]
async fn a_request_that_names_no_level_gets_no_log_messages() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let params = json!({ "name": "slow", "arguments": {}, "_meta": { "progressToken": "mine" } });
    let mut stream = Modern::plain(&gate.url).stream("tools/call", params);
    let slow = upstream.held("slow").await.sse();
    slow.notify("notifications/message", json!({ "level": "emergency", "data": "fire" })).await;
    slow.progress(1).await;
    assert_eq!(stream.message().await["method"], "notifications/progress");
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(stream.message().await["result"]["resultType"], "complete");
}

#[tokio::test]
async fn a_client_that_closes_its_stream_cancels_the_call() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let call = tokio::spawn(async move { client.call("slow").await });
    let held = upstream.held("slow").await;
    call.abort();
    let cancelled = upstream.wait_for_message("notifications/cancelled").await;
    let id: u64 = serde_json::from_value(cancelled.json()["params"]["requestId"].clone()).unwrap();
    let called = upstream.wait_for(|seen| seen.rpc() == "tools/call").await;
    assert_eq!(called.id(), id.to_string());
    drop(held);
}

#[tokio::test]
async fn an_error_of_the_server_passes_and_codes_that_the_revision_has_not_are_replaced() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    upstream.hold("resources/read");
    for (theirs, told) in [
        (-32002, -32602),
        (-32020, -32603),
        (-32022, -32603),
        (-32042, -32603),
        (-32099, -32603),
        (-32000, -32000),
        (7, 7),
    ] {
        let client = Modern::plain(&gate.url);
        let reading = tokio::spawn(async move { client.answer("resources/read", json!({ "uri": "file:///a" })).await });
        let error = format!(r#"{{"code":{theirs},"message":"Not there","data":{{"uri":"file:///a"}}}}"#);
        upstream.held("resources/read").await.error(&error);
        let answer = soon(reading).await.unwrap();
        assert_eq!(answer.status, 200);
        let expected = json!({ "code": told, "message": "Not there", "data": { "uri": "file:///a" } });
        assert_eq!(answer.json()["error"], expected);
    }
}

#[tokio::test]
async fn a_call_that_runs_when_the_server_forgets_its_session_is_not_sent_again() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let running = tokio::spawn({
        let client = client.clone();
        async move { client.answer("tools/call", json!({ "name": "slow" })).await }
    });
    let _slow = upstream.held("slow").await;
    upstream.forget_sessions();
    assert_eq!(client.call("echo").await["resultType"], "complete", "it was refused, and is sent again");
    assert_eq!(soon(running).await.unwrap().json()["error"]["code"], -32603);
    assert_eq!(upstream.count("slow"), 1, "it ran once");
}

#[tokio::test]
async fn a_call_that_runs_when_taskgate_stops_is_answered() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let calling = tokio::spawn(async move { client.answer("tools/call", json!({ "name": "slow" })).await });
    let _slow = upstream.held("slow").await.sse();
    soon(gate.stop()).await;
    assert_eq!(soon(calling).await.unwrap().json()["error"]["code"], -32603);
}

#[tokio::test]
async fn a_method_that_the_server_does_not_know_is_404() {
    // Where there are tools, it is the tool that is not known.
    for (capabilities, call_status) in [(json!({ "tools": {} }), 200), (json!({ "prompts": {} }), 404)] {
        let upstream = Upstream::start(Options { capabilities, ..Options::default() }).await;
        let gate = Gate::before(&upstream).await;
        upstream.hold("prompts/list");
        let client = Modern::plain(&gate.url);
        let listing = client.clone();
        let listing = tokio::spawn(async move { listing.refusal("prompts/list", json!({})).await });
        upstream.held("prompts/list").await.error(r#"{"code":-32601,"message":"Method not found"}"#);
        assert_eq!(soon(listing).await.unwrap(), (404, -32601, "Method not found".to_owned()));
        let calling = tokio::spawn(async move { client.refusal("tools/call", json!({ "name": "slow" })).await });
        upstream.held("slow").await.error(r#"{"code":-32601,"message":"Unknown"}"#);
        assert_eq!(soon(calling).await.unwrap(), (call_status, -32601, "Unknown".to_owned()));
    }
}

#[tokio::test]
async fn a_server_that_logs_is_told_the_level_of_a_retry_before_its_answers() {
    let capabilities = json!({ "tools": {}, "logging": {} });
    let upstream = Upstream::start(Options { answers: Answers::Sse, capabilities, ..Options::default() }).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"10m\"\n").await;
    let client = Modern::able(&gate.url, json!({ "roots": {} }));
    let ask = async {
        let slow = upstream.held("slow").await.sse();
        slow.event(r#"{"jsonrpc":"2.0","id":"q1","method":"roots/list"}"#).await;
        slow
    };
    let (asked, slow) = tokio::join!(client.call("slow"), ask);
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let retry = json!({
        "name": "slow", "arguments": {}, "requestState": asked["requestState"], "inputResponses": { key: { "roots": [] } },
        "_meta": { LOG_LEVEL: "debug" },
    });
    let go_on = async {
        let told = upstream.held("logging/setLevel").await;
        assert_eq!(told.seen.json()["params"], json!({ "level": "debug" }));
        told.result("{}");
        let is_answer = |seen: &Seen| seen.rpc().is_empty() && seen.json()["id"] == "q1";
        upstream.wait_for(is_answer).await;
        let seen = upstream.seen();
        let level = seen.iter().position(|seen| seen.rpc() == "logging/setLevel");
        assert!(level.unwrap() < seen.iter().position(is_answer).unwrap());
        slow.result(r#"{"content":[]}"#).await;
    };
    let (result, ()) = tokio::join!(client.result("tools/call", retry), go_on);
    assert_eq!(result["resultType"], "complete");
}
