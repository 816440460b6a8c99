//! The event that names the endpoint, without which there is no session.

use std::time::Duration;

use serde_json::json;

use super::gate;
use crate::kit::{Answer, Client, Gate, Gets, SseOptions, SseUpstream, soon};

async fn naming(endpoint: &'static str) -> SseUpstream {
    SseUpstream::start(SseOptions { gets: Gets::Endpoint(endpoint), ..<_>::default() }).await
}

async fn initialize(gate: &Gate) -> Answer {
    Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await
}

#[tokio::test]
async fn an_endpoint_may_be_absolute_or_relative_with_a_query_or_without() {
    for (named, meant) in [
        ("/message?session={n}", "/message?session=1"),
        ("/messages/{n}", "/messages/1"),
        ("message?a=b&session={n}", "/v1/message?a=b&session=1"),
        ("../message/{n}", "/message/1"),
        ("http://{host}/message?session={n}", "/message?session=1"),
        ("//{host}/message?session={n}", "/message?session=1"),
    ] {
        let server = naming(named).await;
        let gate = gate(&server).await;
        Client::connect(&gate.url).await;
        let posts: Vec<_> = server.seen().into_iter().filter(|seen| seen.method == "POST").collect();
        assert_eq!(posts.len(), 2);
        assert!(posts.iter().all(|seen| seen.uri == meant), "{named}: {posts:?}");
    }
}

#[tokio::test]
async fn an_endpoint_on_another_origin_is_refused_and_nothing_is_sent_there() {
    let other = SseUpstream::new().await;
    let server = SseUpstream::start(SseOptions { gets: Gets::Held, ..<_>::default() }).await;
    let gate = gate(&server).await;
    for endpoint in [other.url(), other.url().replace("http:", ""), server.url().replace("http:", "https:")] {
        let (answer, _stream) = tokio::join!(initialize(&gate), async {
            let stream = server.held("GET").await.sse();
            stream.raw(&format!("event: endpoint\ndata: {endpoint}\n\n")).await;
            stream
        });
        let (_, _, message) = answer.refusal();
        assert!(message.contains(&endpoint) && message.contains("credentials"), "{message}");
    }
    assert_eq!(other.requests(), [""; 0]);
    assert_eq!(server.count("POST"), 0);
}

#[tokio::test]
async fn a_stream_that_does_not_begin_with_an_endpoint_is_refused_and_closed() {
    let server = SseUpstream::start(SseOptions { gets: Gets::Held, ..<_>::default() }).await;
    let gate = gate(&server).await;
    let message = r#"data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    for first in [message, "event: hello\ndata: /message", "event: endpoint\ndata: not a uri"] {
        let (answer, stream) = tokio::join!(initialize(&gate), async {
            let stream = server.held("GET").await.sse();
            stream.raw(&format!("{first}\n\n")).await;
            stream
        });
        assert!(answer.refusal().2.contains("endpoint event"), "{answer:?}");
        stream.abandoned().await;
    }
}

#[tokio::test]
async fn an_answer_that_is_no_stream_or_an_empty_one_is_refused_and_quoted() {
    let server = SseUpstream::start(SseOptions { gets: Gets::Held, ..<_>::default() }).await;
    let gate = gate(&server).await;
    for (status, kind, body, expected) in [
        (503, "text/plain", "out for lunch", "503 Service Unavailable: out for lunch"),
        (307, "text/plain", "", "307"),
        (200, "text/html", "<p>", "\"text/html\""),
        (200, "text/event-stream", ": hello\n\n", "ended before"),
    ] {
        let (answer, ()) = tokio::join!(initialize(&gate), async {
            server.held("GET").await.status(status, &[("content-type", kind)], body);
        });
        assert!(answer.refusal().2.contains(expected), "{answer:?}");
    }
}

#[tokio::test]
async fn an_endpoint_must_come_within_ten_seconds_and_comments_do_not_count() {
    let server = SseUpstream::start(SseOptions { gets: Gets::Held, ..<_>::default() }).await;
    let gate = gate(&server).await;
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {} });
    let mut opening = Client::new(&gate.url).stream("initialize", params);
    let stream = server.held("GET").await.sse();
    stream.raw(": still here\n\n").await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    let (status, _) = soon(opening.head()).await;
    assert_eq!(status, 200);
    stream.abandoned().await;
}

#[tokio::test]
async fn an_endpoint_may_come_after_comments_and_in_pieces() {
    let server = SseUpstream::start(SseOptions { gets: Gets::Held, ..<_>::default() }).await;
    let gate = gate(&server).await;
    server.hold("initialize");
    let (answer, _stream) = tokio::join!(initialize(&gate), async {
        let stream = server.held("GET").await.sse();
        for piece in [": hello\r\n\r\nid: 1\r\nev", "ent: endpoint\r", "\ndata: /message/1\r\n", "\r\n"] {
            stream.raw(piece).await;
        }
        let initialize = server.held("initialize").await;
        let id = initialize.seen.id();
        let result = json!({ "protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {} });
        stream.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)).await;
        initialize.status(202, &[], "");
        stream
    });
    assert_eq!(answer.json()["result"]["protocolVersion"], "2025-11-25");
}
