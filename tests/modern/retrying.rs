//! The retry of a call that has asked, as a request of its own.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    client::Modern,
    kit::{Gate, Sse, Upstream, within},
    questions::{asked, retry},
};

/// A client whose call has asked, the server's end of the call, and the params of its retry.
async fn parked(upstream: &Upstream) -> (Gate, Modern, Sse, Value) {
    let gate = Gate::before(upstream).await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let (slow, result, key) = asked(upstream, &client).await;
    let retried = retry(&result, &json!({ key: { "action": "accept", "content": {} } }));
    (gate, client, slow, retried)
}

#[tokio::test]
async fn a_retry_that_gives_the_first_progress_token_is_told_of_the_progress() {
    let upstream = Upstream::sse().await;
    let (_gate, client, slow, mut retried) = parked(&upstream).await;
    retried["_meta"] = json!({ "progressToken": "mine" });
    let mut stream = client.stream("tools/call", retried);
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    slow.progress(1).await;
    assert_eq!(stream.message().await["params"]["progressToken"], "mine");
}

#[tokio::test]
async fn a_retry_is_given_as_long_to_be_answered_before_it_becomes_a_stream_as_any_request() {
    let upstream = Upstream::sse().await;
    let (_gate, client, _slow, retried) = parked(&upstream).await;
    // Longer than taskgate waits from one look for silence to the next.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let (mut stream, began) = (client.stream("tools/call", retried), Instant::now());
    within(Duration::from_secs(30), stream.head()).await;
    // The request was on its way before this clock began.
    assert!(began.elapsed() >= Duration::from_millis(4900), "{:?}", began.elapsed());
}
