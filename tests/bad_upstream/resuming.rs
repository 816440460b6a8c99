//! Answers that break after an event id: they are resumed from it, and the tool still runs once. Pauses take no time.

use std::time::Duration;

use crate::{
    House,
    kit::bad::{DONE, PROGRESS, Step, chunk, end, event, numbered, stream},
};

/// Returns an event without data from which the stream can be resumed soon.
fn prime(tool: &str, number: u32) -> Step {
    chunk(&format!("id: {tool}/$ID/{number}\nretry: 1\ndata: \n\n"))
}

/// Returns the numbers of the events after which the plain call and the task were resumed, in order.
fn numbers(house: &House, tool: &str) -> Vec<String> {
    let ids = house.bad.resumed(tool);
    ids.iter().map(|id| id.rsplit_once('/').unwrap().1.to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_broken_answer_is_resumed_after_the_last_complete_event() {
    let house = House::new().await;
    let half = |tool: &str| chunk(&format!("id: {tool}/$ID/3\ndata: {{\"jsonrpc\":"));
    for (tool, behind) in [
        ("closed in order", vec![end()]),
        ("cut", vec![Step::Close]),
        ("cut in an event", vec![half("cut in an event"), Step::Close]),
        ("cut in a chunk", vec![Step::Raw("ff\r\nid: x".into()), Step::Close]),
    ] {
        let beginning = vec![stream(), prime(tool, 1), numbered(tool, 2, PROGRESS)];
        house.bad.on_call(tool, [beginning, behind].concat());
        house.bad.on_resume(tool, vec![vec![stream(), numbered(tool, 4, PROGRESS), event(DONE), end()]]);
        house.succeeds(tool).await;
        assert_eq!(numbers(&house, tool), ["2", "2"], "{tool}");
    }
    house.still_works().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_keeps_breaking_is_resumed_while_it_makes_progress() {
    let house = House::new().await;
    house.bad.on_call("long", vec![stream(), prime("long", 0), Step::Close]);
    let parts = (1..=12).map(|n| vec![stream(), numbered("long", n, PROGRESS), Step::Close]);
    house.bad.on_resume("long", parts.chain([vec![stream(), event(DONE), Step::Close]]).collect());
    house.succeeds("long").await;
    let expected: Vec<_> = (0..=12).chain(0..=12).map(|n| n.to_string()).collect();
    assert_eq!(numbers(&house, "long"), expected);
    house.still_works().await;
}

#[tokio::test(start_paused = true)]
async fn events_that_a_resumed_stream_repeats_count_once() {
    let house = House::new().await;
    house.bad.on_call("replay", vec![stream(), prime("replay", 1), Step::Close]);
    let again = vec![stream(), prime("replay", 1), numbered("replay", 2, PROGRESS), event(DONE), event(DONE), end()];
    house.bad.on_resume("replay", vec![again]);
    house.succeeds("replay").await;
    house.still_works().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_be_resumed_is_a_failure_that_says_why_at_once() {
    let house = House::new().await;
    let answers = [
        (Step::Whole("405 Method Not Allowed", String::new()), "refused with HTTP 405"),
        (Step::Whole("400 Bad Request", "unknown event id".into()), "refused with HTTP 400"),
        (Step::Whole("500 Internal Server Error", String::new()), "refused with HTTP 500"),
        (Step::Whole("307 Temporary Redirect\r\nlocation: /mcp/", String::new()), "refused with HTTP 307"),
        (Step::Whole("200 OK\r\ncontent-type: text/html", "<html>".into()), "content type \"text/html\""),
        (Step::Whole("200 OK\r\ncontent-type: application/json", DONE.into()), "content type \"application/json\""),
        (Step::Raw("HTTP/1.1 204 No Content\r\n\r\n".into()), "HTTP 204 No Content"),
    ];
    for (n, (answer, words)) in answers.into_iter().enumerate() {
        let tool = &format!("refused {n}");
        house.bad.on_call(tool, vec![stream(), prime(tool, 1), Step::Close]);
        house.bad.on_resume(tool, vec![vec![answer]]);
        house.fails(tool, &["before the response", "resuming it", words]).await;
        assert_eq!(numbers(&house, tool), ["1", "1"]);
    }
    house.still_works().await;
}

#[tokio::test(start_paused = true)]
async fn a_resumption_answered_with_404_ends_that_session_alone() {
    let house = House::new().await;
    house.bad.on_call("forgotten", vec![stream(), prime("forgotten", 1), Step::Close]);
    house.bad.on_resume("forgotten", vec![vec![Step::Whole("404 Not Found", String::new())]]);
    let why = house.task("forgotten").await.expect_err("the upstream has lost it");
    assert!(why.contains("has ended the session"), "{why}");
    assert_eq!(house.client.answer("ping", serde_json::json!({})).await.status, 404);
    assert_eq!(house.bad.runs("forgotten"), 1);
    let client = crate::Client::connect(&house.gate.url).await;
    House { client, ..house }.still_works().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_makes_no_progress_is_resumed_at_most_ten_times() {
    let house = House::new().await;
    let heartbeats = || chunk(": \n\n: \n\n: still here\n\n");
    for (tool, fruitless) in [
        ("closed at once", vec![stream(), end()]),
        ("heartbeats alone", vec![stream(), heartbeats(), end()]),
        ("the same event id again", vec![stream(), prime("the same event id again", 1), Step::Close]),
        ("closed before the head", vec![Step::Close]),
        ("no HTTP", vec![Step::Raw("SSH-2.0-OpenSSH_9.2\r\n".into()), Step::Close]),
    ] {
        house.bad.on_call(tool, vec![stream(), prime(tool, 1), Step::Close]);
        house.bad.on_resume(tool, vec![fruitless]);
        house.fails(tool, &["before the response", "10 attempts to resume it have brought no new event"]).await;
        assert_eq!(numbers(&house, tool), ["1"; 20], "{tool}");
    }
    house.still_works().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_resumed_when_its_server_is_back_that_was_away_for_half_a_minute() {
    let house = House::new().await;
    for (tool, away) in [
        ("no connection", Step::Close),
        ("502", Step::Whole("502 Bad Gateway", String::new())),
        ("503", Step::Whole("503 Service Unavailable", String::new())),
        ("504", Step::Whole("504 Gateway Timeout", String::new())),
    ] {
        let prime = chunk(&format!("id: {tool}/$ID/1\nretry: 1000\ndata: \n\n"));
        house.bad.on_call(tool, vec![stream(), prime, Step::Close]);
        house.bad.on_resume(tool, [vec![vec![away]; 4], vec![vec![stream(), event(DONE), end()]]].concat());
        let began = tokio::time::Instant::now();
        house.succeeds(tool).await;
        // A plain call and a task.
        assert!(began.elapsed() > Duration::from_secs(30), "{tool}: {:?}", began.elapsed());
    }
    house.still_works().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_not_resumed_after_an_event_id_that_no_header_can_carry() {
    let house = House::new().await;
    let long = "x".repeat(100_000);
    for (tool, id) in [("long", &*long), ("control", "a\u{1}b"), ("empty", "")] {
        house.bad.on_call(tool, vec![stream(), chunk(&format!("id: {id}\ndata: \n\n")), Step::Close]);
        house.fails(tool, &["before the response"]).await;
    }
    house.bad.wait_for(|seen| seen.tool() == "empty").await;
    assert_eq!(house.bad.resumptions(), 0);
    house.still_works().await;
}

#[tokio::test(start_paused = true)]
async fn a_resumed_stream_on_which_nothing_comes_is_asked_for_again_until_the_answer_is_there() {
    let house = House::new().await;
    let keep_alive = [Step::Idle(Duration::from_secs(4)), chunk(": ping\n\n")];
    let busy = Step::Whole("409 Conflict", String::new());
    let overloaded = Step::Whole("503 Service Unavailable", String::new());
    for (tool, silent, between) in [
        ("silent", vec![Step::Gone], vec![]),
        ("keep-alives alone", vec![keep_alive; 20].concat(), vec![]),
        ("refused for a while", vec![Step::Gone], vec![vec![busy], vec![overloaded]]),
        ("not answered for a while", vec![Step::Gone], vec![vec![Step::Gone]]),
    ] {
        house.bad.on_call(tool, vec![stream(), prime(tool, 1), Step::Close]);
        let replayed = [vec![stream(), numbered(tool, 2, PROGRESS)], silent].concat();
        let asked_again = vec!["2"; between.len() + 1];
        house.bad.on_resume(tool, [vec![replayed], between, vec![vec![stream(), event(DONE), end()]]].concat());
        house.succeeds(tool).await;
        assert_eq!(numbers(&house, tool), [vec!["1"], asked_again].concat().repeat(2), "{tool}");
    }
    house.still_works().await;
}

#[tokio::test(start_paused = true)]
async fn a_resumed_stream_on_which_an_event_comes_slowly_is_not_asked_for_again() {
    let house = House::new().await;
    let (beginning, rest) = DONE.split_at(1);
    let slow = vec![[Step::Idle(Duration::from_secs(10)), chunk("\ndata: ")]; 3].concat();
    house.bad.on_call("slow", vec![stream(), prime("slow", 1), Step::Close]);
    let answer =
        [vec![stream(), chunk(&format!("data: {beginning}"))], slow, vec![chunk(&format!("{rest}\n\n")), end()]];
    house.bad.on_resume("slow", vec![answer.concat()]);
    house.succeeds("slow").await;
    assert_eq!(numbers(&house, "slow"), ["1", "1"]);
    house.still_works().await;
}
