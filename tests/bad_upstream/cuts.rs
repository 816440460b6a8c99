//! Answers that are cut off.

use http::Method;
use http_body_util::BodyExt;
use serde_json::json;

use crate::{
    House, call_of,
    kit::bad::{DONE, PROGRESS, Step, chunk, event, stream},
    kit::soon,
    outcome_in,
};

const HALF_AN_EVENT: &str = "data: {\"jsonrpc\":\"2.0\",\"id\":$ID,\"res";

/// Returns a tool for each place at which an answer without event ids can be cut.
fn places() -> [(&'static str, Vec<Step>); 9] {
    let raw = |text: &str| Step::Raw(text.to_owned());
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    [
        ("before the head", vec![]),
        ("in the status line", vec![raw("HTTP/1.1 20")]),
        ("in the head", vec![raw("HTTP/1.1 200 OK\r\ncontent-ty")]),
        ("after the head", vec![raw(&format!("{json}content-length: 100\r\n\r\n"))]),
        ("in the body", vec![raw(&format!("{json}content-length: 100\r\n\r\n{{\"jsonrpc\":\"2.0\",\"id\":$ID,"))]),
        ("before the first event", vec![stream()]),
        ("between events", vec![stream(), event(PROGRESS)]),
        ("in an event", vec![stream(), event(PROGRESS), chunk(HALF_AN_EVENT)]),
        ("in a chunk", vec![stream(), raw("fff\r\ndata: {")]),
    ]
}

#[tokio::test]
async fn a_call_whose_answer_is_cut_off_fails_and_says_so_and_the_tool_runs_once() {
    let house = House::new().await;
    for (place, steps) in places() {
        for last in [Step::Close, Step::Reset] {
            house.bad.on_call(place, [&steps[..], &[last]].concat());
            house.fails(place, &["ended its answer before the response: "]).await;
        }
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_stream_that_ends_cleanly_without_the_response_is_a_failure_that_says_so() {
    let house = House::new().await;
    for (tool, steps) in [
        ("at once", vec![stream()]),
        ("after an event", vec![stream(), event(PROGRESS)]),
        ("in an event", vec![stream(), chunk(HALF_AN_EVENT)]),
        ("before the empty line", vec![stream(), chunk(&format!("data: {DONE}\n"))]),
    ] {
        house.bad.on_call(tool, [&steps[..], &[crate::end()]].concat());
        house.fails(tool, &["the answer has no response to the request"]).await;
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_response_counts_although_its_stream_is_cut_after_it() {
    let house = House::new().await;
    for (tool, last) in [("closed", Step::Close), ("reset", Step::Reset)] {
        // A reset can overtake what was written before it, so it waits until the response has arrived.
        let behind = if tool == "reset" { vec![Step::Wait("arrived"), last] } else { vec![last] };
        house.bad.on_call(tool, [&[stream(), event(PROGRESS), event(DONE)], &behind[..]].concat());
        house.succeeds(tool).await;
    }
    house.bad.signal("arrived");
    house.still_works().await;
}

#[tokio::test]
async fn a_large_answer_that_is_cut_off_is_cut_off_for_its_client_and_fails_its_task() {
    let house = House::new().await;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9000000\r\n\r\n";
    let part = format!("{head}{{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{{\"x\":\"{}", "x".repeat(100_000));
    house.bad.on_call("large", vec![Step::Raw(part), Step::Close]);
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call_of("large") });
    // A large answer that has begun cannot be taken back: the client sees the cut.
    let answer = house.client.open(Method::POST, call.to_string()).await;
    assert!(soon(answer.into_body().collect()).await.is_err());
    let why = house.task("large").await.unwrap_err();
    assert!(why.contains("ended its answer before the response"), "{why}");
    assert_eq!(house.bad.runs("large"), 2);
    house.still_works().await;
}

#[tokio::test]
async fn a_stream_that_goes_on_after_the_response_is_closed() {
    let house = House::new().await;
    let heartbeats = Step::Times(usize::MAX, ": still here\n\n".repeat(100));
    for (tool, behind) in [("silent", Step::Gone), ("busy", heartbeats)] {
        house.bad.on_call(tool, vec![stream(), event(PROGRESS), Step::Wait(tool), event(DONE), behind]);
        let mut call = house.client.stream("tools/call", call_of(tool));
        // The answer has become a stream, which is read whether its client reads or not.
        call.message().await;
        house.bad.signal(tool);
        assert_eq!(outcome_in(&soon(call.last()).await).as_deref(), Ok("done"));
        assert_eq!(house.task(tool).await.as_deref(), Ok("done"));
        house.bad.ended(tool, 2).await;
    }
    house.still_works().await;
}
