//! More messages than the client reads.

use serde_json::json;

use crate::{
    House, call_of, eventually,
    kit::{
        BadUpstream, Binary, Client, SMALL, Stalled,
        bad::{DONE, PROGRESS, Step, end, event, stream},
    },
    outcome_in, within,
};

const MIB: usize = 1024 * 1024;

/// Progress as an event, `per_chunk` of them in one chunk.
fn progress(per_chunk: usize) -> String {
    format!("data: {PROGRESS}\n\n").repeat(per_chunk)
}

/// Returns 100,000 events of progress, and then the response.
fn flood() -> Vec<Step> {
    vec![stream(), Step::Times(5_000, progress(20)), event(DONE), end()]
}

#[tokio::test]
async fn a_task_whose_progress_comes_as_a_flood_gets_its_result() {
    let house = House::new().await;
    house.bad.on_call("flood", flood());
    assert_eq!(house.task("flood").await.as_deref(), Ok("done"));
    assert_eq!(house.bad.runs("flood"), 1);
    house.still_works().await;
}

#[tokio::test]
async fn an_unread_flood_of_progress_costs_one_outbox_and_the_answer_is_kept() {
    let bad = BadUpstream::start().await;
    let taskgate = Binary::start(&["serve", "--upstream", &bad.url(), "--listen", "127.0.0.1:0"], &[]);
    let client = Client::connect(&taskgate.url().await).await;
    bad.on_call("flood", flood());
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
    let before = taskgate.peak_memory();
    let call = json!({ "jsonrpc": "2.0", "id": "stalled", "method": "tools/call", "params": call_of("flood") });
    let stalled = Stalled::open(&client, http::Method::POST, &call.to_string(), SMALL).await;
    bad.ended("flood", 1).await;
    let grown = taskgate.peak_memory().saturating_sub(before);
    assert!(grown < 12 * MIB, "{} MiB", grown / MIB);
    // The newest progress and the answer are among what was kept.
    let rest = within(crate::PATIENCE, stalled.rest()).await;
    assert!(rest.contains(r#""progressToken":"t","progress":5000"#));
    assert!(rest.contains(r#""id":"stalled","result""#));
    assert_eq!(bad.runs("flood"), 1);
}

#[tokio::test]
async fn an_unread_flood_of_questions_ends_the_call_and_says_why() {
    let house = House::new().await;
    let question = r#"{"jsonrpc":"2.0","id":"q$N","method":"roots/list","params":{"x":"PADDING"}}"#;
    let question = question.replace("PADDING", &"x".repeat(10_000));
    house
        .bad
        .on_call("curious", vec![stream(), Step::Times(4_000, format!("data: {question}\n\n")), event(DONE), end()]);
    let call = json!({ "jsonrpc": "2.0", "id": "stalled", "method": "tools/call", "params": call_of("curious") });
    let stalled = Stalled::open(&house.client, http::Method::POST, &call.to_string(), SMALL).await;
    house.bad.ended("curious", 1).await;
    let rest = within(crate::PATIENCE, stalled.rest()).await;
    let questions: Vec<_> = rest.match_indices(r#""id":"q"#).collect();
    // Questions up to the first for which there was no room, and then the end.
    assert!((10..4_000).contains(&questions.len()), "{}", questions.len());
    assert!(rest.contains(&format!(r#""id":"q{}""#, questions.len())), "one was left out");
    assert!(rest.contains("the client does not read what the server sends it") && !rest.contains("done"));
    assert_eq!(house.bad.runs("curious"), 1);
    house.still_works().await;
}

#[tokio::test]
async fn a_flood_of_pings_has_at_most_16_answers_in_flight() {
    let house = House::new().await;
    let ping = r#"{"jsonrpc":"2.0","id":"p$N","method":"ping"}"#;
    house.bad.on_listen(vec![stream(), Step::Times(500, format!("data: {ping}\n\n")), Step::Gone]);
    house.bad.on_response(vec![Step::Wait("taken"), Step::Whole("202 Accepted", String::new())]);
    let client = Client::connect(&house.gate.url).await;
    eventually(async || (house.bad.responses() > 0).then_some(())).await;
    house.succeeds("meanwhile").await;
    house.bad.signal("taken");
    eventually(async || (house.bad.responses() == 500).then_some(())).await;
    assert!(house.bad.most_responses() <= 16, "{}", house.bad.most_responses());
    assert_eq!(client.delete().await.status, 200);
    house.still_works().await;
}

#[tokio::test]
async fn a_flood_on_the_get_stream_does_not_hold_up_calls() {
    let house = House::new().await;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"$N"}}"#;
    house.bad.on_listen(vec![stream(), Step::Times(usize::MAX, format!("data: {log}\n\n").repeat(100))]);
    let stalled = Stalled::open(&house.client, http::Method::GET, "", SMALL).await;
    house.bad.wait_for(|seen| seen.method == http::Method::GET).await;
    for _ in 0..10 {
        house.succeeds("meanwhile").await;
    }
    assert_eq!(house.client.delete().await.status, 200);
    drop(stalled);
    let client = Client::connect(&house.gate.url).await;
    // The upstream's stream ends with the session.
    house.bad.ended("GET", 1).await;
    House { client, ..house }.still_works().await;
}

#[tokio::test]
async fn endless_progress_ends_with_the_tasks_timeout() {
    let bad = BadUpstream::start().await;
    let gate = crate::Gate::to(&bad.url(), "[tasks]\ntimeout = \"2s\"").await;
    let house = House::with(bad, gate).await;
    house.bad.on_call("forever", vec![stream(), Step::Times(usize::MAX, progress(20))]);
    let why = house.task("forever").await.unwrap_err();
    assert!(why.contains("timeout = 2s is over"), "{why}");
    house.bad.wait_for(|seen| seen.rpc() == "notifications/cancelled").await;
    house.bad.ended("forever", 1).await;
    assert_eq!(house.bad.runs("forever"), 1);
    assert_eq!(outcome_in(&house.client.request("tools/call", call_of("quick")).await).as_deref(), Ok("done"));
    house.still_works().await;
}

#[tokio::test]
async fn a_flood_of_questions_that_taskgate_answers_has_at_most_16_answers_in_flight() {
    let house = House::new().await;
    // The client has declared no capability, so taskgate answers without it.
    let question = r#"{"jsonrpc":"2.0","id":"q$N","method":"roots/list"}"#;
    house.bad.on_call("curious", vec![stream(), Step::Times(500, format!("data: {question}\n\n")), event(DONE), end()]);
    house.bad.on_response(vec![Step::Wait("taken"), Step::Whole("202 Accepted", String::new())]);
    let id = house.client.create_id("curious").await;
    eventually(async || (house.bad.responses() > 0).then_some(())).await;
    house.succeeds("meanwhile").await;
    house.bad.signal("taken");
    house.client.until(&id, "completed").await;
    eventually(async || (house.bad.responses() == 500).then_some(())).await;
    assert!(house.bad.most_responses() <= 16, "{}", house.bad.most_responses());
    house.still_works().await;
}
