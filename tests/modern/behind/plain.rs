//! Requests that are no tasks pass in both directions.

use serde_json::json;

use crate::{
    client::{LOG_LEVEL, Modern, TASKS},
    kit::{Gate, Upstream, soon},
};

#[tokio::test]
async fn a_request_goes_up_as_it_came_under_a_number_of_taskgate_and_without_a_session() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {}, "extensions": { "com.example/x": {} } }));
    let params =
        json!({ "name": "echo", "arguments": { "a": 1.50 }, "_meta": { "progressToken": "mine", "com.example/y": 1 } });
    client.result("tools/call", params.clone()).await;
    let call = upstream.wait_for(|seen| seen.rpc() == "tools/call").await.json();
    let mut expected = client.params(params);
    assert!(call["params"]["_meta"]["progressToken"].is_u64(), "{call}");
    expected["_meta"]["progressToken"] = call["params"]["_meta"]["progressToken"].clone();
    assert_eq!(call["params"], expected);
    assert_eq!(upstream.count("initialize"), 0);
    assert!(upstream.seen().iter().all(|seen| seen.header("mcp-session-id").is_empty()));
}

#[tokio::test]
async fn a_request_that_needs_no_change_keeps_every_byte_but_its_id_and_headers_that_mirror_it_pass() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let meta = client.params(json!({}))["_meta"].to_string();
    let text = |id: &str| {
        format!(
            r#"{{ "method":"tools/call", "id":{id},"params": {{"name" :"echo","arguments":{{"a":1.50e0}},"_meta":{meta}}} ,"jsonrpc":"2.0"}}"#
        )
    };
    let http = client.http.with("mcp-protocol-version", "2026-07-28").with("mcp-method", "tools/call");
    let http = http.with("mcp-name", "echo").with("mcp-param-region", "us");
    let answer = http.post(text("\"my id\"")).await;
    let call = upstream.wait_for(|seen| seen.rpc() == "tools/call").await;
    assert_eq!(call.text(), text(&call.id()));
    assert_eq!(
        (call.header("mcp-method"), call.header("mcp-name"), call.header("mcp-param-region")),
        ("tools/call", "echo", "us")
    );
    assert_eq!(answer.json()["id"], "my id");
}

#[tokio::test]
async fn an_answer_comes_back_as_it_is() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let calling = tokio::spawn(async move { client.answer("tools/call", json!({ "name": "slow" })).await });
    let result = r#"{"resultType":"complete","ttlMs": 9 ,"cacheScope":"public","content":[],"execution":{},"x":1.50}"#;
    upstream.held("slow").await.result(result);
    let answer = soon(calling).await.unwrap();
    assert!(answer.text().contains(&format!(r#""result":{result}"#)), "{}", answer.text());
}

#[tokio::test]
async fn lists_keep_what_the_server_says_of_caching_and_discover_gets_the_extension() {
    let upstream = Upstream::modern(json!({ "tools": {}, "extensions": { "com.example/x": { "a": 1 } } })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let list = client.result("tools/list", json!({})).await;
    assert_eq!((&list["ttlMs"], &list["cacheScope"]), (&json!(7), &json!("public")));
    let discovered = client.result("server/discover", json!({})).await;
    assert_eq!(discovered["capabilities"]["extensions"], json!({ TASKS: {}, "com.example/x": { "a": 1 } }));
    assert_eq!(discovered["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!((&discovered["ttlMs"], &discovered["cacheScope"]), (&json!(7), &json!("public")));
    assert_eq!(discovered["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "modern-server");
}

#[tokio::test]
async fn progress_and_log_messages_come_on_the_stream_of_the_request_under_the_clients_token() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let meta = json!({ "progressToken": "mine", LOG_LEVEL: "debug" });
    let mut stream = client.stream("tools/call", json!({ "name": "slow", "_meta": meta }));
    let slow = upstream.held("slow").await.sse();
    slow.progress(1).await;
    let progress = stream.message().await;
    assert_eq!(progress["params"]["progressToken"], "mine");
    slow.notify("notifications/message", json!({ "level": "debug", "data": "x" })).await;
    assert_eq!(stream.message().await["params"]["data"], "x");
    slow.result(r#"{"resultType":"complete","content":[]}"#).await;
    assert_eq!(stream.message().await["result"]["resultType"], "complete");
}

#[tokio::test]
async fn no_request_gets_log_messages_below_the_level_that_it_names_nor_changes_of_lists() {
    let upstream = Upstream::modern(json!({ "tools": {}, "logging": {} })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    for meta in [json!({}), json!({ LOG_LEVEL: "error" })] {
        let mut stream = client.stream("tools/call", json!({ "name": "slow", "_meta": meta }));
        let slow = upstream.held("slow").await.sse();
        // A level that cannot be read is none that was asked for.
        for level in [json!("debug"), json!("warning"), json!("loud"), json!(7)] {
            slow.notify("notifications/message", json!({ "level": level, "data": "x" })).await;
        }
        // No client has subscribed to this change.
        slow.notify("notifications/tools/list_changed", json!({})).await;
        slow.notify("notifications/com.example/own", json!({})).await;
        assert_eq!(stream.message().await["method"], "notifications/com.example/own", "the server is modern");
        slow.result(r#"{"resultType":"complete","content":[]}"#).await;
        assert_eq!(stream.message().await["result"]["resultType"], "complete");
    }
}

#[tokio::test]
async fn a_result_without_a_type_is_complete() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    for (method, result) in [
        ("tools/call", r#"{"content":[]}"#),
        ("tools/call", r#"{"content":[{"type":"text","text":"the resultType of it"}]}"#),
        ("tools/call", r#"{"content":[],"structuredContent":{"resultType":"widget"}}"#),
        ("tools/call", r#"{"content":[{"type":"text","text":"caf\u00e9"}]}"#),
        ("tools/list", r#"{"tools":[]}"#),
        ("com.example/own", "{}"),
    ] {
        upstream.hold(method);
        let client = Modern::plain(&gate.url);
        let asking = tokio::spawn(async move { client.result(method, json!({ "name": "slow" })).await });
        upstream.held(if method == "tools/call" { "slow" } else { method }).await.result(result);
        assert_eq!(soon(asking).await.unwrap()["resultType"], "complete", "{method} {result}");
    }
}

#[tokio::test]
async fn a_result_of_a_type_that_a_request_must_not_have_is_a_bad_answer() {
    let upstream = Upstream::modern(json!({ "tools": {}, "extensions": { TASKS: {} } })).await;
    let gate = Gate::with(&upstream, "[tasks]\nnative = \"keep\"\n").await;
    let (plain, able) = (Modern::plain(&gate.url), Modern::with_tasks(&gate.url));
    let asks = r#"{"resultType":"input_required","requestState":"s"}"#;
    let task = r#"{"resultType":"task","taskId":"a","status":"working"}"#;
    for (client, method, result, about) in [
        (&able, "tools/list", asks, "asks for input"),
        (&able, "prompts/list", asks, "asks for input"),
        (&able, "completion/complete", asks, "asks for input"),
        (&able, "com.example/own", r#"{"resultType":"input_\u0072equired","requestState":"s"}"#, "asks for input"),
        (&able, "prompts/get", task, "only tools/call"),
        (&plain, "tools/call", task, "was not told"),
        (&able, "tools/call", r#"{"resultType":5,"content":[]}"#, "no text"),
    ] {
        upstream.hold(method);
        let client = client.clone();
        let asking = tokio::spawn(async move { client.refusal(method, json!({ "name": "slow" })).await });
        upstream.held(if method == "tools/call" { "slow" } else { method }).await.result(result);
        let (status, code, message) = soon(asking).await.unwrap();
        assert_eq!((status, code), (200, -32603), "{method}");
        assert!(message.contains(about), "{method}: {message}");
    }
    upstream.hold("prompts/get");
    let asking = tokio::spawn(async move { plain.result("prompts/get", json!({ "name": "slow" })).await });
    upstream.held("prompts/get").await.result(asks);
    assert_eq!(soon(asking).await.unwrap()["requestState"], "s");
}

#[tokio::test]
async fn a_task_method_without_the_extension_is_refused_before_it_goes_up() {
    let upstream = Upstream::modern(json!({ "tools": {}, "extensions": { TASKS: {} } })).await;
    let gate = Gate::with(&upstream, "[tasks]\nnative = \"keep\"\n").await;
    let client = Modern::plain(&gate.url);
    client.call("echo").await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let (status, code, _) = client.refusal(method, json!({ "taskId": "theirs-1" })).await;
        assert_eq!((status, code), (400, -32021), "{method}");
        assert_eq!(upstream.count(method), 0);
    }
}

#[tokio::test]
async fn an_error_keeps_its_status_and_a_method_that_only_the_server_knows_reaches_it() {
    let upstream = Upstream::modern(json!({})).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let asking = tokio::spawn({
        let client = client.clone();
        async move { client.refusal("com.example/own", json!({})).await }
    });
    let held = upstream.held("com.example/own").await;
    let error = r#"{"code":-32021,"message":"no","data":{"requiredCapabilities":{"sampling":{}}}}"#;
    let body = held.response(&format!(r#""error":{error}"#));
    held.status(400, &[("content-type", "application/json")], &body);
    assert_eq!(soon(asking).await.unwrap(), (400, -32021, "no".to_owned()));
}

#[tokio::test]
async fn a_client_that_leaves_closes_its_request_at_the_server() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let calling = tokio::spawn(async move { client.call("slow").await });
    let held = upstream.held("slow").await;
    calling.abort();
    held.abandoned().await;
    assert_eq!(upstream.count("notifications/cancelled"), 0);
}

#[tokio::test]
async fn a_stream_that_breaks_is_not_resumed_although_its_events_have_ids() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let mut stream = client.stream("tools/call", json!({ "name": "slow", "_meta": { LOG_LEVEL: "info" } }));
    let slow = upstream.held("slow").await.sse();
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } });
    slow.raw(&format!("id: 7\ndata: {log}\n\n")).await;
    stream.message().await;
    slow.cut().await;
    assert_eq!(stream.message().await["error"]["code"], -32603);
    assert!(upstream.seen().iter().all(|seen| seen.method == "POST"));
}
