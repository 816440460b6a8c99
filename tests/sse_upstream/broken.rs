//! When the stream ends: nothing hangs, nothing runs twice, and the client starts anew.

use serde_json::json;

use super::all;
use crate::kit::{Client, SseUpstream, status_of, text_of};

/// How a stream can end.
#[derive(Clone, Copy, Debug)]
enum End {
    Politely,
    Cut,
    InAnEvent,
}

impl End {
    const ALL: [Self; 3] = [Self::Politely, Self::Cut, Self::InAnEvent];

    async fn of(self, server: &SseUpstream, number: usize) {
        match self {
            Self::Politely => server.end(number),
            Self::Cut => server.cut(number).await,
            Self::InAnEvent => {
                server.stream(number).raw("data: {\"jsonrpc\":\"2.0\",\"id\":").await;
                server.end(number);
            }
        }
    }
}

#[tokio::test]
async fn the_end_of_a_stream_fails_its_calls_says_why_and_sends_the_client_to_a_new_session() {
    for end in End::ALL {
        let (server, gate, client) = all().await;
        let caller = client.clone();
        let call = tokio::spawn(async move { caller.error("tools/call", json!({ "name": "slow" })).await });
        server.message("slow").await;
        end.of(&server, 1).await;
        let (code, message) = call.await.unwrap();
        assert_eq!(code, -32603);
        assert!(message.contains("event stream") && message.contains("which ends the session"), "{message}");
        assert_eq!(client.answer("ping", json!({})).await.status, 404, "{end:?}");
        assert_eq!(client.notify("notifications/x", json!({})).await, 404);
        let client = Client::connect(&gate.url).await;
        assert_eq!(text_of(&client, "echo").await, "{}");
        assert_eq!((server.count("slow"), server.count("GET")), (1, 2));
    }
}

#[tokio::test]
async fn a_task_whose_stream_ends_fails_says_why_and_is_not_run_again() {
    for end in End::ALL {
        let (server, gate, client) = all().await;
        let id = client.create_id("slow").await;
        server.message("slow").await;
        let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
        waiting.head().await;
        end.of(&server, 1).await;
        let error = waiting.message().await["error"].take();
        // The task can still be polled; anything that needs the server sends the client to a new session.
        let task = client.get(&id).await;
        assert_eq!((status_of(&task), &task["statusMessage"]), ("failed", &error["message"]));
        assert!(task["statusMessage"].as_str().unwrap().contains("event stream"), "{task}");
        for (method, params) in [("ping", json!({})), ("tools/call", json!({ "name": "echo", "task": {} }))] {
            assert_eq!(client.answer(method, params).await.status, 404, "{method}");
        }
        Client::connect(&gate.url).await;
        assert_eq!(server.count("slow"), 1, "{end:?}");
    }
}

#[tokio::test]
async fn the_end_of_a_stream_affects_no_other_session() {
    let (server, gate, _) = all().await;
    let other = Client::connect(&gate.url).await;
    let id = other.create_id("slow").await;
    let slow = server.message("slow").await;
    server.cut(1).await;
    server.answer(&slow, r#"{"content":[]}"#).await;
    other.until(&id, "completed").await;
    assert_eq!(text_of(&other, "echo").await, "{}");
}

#[tokio::test]
async fn an_event_over_the_limit_ends_the_session_and_the_limit_is_named() {
    let (server, gate, client) = all().await;
    let id = client.create_id("slow").await;
    server.message("slow").await;
    let stream = server.stream(1);
    let flooding = tokio::spawn(async move {
        let part = "x".repeat(1 << 20);
        stream.raw("data: \"").await;
        for _ in 0..64 {
            stream.raw(&part).await;
        }
        stream
    });
    let task = client.until(&id, "failed").await;
    assert!(task["statusMessage"].as_str().unwrap().contains("67108864 bytes"), "{task}");
    drop(flooding.await.unwrap());
    server.abandoned(1).await;
    assert_eq!(client.answer("ping", json!({})).await.status, 404);
    Client::connect(&gate.url).await;
}
