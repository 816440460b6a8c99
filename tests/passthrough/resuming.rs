//! A stream towards a client outlives its connections (section "Resumability and Redelivery").

use http::Method;
use serde_json::{Value, json};

use crate::kit::{Client, Gate, Options, Stream, Upstream, house};

/// Resumes after the event `id`.
async fn resume(client: &Client, id: &str) -> Stream {
    client.with("last-event-id", id).get_stream().await
}

async fn refused(client: &Client, id: &str) -> (u16, i64, String) {
    client.with("last-event-id", id).send(Method::GET, "").await.refusal()
}

fn numbered(n: u32) -> Value {
    json!({ "n": n })
}

#[tokio::test]
async fn a_stream_begins_with_a_priming_event() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    let primer = call.next_of_any_kind().await.unwrap();
    assert_eq!((primer.data.as_str(), primer.retry), ("", Some(1000)));
    let mut listener = client.get_stream().await;
    let other = listener.next_of_any_kind().await.unwrap();
    assert!(primer.id.is_some() && other.id.is_some() && primer.id != other.id, "{primer:?} {other:?}");
    slow.result("{}").await;
    assert_eq!(call.message().await["result"], json!({}));
}

#[tokio::test]
async fn clients_of_older_revisions_get_ids_and_no_events_without_data() {
    let (upstream, gate, _) = house(Upstream::sse()).await;
    let client = Client::connect_as(&gate.url, "2025-06-18", json!({})).await;
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    slow.notify("notifications/a", json!({})).await;
    let first = call.next_of_any_kind().await.unwrap();
    assert!(first.id.is_some() && first.data.contains("notifications/a"), "{first:?}");
    // An upstream that wants to be polled is polled by taskgate alone.
    slow.raw("id: 1\nretry: 100\ndata: \n\n").await;
    let number = slow.seen.id();
    drop(slow);
    let resumed = upstream.resumed().await;
    resumed.event(&format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#)).await;
    assert_eq!(call.message().await["result"], json!({}));
}

#[tokio::test]
async fn a_call_whose_connection_breaks_is_resumed_where_it_broke_and_runs_once() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    for n in 1..=3 {
        slow.notify("notifications/a", numbered(n)).await;
    }
    let first = call.next().await.unwrap();
    assert_eq!(first.json()["params"], numbered(1));
    drop(call);
    slow.notify("notifications/a", numbered(4)).await;
    slow.result(r#"{"done":true}"#).await;
    let mut resumed = resume(&client, first.id.as_deref().unwrap()).await;
    for n in 2..=4 {
        assert_eq!(resumed.message().await["params"], numbered(n));
    }
    let last = resumed.next().await.unwrap();
    assert_eq!(last.json(), json!({ "jsonrpc": "2.0", "id": 1, "result": { "done": true } }));
    assert_eq!(resumed.next().await, None);
    // Also after the end, and any number of times.
    for _ in 0..2 {
        let mut again = resume(&client, first.id.as_deref().unwrap()).await;
        assert_eq!(again.message().await["params"], numbered(2));
    }
    let mut after = resume(&client, last.id.as_deref().unwrap()).await;
    assert_eq!(after.next().await, None);
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_stream_that_waits_for_a_result_can_be_resumed() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    let primer = waiting.next_of_any_kind().await.unwrap();
    drop(waiting);
    slow.result(r#"{"content":[]}"#).await;
    client.until(&id, "completed").await;
    let mut resumed = resume(&client, primer.id.as_deref().unwrap()).await;
    assert_eq!(resumed.message().await["result"]["content"], json!([]));
}

#[tokio::test]
async fn the_get_stream_is_resumed_where_it_broke_and_repeats_nothing() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut listener = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    for n in 1..=3 {
        to_listener.notify("notifications/a", numbered(n)).await;
    }
    let first = listener.next().await.unwrap();
    assert_eq!(listener.message().await["params"], numbered(2));
    drop(listener);
    to_listener.notify("notifications/a", numbered(4)).await;
    let mut resumed = resume(&client, first.id.as_deref().unwrap()).await;
    for n in 2..=4 {
        assert_eq!(resumed.message().await["params"], numbered(n));
    }
    // A stream without Last-Event-ID begins with what comes next.
    drop(resumed);
    let mut fresh = client.get_stream().await;
    to_listener.notify("notifications/a", numbered(5)).await;
    assert_eq!(fresh.message().await["params"], numbered(5));
}

#[tokio::test]
async fn a_client_that_notices_the_break_first_takes_the_stream_over() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    let primer = call.next_of_any_kind().await.unwrap();
    let mut resumed = resume(&client, primer.id.as_deref().unwrap()).await;
    assert_eq!(call.next().await, None);
    slow.result("{}").await;
    assert_eq!(resumed.message().await["result"], json!({}));
}

#[tokio::test]
async fn the_delay_of_an_upstream_that_wants_to_be_polled_reaches_the_client() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    slow.raw("id: 1\nretry: 250\ndata: \n\n").await;
    assert_eq!(call.next_of_any_kind().await.unwrap().retry, Some(1000));
    let number = slow.seen.id();
    drop(slow);
    let pause = call.next_of_any_kind().await.unwrap();
    assert_eq!((pause.data.as_str(), pause.retry), ("", Some(250)));
    assert_eq!(call.next().await, None);
    let answer = upstream.resumed().await;
    answer.event(&format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"done":true}}}}"#)).await;
    let mut resumed = resume(&client, pause.id.as_deref().unwrap()).await;
    assert_eq!(resumed.message().await["result"], json!({ "done": true }));
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn an_event_id_is_valid_in_its_own_session_only() {
    let (upstream, gate, client) = house(Upstream::sse()).await;
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    let primer = call.next_of_any_kind().await.unwrap().id.unwrap();
    let stranger = Client::connect(&gate.url).await;
    let (status, code, message) = refused(&stranger, &primer).await;
    assert_eq!((status, code), (400, -32600));
    assert!(message.contains("Last-Event-ID"), "{message}");
    let own = primer.split_once('-').unwrap().0;
    for invented in
        ["x".to_owned(), format!("{own}-0-1"), format!("{own}-9-0"), format!("{own}-2-99"), "2-0".to_owned()]
    {
        assert_eq!(refused(&client, &invented).await.0, 400, "{invented}");
    }
    slow.result("{}").await;
    assert_eq!(call.message().await["result"], json!({}));
}

#[tokio::test]
async fn a_session_keeps_a_bounded_number_of_streams_to_resume() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut primers = Vec::new();
    for _ in 0..40 {
        let mut call = client.stream("tools/call", json!({ "name": "slow" }));
        let slow = upstream.held("slow").await.sse();
        primers.push(call.next_of_any_kind().await.unwrap().id.unwrap());
        slow.result("{}").await;
        assert_eq!(call.message().await["result"], json!({}));
        assert_eq!(call.next().await, None);
    }
    assert_eq!(refused(&client, &primers[0]).await.0, 400);
    let mut last = resume(&client, &primers[39]).await;
    assert_eq!(last.message().await["result"], json!({}));
}

#[tokio::test]
async fn a_stream_that_the_client_has_cancelled_cannot_be_resumed() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let id = client.create_id("slow").await;
    let _slow = upstream.held("slow").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    client.notify("notifications/cancelled", json!({ "requestId": 2 })).await;
    assert_eq!(waiting.next().await, None);
    assert_eq!(client.get(&id).await["status"], "working");
}

#[tokio::test]
async fn the_get_stream_of_the_upstream_stays_open_with_the_session_even_if_the_client_has_none() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let to_listener = upstream.get_stream().await;
    to_listener.event(r#"{"jsonrpc":"2.0","id":"alive","method":"ping"}"#).await;
    let answer = upstream.wait_for(|seen| seen.json()["id"] == "alive").await;
    assert_eq!(answer.json()["result"], json!({}));
    assert_eq!(client.delete().await.status, 200);
    to_listener.abandoned().await;
}

#[tokio::test]
async fn an_upstream_that_answers_get_without_a_stream_is_not_asked_again() {
    let upstream = Upstream::start(Options { listens: true, ..Options::default() }).await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect(&gate.url).await;
    upstream.held("GET").await.status(200, &[("content-type", "text/html")], "<p>hello</p>");
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
    assert_eq!(upstream.count("GET"), 1);
}
