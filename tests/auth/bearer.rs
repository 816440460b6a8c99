//! Tokens that only the upstream can judge.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::{
    attempt,
    kit::{Client, Gate, Options, Seen, Upstream, eventually, status_of},
    pass, session, with_token,
};

const BEARER: &str = "[auth]\nmode = \"bearer\"\n";

async fn house() -> (Upstream, Gate) {
    let upstream = Upstream::start(Options { listens: true, ..Options::default() }).await;
    let gate = Gate::with(&upstream, BEARER).await;
    (upstream, gate)
}

/// Checks that taskgate itself refuses every request of the client.
async fn reads_nothing(upstream: &Upstream, client: &Client, id: &str) {
    let before = upstream.seen().len();
    for (method, params) in [
        ("tasks/get", json!({ "taskId": id })),
        ("tasks/result", json!({ "taskId": id })),
        ("tasks/list", json!({})),
        ("tasks/cancel", json!({ "taskId": id })),
        ("tools/call", json!({ "name": "echo", "arguments": {} })),
        ("initialize", json!({})),
    ] {
        let answer = client.answer(method, params).await;
        assert_eq!(answer.refusal().2, "Unauthorized: the server behind has refused the token", "{method}");
        assert!(answer.header("www-authenticate").starts_with("Bearer error=\"invalid_token\""));
    }
    assert_eq!(client.send(Method::GET, "").await.status, 401);
    assert_eq!(client.delete().await.status, 401);
    assert_eq!(upstream.seen().len(), before);
}

#[tokio::test]
async fn each_token_is_an_owner_and_is_forwarded_to_the_upstream() {
    let (upstream, gate) = house().await;
    let (ann, bob) = (session(&gate, "ann").await, session(&gate, "bob").await);
    let id = ann.create_id("slow").await;
    let slow = upstream.held("slow").await;
    assert_eq!(slow.seen.header("authorization"), "Bearer ann");
    assert_eq!(session(&gate, "ann").await.list().await, std::slice::from_ref(&id));
    assert_eq!(bob.error("tasks/get", json!({ "taskId": id })).await.0, -32602);
    assert_eq!(ann.with("authorization", "Bearer bob").answer("ping", json!({})).await.status, 404);
    // As documented: another token is another owner, though it may be the same user.
    assert_eq!(session(&gate, "ann2").await.list().await, Vec::<String>::new());
}

#[tokio::test]
async fn without_a_token_no_request_reaches_the_upstream() {
    let (upstream, gate) = house().await;
    let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
    assert_eq!((answer.refusal().0, answer.header("www-authenticate")), (401, "Bearer"));
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_token_refused_in_a_call_reads_nothing_more() {
    let (upstream, gate) = house().await;
    upstream.hold("echo");
    let client = session(&gate, "token").await;
    let id = client.create_id("slow").await;
    let (answer, ()) = tokio::join!(client.answer("tools/call", json!({ "name": "echo" })), async {
        let challenge = [("www-authenticate", "Bearer realm=\"upstream\"")];
        upstream.held("echo").await.status(401, &challenge, "no");
    });
    // The upstream's own words pass.
    assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (401, "Bearer realm=\"upstream\""));
    reads_nothing(&upstream, &client, &id).await;
    session(&gate, "other").await;
}

#[tokio::test]
async fn a_token_refused_at_initialize_is_not_tried_again() {
    let (upstream, gate) = house().await;
    upstream.hold("initialize");
    let (answer, ()) = tokio::join!(attempt(&gate, "token"), async {
        upstream.held("initialize").await.status(401, &[], "no");
    });
    assert_eq!(answer.status, 401);
    assert_eq!(attempt(&gate, "token").await.status, 401);
    assert_eq!(upstream.count("initialize"), 1);
}

#[tokio::test]
async fn a_token_refused_in_a_notification_reads_nothing_more() {
    let (upstream, gate) = house().await;
    let client = session(&gate, "token").await;
    let id = client.create_id("slow").await;
    upstream.hold("notifications/x");
    let (status, ()) = tokio::join!(client.notify("notifications/x", json!({})), async {
        upstream.held("notifications/x").await.status(401, &[], "no");
    });
    assert_eq!(status, 401);
    reads_nothing(&upstream, &client, &id).await;
}

#[tokio::test]
async fn a_token_refused_in_the_call_of_a_task_reads_nothing_more() {
    let (upstream, gate) = house().await;
    let client = session(&gate, "token").await;
    let (done, id) = (client.create_id("echo").await, client.create_id("slow").await);
    client.until(&done, "completed").await;
    upstream.held("slow").await.status(401, &[], "no");
    eventually(async || (client.answer("ping", json!({})).await.status == 401).then_some(())).await;
    reads_nothing(&upstream, &client, &id).await;
    reads_nothing(&upstream, &client, &done).await;
}

#[tokio::test]
async fn a_token_refused_on_the_get_stream_reads_nothing_more() {
    let (upstream, gate) = house().await;
    let client = session(&gate, "token").await;
    let id = client.create_id("slow").await;
    upstream.held("GET").await.status(401, &[], "no");
    eventually(async || (client.answer("ping", json!({})).await.status == 401).then_some(())).await;
    reads_nothing(&upstream, &client, &id).await;
}

#[tokio::test]
async fn open_streams_of_a_refused_token_deliver_nothing_more() {
    let (upstream, gate) = house().await;
    upstream.hold("echo");
    let client = session(&gate, "token").await;
    let server = upstream.get_stream().await;
    let mut stream = client.get_stream().await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    assert_eq!(waiting.head().await.0, 200);
    let (_, ()) = tokio::join!(client.answer("tools/call", json!({ "name": "echo" })), async {
        upstream.held("echo").await.status(401, &[], "no");
    });
    server.notify("notifications/secret", json!({})).await;
    slow.result(r#"{"content":[{"type":"text","text":"secret"}]}"#);
    assert_eq!(stream.next().await, None);
    assert_eq!(waiting.next().await, None);
}

/// A refusal is remembered for a time. A session that outlived it would read without the server being asked again.
#[tokio::test]
async fn the_sessions_of_a_refused_token_end_and_those_of_others_stay() {
    let (upstream, gate) = house().await;
    let (client, other) = (session(&gate, "token").await, session(&gate, "other").await);
    client.create_id("slow").await;
    upstream.held("slow").await.status(401, &[], "no");
    eventually(async || (client.answer("ping", json!({})).await.status == 401).then_some(())).await;
    eventually(async || {
        pass(Duration::from_secs(1)).await;
        let ended = |seen: &Seen| seen.method == Method::DELETE && seen.header("mcp-session-id") == "upstream-1";
        upstream.seen().iter().any(ended).then_some(())
    })
    .await;
    assert_eq!(other.ask("ping", json!({})).await, json!({}));
    assert!(
        !upstream.seen().iter().any(|seen| seen.header("mcp-session-id") == "upstream-2" && seen.method == "DELETE")
    );
}

#[tokio::test]
async fn a_token_that_one_server_refuses_may_be_accepted_by_another() {
    let [one, other] = [Upstream::json().await, Upstream::json().await];
    let block = |path, upstream: &Upstream| format!("[[upstream]]\npath = \"/{path}\"\nurl = \"{}\"\n", upstream.url());
    let gate = Gate::configured(&format!("{BEARER}{}{}", block("one", &one), block("other", &other))).await;
    let token = |at: usize| with_token(&gate.urls[at], "token");
    let client = token(1).initialize("2025-11-25", json!({})).await;
    one.hold("initialize");
    let stranger = token(0);
    let (refused, ()) = tokio::join!(stranger.ask_to_initialize("2025-11-25", json!({})), async {
        one.held("initialize").await.status(401, &[], "no");
    });
    assert_eq!(refused.status, 401);
    assert_eq!(stranger.ask_to_initialize("2025-11-25", json!({})).await.refusal().0, 401);
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn a_403_is_about_the_call_and_not_about_the_token() {
    let (upstream, gate) = house().await;
    upstream.hold("echo");
    let client = session(&gate, "token").await;
    let id = client.create_id("slow").await;
    let (answer, ()) = tokio::join!(client.answer("tools/call", json!({ "name": "echo" })), async {
        upstream.held("echo").await.status(403, &[], "not this one");
    });
    assert_eq!(answer.status, 403);
    assert_eq!(status_of(&client.get(&id).await), "working");
    assert_eq!(with_token(&gate.url, "token").ask_to_initialize("2025-11-25", json!({})).await.status, 200);
}
