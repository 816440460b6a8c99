//! When the server has forgotten a session, but keeps its stream open: no call waits for what does not come there.

use serde_json::{Value, json};

use super::{all, gate};
use crate::kit::{Client, Gate, SseOptions, SseUpstream, Stream, text_of};

/// How servers refuse a message of a session that they do not know.
const REFUSALS: [(u16, &str); 2] = [(404, "Could not find session"), (400, "No transport found for sessionId")];

const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"Really?"}}"#;

fn forgetting(refusal: (u16, &'static str)) -> SseOptions {
    SseOptions { accepted: refusal, ..<_>::default() }
}

/// Begins calls, and has the server ask. Returns the calls.
async fn asking(server: &SseUpstream, client: &Client, calls: usize) -> Vec<Stream> {
    let begin = |nth| client.stream("tools/call", json!({ "name": format!("slow-{nth}") }));
    let begun = (0..calls).map(begin).collect();
    for nth in 0..calls {
        server.message(&format!("slow-{nth}")).await;
    }
    server.stream(1).event(QUESTION).await;
    begun
}

/// Returns the next question on a stream.
async fn asked(listening: &mut Stream) -> Value {
    loop {
        let message = listening.message().await;
        if message["method"] == "elicitation/create" {
            return message;
        }
    }
}

async fn able(gate: &Gate) -> Client {
    Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await
}

#[tokio::test]
async fn an_answer_that_is_refused_ends_the_call_that_asked_and_sends_the_client_to_a_new_session() {
    for refusal in REFUSALS {
        let server = SseUpstream::new().await;
        let gate = gate(&server).await;
        let client = able(&gate).await;
        let mut call = asking(&server, &client, 1).await.remove(0);
        let question = call.message().await;
        server.become_one_that(forgetting(refusal));
        assert_eq!(client.respond(&question["id"], json!({ "action": "decline" })).await, 404, "{refusal:?}");
        let error = call.message().await["error"].take();
        assert!(error["message"].as_str().unwrap().contains("has ended the session"), "{error}");
        server.become_one_that(SseOptions::default());
        assert_eq!(client.answer("ping", json!({})).await.status, 404);
        assert_eq!(text_of(&Client::connect(&gate.url).await, "echo").await, "{}");
    }
}

/// A client that was told to begin anew would repeat the call.
fn may_have_run(answer: &Value) {
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.contains("has ended the session") && why.contains("check before you repeat it"), "{why}");
}

#[tokio::test]
async fn an_answer_that_is_refused_ends_every_call_of_the_session_that_may_have_asked() {
    for refusal in REFUSALS {
        let server = SseUpstream::new().await;
        let gate = gate(&server).await;
        let client = able(&gate).await;
        let mut listening = client.get_stream().await;
        let calls = asking(&server, &client, 2).await;
        let question = listening.message().await;
        server.become_one_that(forgetting(refusal));
        assert_eq!(client.respond(&question["id"], json!({ "action": "decline" })).await, 404, "{refusal:?}");
        for call in calls {
            may_have_run(&call.last().await);
        }
    }
}

#[tokio::test]
async fn a_task_whose_answer_is_refused_fails_and_says_why() {
    for refusal in REFUSALS {
        let server = SseUpstream::new().await;
        let gate = gate(&server).await;
        let client = able(&gate).await;
        let mut listening = client.get_stream().await;
        let id = client.create_id("slow").await;
        server.message("slow").await;
        server.stream(1).event(QUESTION).await;
        let question = asked(&mut listening).await;
        server.become_one_that(forgetting(refusal));
        client.respond(&question["id"], json!({ "action": "decline" })).await;
        let task = client.until(&id, "failed").await;
        assert!(task["statusMessage"].as_str().unwrap().contains("has ended the session"), "{task}");
        assert_eq!(server.count("slow"), 1);
    }
}

#[tokio::test]
async fn a_request_that_is_refused_with_404_ends_the_calls_that_wait_and_sends_the_client_to_a_new_session() {
    let (server, gate, client) = all().await;
    let plain = client.stream("tools/call", json!({ "name": "slow" }));
    let id = client.create_id("slow-task").await;
    server.message("slow").await;
    server.message("slow-task").await;
    server.become_one_that(forgetting(REFUSALS[0]));
    assert_eq!(client.answer("ping", json!({})).await.status, 404);
    may_have_run(&plain.last().await);
    let task = client.until(&id, "failed").await;
    assert!(task["statusMessage"].as_str().unwrap().contains("has ended the session"), "{task}");
    server.become_one_that(SseOptions::default());
    assert_eq!(text_of(&Client::connect(&gate.url).await, "echo").await, "{}");
    assert_eq!((server.count("slow"), server.count("slow-task")), (1, 1));
}

#[tokio::test]
async fn a_request_that_is_refused_with_400_sends_the_client_to_a_new_session_and_leaves_tasks_alone() {
    let (server, gate, client) = all().await;
    let id = client.create_id("slow").await;
    server.message("slow").await;
    server.become_one_that(forgetting(REFUSALS[1]));
    for _ in 0..2 {
        assert_eq!(client.answer("ping", json!({})).await.status, 404);
    }
    assert_eq!(client.get(&id).await["status"], "working");
    server.become_one_that(SseOptions::default());
    assert_eq!(text_of(&Client::connect(&gate.url).await, "echo").await, "{}");
}

#[tokio::test]
async fn an_answer_reaches_the_server_also_after_it_has_refused_a_request_with_400() {
    let server = SseUpstream::new().await;
    let gate = gate(&server).await;
    let client = able(&gate).await;
    // Keeps the session.
    client.create_id("slow").await;
    server.message("slow").await;
    let mut listening = client.get_stream().await;
    let calls = asking(&server, &client, 1).await;
    let question = asked(&mut listening).await;
    server.become_one_that(forgetting(REFUSALS[1]));
    assert_eq!(client.answer("ping", json!({})).await.status, 404);
    assert_eq!(client.respond(&question["id"], json!({ "action": "decline" })).await, 404);
    for call in calls {
        may_have_run(&call.last().await);
    }
}
