//! An upstream that breaks, fails or sends invalid answers: a clear error, never a hang, and no call runs twice.

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Upstream, eventually, house, soon};

#[tokio::test]
async fn a_stream_that_breaks_is_resumed_where_it_broke_and_the_tool_runs_once() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect(&gate.url).await.with("authorization", "Bearer t0ken");
    let mut call = client.stream("tools/call", json!({ "name": "slow", "_meta": { "progressToken": "t" } }));
    let slow = upstream.held("slow").await.sse();
    slow.raw("id: s1/1\nretry: 10\ndata: \n\n").await;
    slow.progress(1).await;
    assert_eq!(call.message().await["params"]["progress"], 1);
    let (id, token) = (slow.seen.id(), slow.seen.json()["params"]["_meta"]["progressToken"].take());
    slow.cut().await;
    let resumed = upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "s1/1");
    assert_eq!(resumed.seen.header("mcp-session-id"), "upstream-1");
    assert_eq!(resumed.seen.header("authorization"), "Bearer t0ken");
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": token, "progress": 2 } });
    resumed.raw(&format!("id: s1/2\ndata: {progress}\n\n")).await;
    assert_eq!(call.message().await["params"], json!({ "progressToken": "t", "progress": 2 }));
    resumed.cut().await;
    let resumed = upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "s1/2");
    resumed.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"done":true}}}}"#)).await;
    assert_eq!(call.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": { "done": true } }));
    assert_eq!(call.next().await, None);
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_stream_that_breaks_without_event_ids_ends_with_an_error_and_the_tool_runs_once() {
    for cut in [true, false] {
        let upstream = Upstream::sse().await;
        let gate = Gate::before(&upstream).await;
        let client = Client::connect(&gate.url).await;
        let mut call = client.stream("tools/call", json!({ "name": "slow" }));
        let slow = upstream.held("slow").await.sse();
        slow.notify("notifications/x", json!({})).await;
        call.message().await;
        if cut {
            slow.cut().await;
        } else {
            drop(slow);
        }
        let error = call.message().await;
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(1), &json!(-32603)));
        assert!(error["error"]["message"].as_str().unwrap().contains("before the response"), "{error}");
        assert_eq!(call.next().await, None);
        assert_eq!(client.ask("ping", json!({})).await, json!({}));
        assert_eq!(upstream.count("slow"), 1);
    }
}

#[tokio::test]
async fn a_json_answer_that_breaks_is_an_error_and_the_tool_runs_once() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let asked = tokio::spawn({
        let client = client.clone();
        async move { client.error("tools/call", json!({ "name": "slow" })).await }
    });
    drop(upstream.held("slow").await);
    assert_eq!(asked.await.unwrap().0, -32603);
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn an_upstream_that_is_down_is_a_clear_error_and_works_again_when_it_is_back() {
    let (upstream, gate, client) = house(Upstream::json()).await;
    client.ask("ping", json!({})).await;
    upstream.stop().await;
    let (code, message) = client.error("tools/call", json!({ "name": "echo" })).await;
    assert_eq!(code, -32603);
    assert!(message.contains("cannot be reached") && message.contains(&upstream.url()), "{message}");
    assert_eq!(client.notify("notifications/x", json!({})).await, 202);
    let (status, code, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32603), "{message}");
    upstream.start_again().await;
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
    Client::connect(&gate.url).await;
}

#[tokio::test]
async fn a_call_in_flight_when_the_upstream_goes_down_gets_an_error() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let asked = tokio::spawn(async move { client.error("tools/call", json!({ "name": "slow" })).await });
    let _slow = upstream.held("slow").await;
    upstream.stop().await;
    assert_eq!(asked.await.unwrap().0, -32603);
    upstream.start_again().await;
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn an_invalid_answer_is_an_error_that_says_so() {
    let answers: [(u16, &str, &str); 9] = [
        (200, "application/json", "{"),
        (200, "application/json", ""),
        (200, "application/json", "[]"),
        (200, "application/json", r#""text""#),
        (200, "application/json", r#"{"jsonrpc":"2.0","method":"notifications/x"}"#),
        (200, "application/json", r#"{"jsonrpc":"2.0","id":4711,"result":{}}"#),
        (200, "text/html", "<html>"),
        (202, "text/plain", ""),
        (200, "text/event-stream", "data: {\n\n"),
    ];
    let (upstream, _gate, client) = house(Upstream::json()).await;
    for (status, content_type, body) in answers {
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.answer("tools/call", json!({ "name": "slow" })).await }
        });
        upstream.held("slow").await.status(status, &[("content-type", content_type)], body);
        let answer = asked.await.unwrap();
        let (status, code, message) = answer.refusal();
        assert_eq!((status, code), (200, -32603), "{body}: {message}");
        assert!(message.contains("the MCP server behind taskgate"), "{body}: {message}");
    }
    assert_eq!(upstream.count("slow"), answers.len());
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn an_http_error_of_the_upstream_is_an_error_of_that_request_alone() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    for status in [400, 405, 429, 500, 503] {
        for with_error in [true, false] {
            let asked = tokio::spawn({
                let client = client.clone();
                async move { client.post(r#"{"jsonrpc":"2.0","id":"mine","method":"vendor/x"}"#).await }
            });
            let held = upstream.held("vendor/x").await;
            let (content_type, body) = if with_error {
                ("application/json", held.response(r#""error":{"code":-32099,"message":"busy","data":1.50}"#))
            } else {
                ("text/plain", "come back later".to_owned())
            };
            held.status(status, &[("content-type", content_type)], &body);
            let answer = asked.await.unwrap();
            // Clients take any other status for the end of the connection, and drop everything on it.
            assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, "application/json"));
            if with_error {
                let expected = r#"{"jsonrpc":"2.0","id":"mine","error":{"code":-32099,"message":"busy","data":1.50}}"#;
                assert_eq!(answer.text(), expected);
            } else {
                let (_, code, message) = answer.refusal();
                assert_eq!((code, &answer.json()["id"]), (-32603, &json!("mine")));
                assert!(message.contains(&status.to_string()) && message.contains("come back later"), "{message}");
            }
        }
    }
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn a_notification_that_the_upstream_refuses_does_not_end_the_session() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.hold("notifications/x");
    for status in [400, 500] {
        let told = tokio::spawn({
            let client = client.clone();
            async move { client.notify("notifications/x", json!({})).await }
        });
        upstream.held("notifications/x").await.status(status, &[], "no");
        assert_eq!(told.await.unwrap(), 202);
    }
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn a_client_that_reads_slowly_loses_progress_first_and_never_the_answer() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut call = client.stream("tools/call", json!({ "name": "slow", "_meta": { "progressToken": "t" } }));
    let slow = upstream.held("slow").await.sse();
    let token = slow.seen.json()["params"]["_meta"]["progressToken"].take();
    // More than sockets and queue can hold: the reader reads nothing until all of it has been sent.
    let text = "x".repeat(64 * 1024);
    for n in 0..500 {
        let params = json!({ "progressToken": token, "progress": n, "message": text });
        slow.notify("notifications/progress", params).await;
    }
    slow.event(r#"{"jsonrpc":"2.0","id":"ask","method":"roots/list"}"#).await;
    slow.result("{}").await;
    let (mut progress, mut last): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    while let Some(event) = call.next().await {
        let message = event.json();
        let kept = if message["method"] == "notifications/progress" { &mut progress } else { &mut last };
        kept.push(message);
    }
    assert!(progress.len() < 500, "{}", progress.len());
    // The newest is among those that are kept.
    assert_eq!(progress.last().unwrap()["params"]["progress"], 499);
    assert_eq!(last.len(), 2);
    assert_eq!((&last[0]["id"], &last[1]["result"]), (&json!("ask"), &json!({})));
    eventually(async || Some(()).filter(|()| upstream.count("slow") == 1)).await;
}

#[tokio::test]
async fn an_error_of_the_server_with_much_data_reaches_the_client_and_the_task_whole() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let task = client.create_id("slow").await;
    let calling = client.clone();
    let calling = tokio::spawn(async move { calling.request("tools/call", json!({ "name": "slow" })).await });
    let error = json!({ "code": -32042, "message": "no", "data": "x".repeat(200 * 1024) });
    for status in [400, 500] {
        let held = upstream.held("slow").await;
        let id: Value = serde_json::from_str(&held.seen.id()).unwrap();
        let body = json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string();
        held.status(status, &[("content-type", "application/json")], &body);
    }
    assert!(soon(calling).await.unwrap()["error"] == error);
    client.until(&task, "failed").await;
    assert!(client.collect(&task).await["error"] == error);
}
