//! `tasks/result`: exactly what the call would have returned, once it has.

use serde_json::{Value, json};

use crate::kit::{Answers, Client, Gate, Options, Upstream, house, status_of};

const RELATED: &str = "io.modelcontextprotocol/related-task";

#[tokio::test]
async fn a_result_is_what_the_call_returned_plus_the_related_task() {
    for (raw, expected) in [
        (
            r#"{"content":[ {"type":"text","text":"caf\u00e9"}],"n":1.50,"big":123456789012345678901234567890}"#,
            r#"{"_meta":{KEY},"content":[ {"type":"text","text":"caf\u00e9"}],"n":1.50,"big":123456789012345678901234567890}"#,
        ),
        (r#"{"_meta":{"x":[ 1e2 ]},"content":[]}"#, r#"{"_meta":{KEY,"x":[ 1e2 ]},"content":[]}"#),
        ("{}", r#"{"_meta":{KEY}}"#),
    ] {
        for answers in [Answers::Json, Answers::Sse] {
            let upstream = Upstream::start(Options { answers, ..Options::default() }).await;
            let gate = Gate::before(&upstream).await;
            let client = Client::connect(&gate.url).await;
            let id = client.create_id("slow").await;
            upstream.held("slow").await.result(raw);
            client.until(&id, "completed").await;
            let answer = client.post(collect(&id)).await;
            assert_eq!(answer.header("content-type"), "application/json");
            let expected = expected.replace("KEY", &format!(r#""{RELATED}":{{"taskId":"{id}"}}"#));
            assert_eq!(answer.text(), format!(r#"{{"jsonrpc":"2.0","id":"mine","result":{expected}}}"#));
        }
    }
}

fn collect(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"mine","method":"tasks/result","params":{{"taskId":"{id}"}}}}"#)
}

#[tokio::test]
async fn a_related_task_of_the_upstream_is_replaced_by_the_clients() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    upstream.held("slow").await.result(&format!(r#"{{"_meta":{{"{RELATED}":{{"taskId":"theirs"}}}},"content":[]}}"#));
    let result = client.collect(&id).await["result"].take();
    assert_eq!(result["_meta"], json!({ RELATED: { "taskId": id } }));
}

#[tokio::test]
async fn a_json_rpc_error_of_the_call_fails_the_task_and_comes_back_identical() {
    let error = r#"{"code":-32042,"message":"no \u00fcber luck","data":{"x":[1.50, null]} }"#;
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    upstream.held("slow").await.error(error);
    let task = client.until(&id, "failed").await;
    assert_eq!(task["statusMessage"], "no über luck");
    let answer = client.post(collect(&id)).await;
    assert_eq!(
        (answer.status.as_u16(), answer.text()),
        (200, &*format!(r#"{{"jsonrpc":"2.0","id":"mine","error":{error}}}"#))
    );
}

#[tokio::test]
async fn an_error_result_fails_the_task_says_why_and_comes_back_as_a_result() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("fail").await;
    let task = client.until(&id, "failed").await;
    assert_eq!(task["statusMessage"], "the disk is full");
    let result = client.collect(&id).await["result"].take();
    assert_eq!(result["isError"], true);
    assert_eq!(result["content"], json!([{ "type": "text", "text": "the disk is full" }]));
    assert_eq!(result["_meta"][RELATED]["taskId"], json!(id));
}

#[tokio::test]
async fn a_result_that_is_ready_is_json_and_one_that_is_not_is_a_stream_with_the_answer() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    let (status, headers) = waiting.head().await;
    assert_eq!((status.as_u16(), headers["content-type"].to_str().unwrap()), (200, "text/event-stream"));
    slow.result(r#"{"content":[]}"#);
    let response = waiting.message().await;
    assert_eq!(response["result"], json!({ "content": [], "_meta": { RELATED: { "taskId": id } } }));
    assert_eq!(waiting.next().await, None);
    let ready = client.answer("tasks/result", json!({ "taskId": id })).await;
    assert_eq!(
        (ready.header("content-type"), ready.json()["result"].take()),
        ("application/json", response["result"].clone())
    );
}

#[tokio::test]
async fn tasks_result_blocks_while_the_task_works_and_polling_goes_on_beside_it() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    for n in 1..4 {
        slow.progress(n).await;
        client.until_task(&id, |task| task["statusMessage"] == json!(n.to_string())).await;
    }
    slow.result(r#"{"content":[]}"#).await;
    // The first event is the answer: nothing came before it.
    assert!(waiting.message().await["result"].is_object());
}

#[tokio::test]
async fn any_number_of_waiters_up_to_the_limit_get_the_result() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, "[tasks]\nmax_waiters = 5").await;
    let client = Client::connect(&gate.url).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let mut waiter = client.stream("tasks/result", json!({ "taskId": id }));
        waiter.head().await;
        waiting.push(waiter);
    }
    let (code, message) = client.error("tasks/result", json!({ "taskId": id })).await;
    assert_eq!(code, -32603);
    assert!(message.contains("max_waiters = 5"), "{message}");
    // A waiter that leaves makes room for another.
    drop(waiting.pop());
    crate::kit::eventually(async || {
        let mut waiter = client.stream("tasks/result", json!({ "taskId": id }));
        let (_, headers) = waiter.head().await;
        (headers["content-type"] == "text/event-stream").then_some(waiter)
    })
    .await;
    slow.result(r#"{"content":[]}"#);
    for mut waiter in waiting {
        assert_eq!(waiter.message().await["result"]["content"], json!([]));
    }
}

#[tokio::test]
async fn a_waiter_that_disconnects_or_cancels_its_request_does_not_cancel_the_task() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    let asked = client.next_id() - 1;
    assert_eq!(client.notify("notifications/cancelled", json!({ "requestId": asked, "reason": "timeout" })).await, 202);
    drop(waiting);
    assert_eq!(status_of(&client.get(&id).await), "working");
    slow.result(r#"{"content":[]}"#);
    assert_eq!(client.collect(&id).await["result"]["content"], json!([]));
    assert_eq!(upstream.count("notifications/cancelled"), 0, "before the result");
}

#[tokio::test]
async fn a_cancellation_of_the_creating_request_does_not_cancel_the_task() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    assert_eq!(client.notify("notifications/cancelled", json!({ "requestId": client.next_id() - 1 })).await, 202);
    assert_eq!(status_of(&client.get(&id).await), "working");
    assert!(slow.is_open());
    slow.result(r#"{"content":[]}"#);
    assert_eq!(client.collect(&id).await["result"]["content"], json!([]));
    assert_eq!(upstream.count("notifications/cancelled"), 0, "before the result");
}

#[tokio::test]
async fn a_result_can_be_collected_any_number_of_times() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("echo").await;
    let first = client.collect(&id).await["result"].take();
    assert_eq!(first["content"][0]["text"], "{}");
    for _ in 0..3 {
        assert_eq!(client.collect(&id).await["result"], first);
    }
}

#[tokio::test]
async fn a_large_result_comes_back_whole() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    let text = "é\u{1F600}x".repeat(500_000);
    let result: Value = json!({ "content": [{ "type": "text", "text": text }] });
    upstream.held("slow").await.result(&result.to_string());
    let collected = client.collect(&id).await;
    assert!(collected["result"]["content"] == result["content"]);
}
