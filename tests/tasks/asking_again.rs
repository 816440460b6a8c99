//! Questions of tasks whose streams break, or have no room.

use http::Method;
use serde_json::{Value, json};

use super::input::{house, house_with, next, question};
use crate::kit::{SMALL, Stalled, Stream};

#[tokio::test]
async fn a_question_on_a_stream_that_broke_is_asked_again_once_on_the_next() {
    let house = house().await;
    house.asks("ask", "?").await;
    let mut first = house.waiting().await;
    let asked = question(&mut first).await;
    drop(first);
    // A stream that has seen the end of the first one has the question; until then it has none.
    let again = crate::kit::eventually(async || {
        let mut second = house.waiting().await;
        let event = tokio::time::timeout(std::time::Duration::from_millis(50), question(&mut second)).await;
        event.ok()
    })
    .await;
    assert_eq!(again, asked);
    house.accept(&again).await;
    house.answer_to("ask").await;
    house.completes().await;
}

#[tokio::test]
async fn a_question_that_the_client_already_has_is_not_asked_again_when_its_stream_is_resumed() {
    let house = house().await;
    let mut listener = house.client.get_stream().await;
    house.asks("ask", "?").await;
    let asked = loop {
        let event = listener.next().await.unwrap();
        if event.json()["method"] == "elicitation/create" {
            break event;
        }
    };
    drop(listener);
    let mut resumed = house.client.with("last-event-id", asked.id.as_deref().unwrap()).get_stream().await;
    house.accept(&asked.json()).await;
    house.completes().await;
    let status = next(&mut resumed, "notifications/tasks/status").await;
    assert_eq!(status["status"], "working");
}

#[tokio::test]
async fn a_question_that_was_lost_on_the_way_is_replayed_when_its_stream_is_resumed() {
    let house = house().await;
    let mut listener = house.client.get_stream().await;
    house.slow.notify("notifications/message", json!({ "level": "info", "data": "x" })).await;
    let before = listener.next().await.unwrap();
    house.asks("ask", "?").await;
    let asked = question(&mut listener).await;
    drop(listener);
    let mut resumed = house.client.with("last-event-id", before.id.as_deref().unwrap()).get_stream().await;
    assert_eq!(question(&mut resumed).await, asked);
}

#[tokio::test]
async fn a_question_whose_stream_is_not_resumed_is_asked_on_an_open_one() {
    let house = house().await;
    let mut listener = house.client.get_stream().await;
    let mut waiting = house.waiting().await;
    house.asks("ask", "?").await;
    let asked = question(&mut listener).await;
    drop(listener);
    assert_eq!(question(&mut waiting).await, asked);
    house.accept(&asked).await;
    house.answer_to("ask").await;
}

#[tokio::test]
async fn an_open_question_is_replayed_however_much_came_after_it() {
    let house = house_with("[server]\nmax_outbox = \"16KiB\"").await;
    let mut listener = house.client.get_stream().await;
    let primer = listener.next_of_any_kind().await.unwrap();
    house.asks("ask", "?").await;
    let asked = question(&mut listener).await;
    for _ in 0..20 {
        house.slow.notify("notifications/message", json!({ "level": "info", "data": "x".repeat(1000) })).await;
        next(&mut listener, "notifications/message").await;
    }
    drop(listener);
    let mut resumed = house.client.with("last-event-id", primer.id.as_deref().unwrap()).get_stream().await;
    assert_eq!(question(&mut resumed).await, asked);
}

#[tokio::test]
async fn a_burst_of_large_questions_is_asked_one_by_one() {
    let house = house().await;
    let mut waiting = house.waiting().await;
    let params = json!({ "messages": "x".repeat(700_000) });
    let request = |n| json!({ "jsonrpc": "2.0", "id": n, "method": "sampling/createMessage", "params": params });
    let burst: Vec<String> = (0..6).map(|n| format!("event: message\ndata: {}\n\n", request(n))).collect();
    house.slow.raw(&burst.concat()).await;
    for _ in 0..6 {
        let asked = question(&mut waiting).await;
        house.client.respond(&asked["id"], json!({ "role": "assistant" })).await;
    }
    house.completes().await;
}

/// Returns how often a question is asked before a notification of this method.
async fn asked_before(stream: &mut Stream, last: &str) -> usize {
    let mut asked = 0;
    loop {
        let message: Value = stream.message().await;
        asked += usize::from(message["method"] == "elicitation/create");
        if message["method"] == last {
            return asked;
        }
    }
}

#[tokio::test]
async fn a_question_that_still_waits_when_a_new_get_stream_takes_over_comes_once() {
    let house = house_with("[server]\nmax_outbox = \"64MiB\"").await;
    let mut stalled = Stalled::open(&house.client, Method::GET, "", SMALL).await;
    // The stream exists once something comes on it.
    house.slow.notify("notifications/first", json!({})).await;
    let mut came = Vec::new();
    while !String::from_utf8_lossy(&came).contains("notifications/first") {
        stalled.read(&mut came).await;
    }
    // More than the system holds.
    for _ in 0..24 {
        house.slow.notify("notifications/message", json!({ "level": "info", "data": "x".repeat(512 * 1024) })).await;
    }
    house.asks("ask", "?").await;
    house.client.until(&house.id, "input_required").await;
    let mut listener = house.client.get_stream().await;
    house.slow.notify("notifications/last", json!({})).await;
    assert_eq!(asked_before(&mut listener, "notifications/last").await, 1);
    drop(stalled);
}

#[tokio::test]
async fn a_question_that_was_asked_again_on_a_get_stream_is_replayed_once() {
    let house = house().await;
    let mut first = house.client.get_stream().await;
    let primer = first.next_of_any_kind().await.unwrap();
    house.asks("ask", "?").await;
    let asked = question(&mut first).await;
    // A client that does not resume has lost what came.
    let mut second = house.client.get_stream().await;
    assert_eq!(question(&mut second).await, asked);
    let mut resumed = house.client.with("last-event-id", primer.id.as_deref().unwrap()).get_stream().await;
    house.slow.notify("notifications/last", json!({})).await;
    assert_eq!(asked_before(&mut resumed, "notifications/last").await, 1);
    house.accept(&asked).await;
    house.answer_to("ask").await;
}
