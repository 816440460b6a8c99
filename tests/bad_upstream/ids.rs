//! Responses with wrong ids, and more responses than there should be.

use serde_json::json;

use crate::{
    House, call_of,
    kit::{
        Client,
        bad::{DONE, PROGRESS, Step, end, event, json_answer, stream},
        soon,
    },
    outcome_in,
};

/// Returns a response under another id.
fn under(id: &str) -> String {
    DONE.replace("$ID", id).replace("done", "not for you")
}

#[tokio::test]
async fn a_response_that_comes_twice_counts_once() {
    let house = House::new().await;
    let second = DONE.replace("done", "done again");
    house.bad.on_call("stream", vec![stream(), event(DONE), event(DONE), event(&second), end()]);
    house.bad.on_call("batch", vec![json_answer(&format!("[{DONE},{DONE},{second}]"))]);
    house.succeeds("stream").await;
    house.succeeds("batch").await;
    house.still_works().await;
}

#[tokio::test]
async fn responses_under_unknown_ids_are_dropped_and_the_true_one_counts() {
    let house = House::new().await;
    let unknown = ["4711", "-1", "18446744073709551616", "1.5", "\"\"", "\"$ID \"", "\"no number\"", "0"];
    for id in unknown {
        house.bad.on_call(id, vec![stream(), event(&under(id)), event(PROGRESS), event(DONE), end()]);
        house.succeeds(id).await;
        let alone = format!("only {id}");
        for answer in [vec![json_answer(&under(id))], vec![stream(), event(&under(id)), end()]] {
            house.bad.on_call(&alone, answer);
            house.fails(&alone, &["request"]).await;
        }
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_response_whose_id_comes_back_as_a_string_is_the_response() {
    let house = House::new().await;
    let string = DONE.replace("$ID", "\"$ID\"");
    house.bad.on_call("json", vec![json_answer(&string)]);
    house.bad.on_call("stream", vec![stream(), event(&string), end()]);
    house.succeeds("json").await;
    house.succeeds("stream").await;
    house.still_works().await;
}

#[tokio::test]
async fn a_response_does_not_reach_another_session_that_uses_the_same_id() {
    let house = House::new().await;
    let other = Client::connect(&house.gate.url).await;
    // Upstream both sessions number their requests alike, and this is the first call of each.
    house.bad.on_call("mine", vec![stream(), Step::Wait("answered"), event(DONE), end()]);
    let mine = other.stream("tools/call", call_of("mine"));
    let number = house.bad.wait_for(|seen| seen.tool() == "mine").await.id();
    let steps = (1..=9).map(|n| event(&under(&n.to_string())));
    let all = [vec![stream()], steps.collect(), vec![end()]].concat();
    house.bad.on_call("all numbers", all);
    let outcome = outcome_in(&soon(house.client.stream("tools/call", call_of("all numbers")).last()).await);
    assert_eq!(outcome.as_deref(), Ok("not for you"));
    house.bad.signal("answered");
    assert!((1..=9).any(|n| n.to_string() == number), "{number}");
    assert_eq!(outcome_in(&soon(mine.last()).await).as_deref(), Ok("done"));
    house.still_works().await;
}

#[tokio::test]
async fn responses_in_reverse_order_on_one_stream_reach_the_requests_that_they_answer() {
    let house = House::new().await;
    // Upstream a client's requests are numbered one after the other.
    assert_eq!(house.call("any").await.as_deref(), Ok("done"));
    let number: u64 = house.bad.wait_for(|seen| seen.tool() == "any").await.id().parse().unwrap();
    let to_second = DONE.replace("$ID", &(number + 2).to_string()).replace("done", "second");
    house.bad.on_call("first", vec![stream(), Step::Wait("second asked"), event(&to_second), event(DONE), end()]);
    house.bad.on_call("second", vec![stream(), Step::Gone]);
    let first = house.client.stream("tools/call", call_of("first"));
    house.bad.wait_for(|seen| seen.tool() == "first").await;
    let second = house.client.stream("tools/call", call_of("second"));
    house.bad.wait_for(|seen| seen.tool() == "second").await;
    house.bad.signal("second asked");
    assert_eq!(outcome_in(&soon(second.last()).await).as_deref(), Ok("second"));
    assert_eq!(outcome_in(&soon(first.last()).await).as_deref(), Ok("done"));
    // No request waits on the second stream any more.
    house.bad.ended("second", 1).await;
    house.still_works().await;
}

#[tokio::test]
async fn an_error_without_an_id_answers_the_request_that_carried_it() {
    let house = House::new().await;
    for id in ["", "\"id\":null,"] {
        let error = format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32700,"message":"I cannot read that"}}}}"#);
        for answer in [vec![json_answer(&error)], vec![stream(), event(&error), end()]] {
            house.bad.on_call("reader", answer);
            for outcome in house.both("reader").await {
                assert_eq!(outcome, Err("I cannot read that".to_owned()));
            }
        }
    }
    house.still_works().await;
}

#[tokio::test]
async fn progress_under_foreign_tokens_and_after_the_end_does_no_harm() {
    let house = House::new().await;
    let foreign = ["4711", "\"t\"", "null", "{}", "\"$ID\""].map(|token| event(&PROGRESS.replace("$TOKEN", token)));
    let steps = [&[stream()], &foreign[..], &[event(DONE), event(PROGRESS), end()]].concat();
    house.bad.on_call("chatty", steps);
    house.succeeds("chatty").await;
    let status = house.client.notify("notifications/cancelled", json!({ "requestId": "long over" })).await;
    assert_eq!((status.as_u16(), house.bad.cancels()), (202, 0));
    house.still_works().await;
}
