//! How taskgate finds a server's transport (revision 2025-11-25, "Transports", "Backwards Compatibility").

use serde_json::json;

use super::gate_with;
use crate::kit::{Client, Gets, Posts, Seen, SseOptions, SseUpstream};

/// The requests of a session that was opened over HTTP+SSE.
const OPENED: [&str; 3] = ["GET /v1/sse", "POST /message initialize", "POST /message notifications/initialized"];

async fn refusing(status: u16, body: &'static str) -> SseUpstream {
    SseUpstream::start(SseOptions { posts: Posts::Refused(status, body), ..SseOptions::default() }).await
}

#[tokio::test]
async fn a_server_that_refuses_the_post_with_400_404_or_405_is_reached_over_sse() {
    for status in [400, 404, 405] {
        let server = refusing(status, "").await;
        let gate = gate_with(&server, "").await;
        let client = Client::connect(&gate.url).await;
        let mut expected = vec!["POST /v1/sse initialize"];
        expected.extend(OPENED);
        assert_eq!(server.requests(), expected, "{status}");
        assert!(client.initialized["capabilities"]["tasks"].is_object());
        client.ask("ping", json!({})).await;
    }
}

#[tokio::test]
async fn the_clients_headers_go_with_the_stream_and_with_every_message() {
    let server = refusing(405, "").await;
    let gate = gate_with(&server, "").await;
    let client = Client::new(&gate.url).with("authorization", "Bearer secret").with("x-tenant", "blue");
    client.initialize("2025-11-25", json!({})).await;
    for seen in server.seen() {
        assert_eq!((seen.header("authorization"), seen.header("x-tenant")), ("Bearer secret", "blue"), "{seen:?}");
        assert_eq!(seen.header("mcp-session-id"), "");
        let accept = if seen.method == "GET" { "text/event-stream" } else { seen.header("accept") };
        assert_eq!(seen.header("accept"), accept);
    }
}

#[tokio::test]
async fn a_session_over_the_fallback_ends_like_any_other_from_either_side() {
    let server = refusing(405, "").await;
    let gate = gate_with(&server, "").await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    assert_eq!(ann.delete().await.status, 200);
    server.abandoned(1).await;
    let caller = bob.clone();
    let call = tokio::spawn(async move { caller.error("tools/call", json!({ "name": "slow" })).await });
    server.message("slow").await;
    server.end(2);
    assert!(call.await.unwrap().1.contains("which ends the session"));
    assert_eq!(bob.answer("ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn the_next_session_does_not_try_the_refused_post_again() {
    let server = refusing(405, "").await;
    let gate = gate_with(&server, "").await;
    Client::connect(&gate.url).await;
    Client::connect(&gate.url).await;
    assert_eq!(server.requests()[4..], OPENED);
}

#[tokio::test]
async fn a_server_that_has_become_streamable_is_found_again() {
    let server = refusing(405, "").await;
    let gate = gate_with(&server, "").await;
    Client::connect(&gate.url).await;
    server.become_one_that(SseOptions { gets: Gets::Refused(405), posts: Posts::Answered, ..SseOptions::default() });
    Client::connect(&gate.url).await;
    assert_eq!(server.requests()[4..6], ["GET /v1/sse", "POST /v1/sse initialize"]);
    Client::connect(&gate.url).await;
    // The GET stream of Streamable HTTP names the revision.
    let tries = |seen: &Seen| seen.method == "GET" && seen.header("mcp-protocol-version").is_empty();
    assert_eq!(server.seen().into_iter().filter(tries).count(), 2, "what worked the last time is remembered");
}

#[tokio::test]
async fn a_server_found_over_sse_that_then_fails_both_ways_is_asked_each_way_once() {
    let server = refusing(404, "nothing here").await;
    let gate = gate_with(&server, "").await;
    Client::connect(&gate.url).await;
    server.become_one_that(SseOptions {
        gets: Gets::Refused(502),
        posts: Posts::Refused(404, "nothing here"),
        ..SseOptions::default()
    });
    let (_, _, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!(server.requests()[4..], ["GET /v1/sse", "POST /v1/sse initialize"]);
    assert!(message.contains("404") && message.contains("502"), "{message}");
}

#[tokio::test]
async fn no_other_refusal_is_followed_by_a_get() {
    for status in [401, 403, 406, 415, 429, 500, 503] {
        let server = refusing(status, "not now").await;
        let gate = gate_with(&server, "").await;
        let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
        assert_eq!(server.requests(), ["POST /v1/sse initialize"]);
        // Authorization is between the client and the server.
        assert_eq!(answer.status, if status == 401 || status == 403 { status } else { 200 });
        assert!(answer.text().contains("not now"), "{answer:?}");
    }
}

#[tokio::test]
async fn an_error_under_the_requests_own_id_is_the_answer_and_not_a_refusal() {
    let server = refusing(400, r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#).await;
    let gate = gate_with(&server, "").await;
    let refusal = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!(refusal, (200, -32602, "no".to_owned()));
    assert_eq!(server.count("GET"), 0);
}

#[tokio::test]
async fn where_the_server_has_no_stream_either_the_client_gets_both_errors() {
    let options = SseOptions { gets: Gets::Refused(405), posts: Posts::Refused(404, "nothing here"), ..<_>::default() };
    let server = SseUpstream::start(options).await;
    let gate = gate_with(&server, "").await;
    let (status, code, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32603));
    for part in ["404 Not Found: nothing here", "HTTP+SSE", "405 Method Not Allowed: no stream"] {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn where_the_server_has_no_stream_either_its_own_error_is_the_answer() {
    let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request"}}"#;
    let options = SseOptions { gets: Gets::Refused(400), posts: Posts::Refused(400, body), ..<_>::default() };
    let server = SseUpstream::start(options).await;
    let gate = gate_with(&server, "").await;
    let refusal = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!(refusal, (200, -32000, "Bad Request".to_owned()));
    assert_eq!(server.count("GET"), 1);
}

#[tokio::test]
async fn a_401_to_the_stream_passes_with_its_challenge() {
    for keys in ["", "transport = \"sse\""] {
        let server = SseUpstream::start(SseOptions { gets: Gets::Held, ..<_>::default() }).await;
        let gate = gate_with(&server, keys).await;
        let client = Client::new(&gate.url);
        let (answer, ()) = tokio::join!(client.ask_to_initialize("2025-11-25", json!({})), async {
            server.held("GET").await.status(401, &[("www-authenticate", "Bearer realm=\"r\"")], "who is there?");
        });
        assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (401, "Bearer realm=\"r\""));
    }
}

#[tokio::test]
async fn transport_sse_never_posts_to_the_url() {
    let server = SseUpstream::start(SseOptions { posts: Posts::Answered, ..<_>::default() }).await;
    let gate = gate_with(&server, "transport = \"sse\"").await;
    Client::connect(&gate.url).await;
    assert_eq!(server.requests(), OPENED);
}

#[tokio::test]
async fn transport_streamable_http_never_opens_an_old_stream() {
    let server = refusing(405, "").await;
    let gate = gate_with(&server, "transport = \"streamable-http\"").await;
    let (_, _, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert!(message.contains("405"), "{message}");
    assert_eq!(server.count("GET"), 0);
}
