//! `tasks/cancel`: cancelled before the answer, and for good.

use serde_json::json;

use crate::kit::{Answers, Client, Gate, Options, Upstream, house, status_of};

#[tokio::test]
async fn a_task_is_cancelled_before_the_answer_and_the_upstream_is_told() {
    for answers in [Answers::Json, Answers::Sse] {
        let upstream = Upstream::start(Options { answers, ..Options::default() }).await;
        let gate = Gate::before(&upstream).await;
        let client = Client::connect(&gate.url).await.with("authorization", "Bearer t0ken");
        let id = client.create_id("slow").await;
        let slow = upstream.held("slow").await;
        let number = slow.seen.json()["id"].take();
        let cancelled = client.cancel(&id).await;
        assert_eq!((&cancelled["taskId"], &cancelled["status"]), (&json!(id), &json!("cancelled")));
        assert!(cancelled["statusMessage"].is_string() && cancelled.get("_meta").is_none(), "{cancelled}");
        assert_eq!(client.get(&id).await, cancelled);
        let told = upstream.wait_for_message("notifications/cancelled").await;
        assert_eq!(told.json()["params"]["requestId"], number);
        assert_eq!(told.header("authorization"), "Bearer t0ken");
        // An upstream that ignores the notification sees its connection go.
        slow.abandoned().await;
    }
}

#[tokio::test]
async fn a_cancelled_task_stays_cancelled_whatever_the_call_does() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.hold("notifications/cancelled");
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let cancelled = client.cancel(&id).await;
    let told = upstream.held("notifications/cancelled").await;
    slow.result(r#"{"content":[]}"#);
    told.status(202, &[], "");
    // Another call on the same link, after which the answer above has been processed.
    let other = client.create_id("echo").await;
    client.until(&other, "completed").await;
    assert_eq!(client.get(&id).await, cancelled);
    assert_eq!(client.collect(&id).await["error"]["code"], -32603);
}

#[tokio::test]
async fn the_answer_to_tasks_cancel_does_not_wait_for_the_upstream() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.hold("notifications/cancelled");
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    assert_eq!(status_of(&client.cancel(&id).await), "cancelled");
    let told = upstream.held("notifications/cancelled").await;
    assert!(slow.is_open());
    told.status(202, &[], "");
    slow.abandoned().await;
}

#[tokio::test]
async fn waiters_of_a_cancelled_task_are_answered() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    client.cancel(&id).await;
    let response = waiting.message().await;
    assert!(response["error"]["message"].as_str().unwrap().contains("cancelled"), "{response}");
    assert_eq!(client.collect(&id).await["error"], response["error"]);
}

#[tokio::test]
async fn a_task_in_a_terminal_status_cannot_be_cancelled() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    for (tool, status) in [("echo", "completed"), ("fail", "failed"), ("slow", "cancelled")] {
        let id = client.create_id(tool).await;
        if tool == "slow" {
            client.cancel(&id).await;
        }
        let task = client.until(&id, status).await;
        let (code, message) = client.error("tasks/cancel", json!({ "taskId": id })).await;
        assert_eq!(code, -32602);
        assert!(message.contains(status), "{message}");
        assert_eq!(client.get(&id).await, task);
    }
}

#[tokio::test]
async fn a_queued_task_that_is_cancelled_never_runs() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, "[tasks]\nmax_running = 1").await;
    let client = Client::connect(&gate.url).await;
    let (first, second, third) =
        (client.create_id("slow").await, client.create_id("slow").await, client.create_id("slow").await);
    let slow = upstream.held("slow").await;
    assert_eq!(status_of(&client.cancel(&second).await), "cancelled");
    slow.result(r#"{"content":[]}"#);
    client.until(&first, "completed").await;
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    client.until(&third, "completed").await;
    assert_eq!(upstream.count("slow"), 2);
    assert_eq!(upstream.count("notifications/cancelled"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_and_completing_at_once_end_in_one_status() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    for _ in 0..50 {
        let id = client.create_id("slow").await;
        let slow = upstream.held("slow").await;
        let cancelling = tokio::spawn({
            let (client, id) = (client.clone(), id.clone());
            async move { client.request("tasks/cancel", json!({ "taskId": id })).await }
        });
        slow.result(r#"{"content":[]}"#);
        let answer = cancelling.await.unwrap();
        let expected = if answer.get("result").is_some() { "cancelled" } else { "completed" };
        assert_eq!(status_of(&client.get(&id).await), expected, "{answer}");
    }
}
