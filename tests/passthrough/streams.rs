//! JSON stays JSON, streams stay streams, and events come as they come.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::kit::{Answers, Client, Gate, Options, Sse, Stream, Upstream, eventually, house, soon, within};

#[tokio::test]
async fn json_stays_json_and_a_stream_stays_a_stream() {
    for answers in [Answers::Json, Answers::Sse] {
        let upstream = Upstream::start(Options { answers, ..Options::default() }).await;
        let gate = Gate::before(&upstream).await;
        let opened = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
        assert_eq!(opened.is_stream(), answers == Answers::Sse);
        let client = Client::connect(&gate.url).await;
        for (method, params) in
            [("ping", json!({})), ("tools/list", json!({})), ("tools/call", json!({ "name": "echo" }))]
        {
            let answer = client.answer(method, params).await;
            let expected = if answers == Answers::Sse { "text/event-stream" } else { "application/json" };
            assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, expected), "{method}");
            assert!(answer.json()["result"].is_object(), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn events_arrive_one_by_one_before_the_answer_ends() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut answer = client.stream("tools/call", json!({ "name": "slow", "_meta": { "progressToken": 1 } }));
    let slow = upstream.held("slow").await.sse();
    for n in 1..=5 {
        // Each is read before the next is sent.
        slow.progress(n).await;
        assert_eq!(answer.message().await["params"]["progress"], n);
        slow.notify("notifications/message", json!({ "level": "info", "data": n })).await;
        assert_eq!(answer.message().await["params"]["data"], n);
    }
    slow.result("{}").await;
    assert_eq!(answer.message().await["result"], json!({}));
    assert_eq!(answer.next().await, None);
}

#[tokio::test]
async fn a_stream_is_not_cached_compressed_or_buffered() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect(&gate.url).await.with("accept-encoding", "gzip, br");
    let answer = client.answer("ping", json!({})).await;
    assert_eq!(answer.header("cache-control"), "no-cache, no-transform");
    assert_eq!(answer.header("x-accel-buffering"), "no");
    assert_eq!(answer.header("content-encoding"), "");
    assert_eq!(upstream.wait_for_message("ping").await.header("accept-encoding"), "");
}

#[tokio::test]
async fn priming_events_comments_other_events_and_odd_framing_do_no_harm() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut answer = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    let id = slow.seen.id();
    slow.raw("id: p1\nretry: 100\ndata: \n\n: a comment\n\nevent: endpoint\ndata: /x\n\n").await;
    slow.raw("data: {\"jsonrpc\":\"2.0\",\r\ndata: \"method\":\"notifications/x\"}\r\n\r\nda").await;
    assert_eq!(answer.message().await, json!({ "jsonrpc": "2.0", "method": "notifications/x" }));
    slow.raw(&format!("ta:{{\"jsonrpc\":\"2.0\",\"id\":{id},\rdata:\"result\":{{}}}}\r\r")).await;
    assert_eq!(answer.message().await, json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
    assert_eq!(answer.next().await, None);
}

#[tokio::test]
async fn an_answer_ends_with_the_response_even_where_the_upstream_keeps_its_stream_open() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut answer = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    slow.event(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, slow.seen.id())).await;
    assert_eq!(answer.message().await["result"], json!({}));
    assert_eq!(answer.next().await, None);
}

#[tokio::test]
async fn a_batch_of_the_upstream_is_taken_apart() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let mut answer = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await;
    let response = slow.response(r#""result":{"x":1.50}"#);
    slow.json(&format!(r#"[{{"jsonrpc":"2.0","method":"notifications/x"}},  {response}]"#));
    assert_eq!(answer.next().await.unwrap().data, r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
    assert_eq!(answer.next().await.unwrap().data, r#"{"jsonrpc":"2.0","id":1,"result":{"x":1.50}}"#);
    assert_eq!(answer.next().await, None);
}

#[tokio::test]
async fn a_batch_with_only_the_response_is_that_response() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let asked = tokio::spawn(async move { client.answer("tools/call", json!({ "name": "slow" })).await });
    let slow = upstream.held("slow").await;
    let response = slow.response(r#""result":{}"#);
    slow.json(&format!("[{response}]"));
    assert_eq!(asked.await.unwrap().text(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
}

#[tokio::test]
async fn messages_that_belong_to_no_request_come_on_the_get_stream_in_order() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut listener = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    for n in 0..20 {
        to_listener.notify("notifications/message", json!({ "data": n })).await;
    }
    for n in 0..20 {
        assert_eq!(listener.message().await["params"]["data"], n);
    }
}

#[tokio::test]
async fn the_newest_get_stream_gets_the_messages_and_the_older_one_ends() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut old = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    to_listener.notify("notifications/a", json!({})).await;
    assert_eq!(old.message().await["method"], "notifications/a");
    let mut new = client.get_stream().await;
    assert_eq!(old.next().await, None);
    to_listener.notify("notifications/b", json!({})).await;
    assert_eq!(new.message().await["method"], "notifications/b");
    assert_eq!(upstream.count("GET"), 1);
}

#[tokio::test]
async fn messages_wait_while_the_client_has_no_get_stream_open() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let listener = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    drop(listener);
    to_listener.notify("notifications/a", json!({})).await;
    let mut again = client.get_stream().await;
    assert_eq!(again.message().await["method"], "notifications/a");
}

#[tokio::test]
async fn the_get_stream_is_served_even_where_the_upstream_has_none() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    let mut listener = client.get_stream().await;
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
    // It ends with the session.
    assert_eq!(client.delete().await.status, 200);
    assert_eq!(listener.next().await, None);
}

#[tokio::test]
async fn a_get_stream_that_breaks_upstream_is_opened_again_where_it_broke() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut listener = client.get_stream().await;
    let first = upstream.get_stream().await;
    first.raw("id: e7\nretry: 10\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/a\"}\n\n").await;
    assert_eq!(listener.message().await["method"], "notifications/a");
    first.cut().await;
    let second = upstream.resumed().await;
    assert_eq!(second.seen.header("last-event-id"), "e7");
    second.notify("notifications/b", json!({})).await;
    assert_eq!(listener.message().await["method"], "notifications/b");
}

#[tokio::test]
async fn a_waiting_call_gets_only_heartbeats_and_then_its_answer() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let mut answer = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await;
    // The head comes before the answer, so that no proxy in between takes the silence for a dead server.
    let (status, headers) = within(Duration::from_secs(30), answer.head()).await;
    assert_eq!((status.as_u16(), headers["content-type"].to_str().unwrap()), (200, "text/event-stream"));
    slow.result(r#"{"x":1.50}"#);
    assert_eq!(answer.next().await.unwrap().data, r#"{"jsonrpc":"2.0","id":1,"result":{"x":1.50}}"#);
    assert_eq!(answer.next().await, None);
}

/// Starts a call whose answer is a stream that has begun on both sides; returns it with the id to resume after.
async fn begun(client: &Client, upstream: &Upstream) -> (Stream, Sse, String) {
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    let primer = call.next_of_any_kind().await.unwrap();
    (call, slow, primer.id.unwrap())
}

#[tokio::test]
async fn over_max_streams_requests_are_refused_before_the_server_sees_them_but_the_get_stream_is_not() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[server]\nmax_streams = 1").await;
    let client = Client::connect(&gate.url).await;
    let (mut call, slow, _) = begun(&client, &upstream).await;
    let task = client.create_id("slow").await;
    let waiting = json!({ "taskId": task });
    for (method, params) in [("ping", json!({})), ("tasks/result", waiting)] {
        let (code, message) = client.error(method, params).await;
        assert_eq!(code, -32603);
        assert!(message.contains("server.max_streams = 1"), "{message}");
    }
    assert_eq!(upstream.count("ping"), 0);
    let _listener = client.get_stream().await;
    // Another session has streams of its own.
    Client::connect(&gate.url).await.ask("ping", json!({})).await;
    slow.result("{}").await;
    assert_eq!(call.message().await["result"], json!({}));
    eventually(async || client.request("ping", json!({})).await.get("result").cloned()).await;
}

#[tokio::test]
async fn over_max_streams_a_client_that_resumes_is_told_to_come_back_later() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[server]\nmax_streams = 1").await;
    let client = Client::connect(&gate.url).await;
    let (call, slow, id) = begun(&client, &upstream).await;
    drop(call);
    eventually(async || client.request("ping", json!({})).await.get("result").cloned()).await;
    let (other, _other, _) = begun(&client, &upstream).await;
    let resuming = client.with("last-event-id", &id);
    let refused = resuming.send(Method::GET, "").await;
    assert_eq!(refused.header("retry-after"), "1");
    let (status, code, message) = refused.refusal();
    assert_eq!((status, code), (503, -32603));
    assert!(message.contains("server.max_streams = 1"), "{message}");
    drop(other);
    eventually(async || client.request("ping", json!({})).await.get("result").cloned()).await;
    let mut resumed = resuming.get_stream().await;
    slow.result(r#"{"done":true}"#).await;
    assert_eq!(resumed.message().await["result"], json!({ "done": true }));
}

#[tokio::test]
async fn at_most_max_streams_calls_reach_the_server_at_once_and_each_makes_room_when_it_is_answered() {
    const MAX: usize = 4;
    const CALLS: usize = 40;
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &format!("[server]\nmax_streams = {MAX}")).await;
    let client = Client::connect(&gate.url).await;
    for round in 1..=2 {
        let mut calls = JoinSet::new();
        for _ in 0..CALLS {
            let client = client.clone();
            calls.spawn(async move { client.request("tools/call", json!({ "name": "slow" })).await });
        }
        // Those that are refused are answered while the others wait.
        for _ in 0..CALLS - MAX {
            let refused = soon(calls.join_next()).await.unwrap().unwrap();
            let why = refused["error"]["message"].as_str().unwrap();
            assert!(why.contains("server.max_streams = 4"), "{why}");
        }
        for _ in 0..MAX {
            upstream.held("slow").await.result("{}");
        }
        while let Some(answered) = soon(calls.join_next()).await {
            assert_eq!(answered.unwrap()["result"], json!({}));
        }
        assert_eq!(upstream.count("slow"), round * MAX);
        // The room is given back after the answer.
        eventually(async || client.request("ping", json!({})).await.get("result").cloned()).await;
    }
}
