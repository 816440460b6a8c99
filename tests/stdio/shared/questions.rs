//! What a shared child asks and reports, and which of its sessions hears it.

use serde_json::json;

use super::{SERVER, call, shared, with_elicitation};
use crate::kit::{Client, text_in, text_of};

#[tokio::test]
async fn a_question_goes_to_the_session_with_the_only_call_and_only_its_first_answer_goes_back() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (with_elicitation(&gate).await, with_elicitation(&gate).await);
    let child = children.only().await;
    let mut heard_by_bob = bob.get_stream().await;
    let mut call = ann.stream("tools/call", json!({ "name": "ask" }));
    let question = call.message().await;
    assert_eq!(question["params"]["message"], "Really?");
    // Another session's answer is accepted, and goes nowhere.
    assert_eq!(bob.respond(&question["id"], json!({ "action": "decline" })).await, 202);
    assert_eq!(ann.respond(&question["id"], json!({ "action": "accept" })).await, 202);
    assert_eq!(ann.respond(&question["id"], json!({ "action": "cancel" })).await, 202);
    assert!(text_in(&call.message().await["result"]).contains("action:accept"));
    let answers = child.lines().into_iter().filter(|line| line.contains("action")).count();
    assert_eq!(answers, 1);
    text_of(&ann, "change").await;
    assert_eq!(heard_by_bob.message().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn with_several_calls_in_flight_the_session_with_the_newest_call_is_asked() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (with_elicitation(&gate).await, with_elicitation(&gate).await);
    let child = children.only().await;
    let of_ann = call(&ann, &child, "keep ann").await;
    let mut asking = bob.stream("tools/call", json!({ "name": "ask" }));
    let question = asking.message().await;
    assert_eq!(ann.respond(&question["id"], json!({ "action": "decline" })).await, 202);
    assert_eq!(bob.respond(&question["id"], json!({ "action": "accept" })).await, 202);
    assert!(text_in(&asking.message().await["result"]).contains("action:accept"));
    text_of(&bob, "give ann").await;
    of_ann.await.unwrap();
}

#[tokio::test]
async fn a_session_whose_client_cannot_be_asked_answers_with_an_error_at_once() {
    let (_children, gate) = shared(SERVER).await;
    let (unable, able) = (Client::connect(&gate.url).await, with_elicitation(&gate).await);
    let _listening = able.get_stream().await;
    let answer = text_of(&unable, "ask").await;
    assert!(answer.contains("error:") && answer.contains("Client does not support elicitation"), "{answer}");
}

#[tokio::test]
async fn a_question_whose_session_ends_is_answered_with_an_error() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (with_elicitation(&gate).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let mut asking = ann.stream("tools/call", json!({ "name": "ask" }));
    asking.message().await;
    ann.delete().await;
    let answer = child.message("the session that was asked has ended").await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("q-1"), &json!(-32603)));
    assert_eq!(text_of(&bob, "pid").await, child.pid);
}

#[tokio::test]
async fn a_question_that_is_withdrawn_is_withdrawn_from_the_session_that_got_it() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (with_elicitation(&gate).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let mut asking = ann.stream("tools/call", json!({ "name": "ask" }));
    let question = asking.message().await;
    assert_eq!(text_of(&bob, "withdraw").await, "withdrawn");
    let withdrawn = asking.message().await;
    assert_eq!(
        (&withdrawn["method"], &withdrawn["params"]["requestId"]),
        (&json!("notifications/cancelled"), &json!("q-1"))
    );
    // An answer that comes too late.
    assert_eq!(ann.respond(&question["id"], json!({ "action": "accept" })).await, 202);
    text_of(&bob, "pid").await;
    assert!(!child.lines().iter().any(|line| line.contains("accept")));
}

#[tokio::test]
async fn a_ping_of_the_child_is_answered_by_taskgate() {
    let (_children, gate) = shared(SERVER).await;
    let client = Client::connect(&gate.url).await;
    assert!(text_of(&client, "ping back").await.contains("result:{}"));
}

#[tokio::test]
async fn a_notification_about_the_server_as_a_whole_reaches_every_session() {
    let (_children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let (mut of_ann, mut of_bob) = (ann.get_stream().await, bob.get_stream().await);
    text_of(&ann, "change").await;
    assert_eq!(of_ann.message().await["method"], "notifications/tools/list_changed");
    assert_eq!(of_bob.message().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_task_that_asks_gets_its_own_sessions_answer() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (with_elicitation(&gate).await, with_elicitation(&gate).await);
    let child = children.only().await;
    let (mut of_ann, _of_bob) = (ann.get_stream().await, bob.get_stream().await);
    let task = ann.create_id("ask").await;
    let question = loop {
        // The changes of the task's status come there too.
        let message = of_ann.message().await;
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    assert_eq!(bob.respond(&question["id"], json!({ "action": "decline" })).await, 202);
    assert_eq!(ann.respond(&question["id"], json!({ "action": "accept" })).await, 202);
    ann.until(&task, "completed").await;
    assert!(text_in(&ann.collect(&task).await["result"]).contains("action:accept"));
    assert_eq!(child.lines().iter().filter(|line| line.contains("action")).count(), 1);
}
