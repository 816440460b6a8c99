//! When the upstream fails: a failed task that says why, and nothing that hangs.

use serde_json::json;

use crate::{
    input,
    kit::{Client, Upstream, eventually, house, status_of},
};

#[tokio::test]
async fn a_task_whose_upstream_is_down_fails_and_says_why() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.stop().await;
    let id = client.create_id("slow").await;
    let task = client.until(&id, "failed").await;
    let message = task["statusMessage"].as_str().unwrap();
    assert!(message.contains("cannot be reached"), "{message}");
    assert_eq!(client.collect(&id).await["error"], json!({ "code": -32603, "message": message }));
    // And when it is back, the next task runs.
    upstream.start_again().await;
    let id = client.create_id("echo").await;
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn a_task_whose_upstream_goes_down_fails_and_is_not_run_again() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    let _slow = upstream.held("slow").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    upstream.stop().await;
    upstream.start_again().await;
    let response = waiting.message().await;
    let task = client.get(&id).await;
    assert_eq!((status_of(&task), &task["statusMessage"]), ("failed", &response["error"]["message"]));
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_task_whose_answer_breaks_off_is_resumed_where_the_upstream_gave_event_ids() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let params = json!({ "name": "slow", "task": {}, "_meta": { "progressToken": "t" } });
    let id = client.ask("tools/call", params).await["task"]["taskId"].as_str().unwrap().to_owned();
    let slow = upstream.held("slow").await.sse();
    slow.raw("id: 1\nretry: 10\ndata: \n\n").await;
    slow.progress(1).await;
    // It has been read, so that the broken connection does not take the event id with it.
    client.until_task(&id, |task| task["statusMessage"] == "1").await;
    let number = slow.seen.id();
    slow.cut().await;
    let resumed = upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "1");
    resumed.event(&format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"content":[]}}}}"#)).await;
    client.until(&id, "completed").await;
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_task_whose_answer_breaks_off_for_good_fails_and_says_why() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let id = client.create_id("slow").await;
    drop(upstream.held("slow").await.sse());
    let task = client.until(&id, "failed").await;
    assert!(task["statusMessage"].as_str().unwrap().contains("before the response"), "{task}");
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_task_that_the_upstream_refuses_fails_with_status_and_text() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    for status in [401, 500] {
        let id = client.create_id("slow").await;
        upstream.held("slow").await.status(status, &[], "not on my watch");
        let task = client.until(&id, "failed").await;
        let message = task["statusMessage"].as_str().unwrap();
        assert!(message.contains(&status.to_string()) && message.contains("not on my watch"), "{message}");
    }
}

#[tokio::test]
async fn a_task_whose_upstream_has_forgotten_the_session_fails_and_the_client_starts_anew() {
    let (upstream, gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    slow.status(404, &[], "no such session");
    let response = waiting.message().await;
    upstream.forget_sessions();
    assert!(response["error"]["message"].as_str().unwrap().contains("session"), "{response}");
    // The task can still be polled; anything that needs the upstream sends the client to a new session.
    let task = client.get(&id).await;
    assert_eq!((status_of(&task), &task["statusMessage"]), ("failed", &response["error"]["message"]));
    let another = json!({ "name": "echo", "task": {} });
    for (method, params) in [("ping", json!({})), ("tools/list", json!({})), ("tools/call", another)] {
        assert_eq!(client.answer(method, params).await.status, 404, "{method}");
    }
    assert_eq!(client.send(http::Method::GET, "").await.status, 404);
    assert_eq!(client.notify("notifications/x", json!({})).await, 404);
    Client::connect(&gate.url).await;
}

#[tokio::test]
async fn a_huge_error_text_of_the_upstream_is_cut_down() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    let text = "é".repeat(100_000);
    upstream
        .held("slow")
        .await
        .result(&json!({ "isError": true, "content": [{ "type": "text", "text": text }] }).to_string());
    let task = client.until(&id, "failed").await;
    assert!(task["statusMessage"].as_str().unwrap().chars().count() < 2000);
    assert_eq!(client.collect(&id).await["result"]["content"][0]["text"], json!(text));
}

#[tokio::test]
async fn tasks_that_have_ended_can_be_collected_although_the_upstream_has_forgotten_the_session() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("echo").await;
    client.until(&id, "completed").await;
    upstream.forget_sessions();
    assert_eq!(client.answer("ping", json!({})).await.status, 404);
    assert_eq!(client.collect(&id).await["result"]["content"][0]["text"], "{}");
    assert_eq!(client.list().await, [id]);
    assert_eq!(client.delete().await.status, 200);
    assert_eq!(client.answer("tasks/list", json!({})).await.status, 404);
}

#[tokio::test]
async fn an_answer_to_a_server_that_cannot_be_reached_is_sent_once_it_is_back() {
    let house = input::house().await;
    house.slow.raw("id: 1\nretry: 1000\ndata: \n\n").await;
    house.asks("ask", "Which account?").await;
    let asked = input::question(&mut house.waiting().await).await;
    house.upstream.stop().await;
    let unreachable = async || {
        let refused = house.client.answer("ping", json!({})).await;
        refused.text().contains("cannot be reached").then_some(())
    };
    eventually(unreachable).await;
    house.accept(&asked).await;
    house.upstream.start_again().await;
    assert_eq!(house.answer_to("ask").await["result"]["action"], "accept");
    let resumed = house.upstream.resumed().await;
    let number = house.slow.seen.id();
    resumed.event(&format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"content":[]}}}}"#)).await;
    house.client.until(&house.id, "completed").await;
}
