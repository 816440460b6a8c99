//! Tokens that expire: what runs goes on, and what is retrieved needs another token.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    issuer::{Issuer, Signer, in_seconds},
    kit::{Client, Gate, Options, Upstream, eventually, status_of},
    pass, session,
};

/// Returns a token that ends soon, though not before what a busy machine does first.
fn short(issuer: &Issuer, key: &Signer) -> String {
    let mut claims = issuer.claims("ann");
    claims["exp"] = in_seconds(4.0).into();
    key.token(&claims)
}

/// Waits until the client's token has ended.
async fn ended(client: &Client) {
    eventually(async || {
        let answer = client.answer("ping", json!({})).await;
        (answer.status == 401).then(|| assert!(answer.header("www-authenticate").contains("expired")))
    })
    .await;
}

async fn house() -> (Upstream, Gate, Issuer, Signer) {
    let key = Signer::ec("key");
    let issuer = Issuer::start(&[&key]).await;
    let upstream = Upstream::start(Options { listens: true, ..Options::default() }).await;
    let gate = Gate::with(&upstream, &issuer.jwt()).await;
    (upstream, gate, issuer, key)
}

/// Returns the same client with a new token.
fn renewed(client: &Client, issuer: &Issuer, key: &Signer) -> Client {
    client.with("authorization", &format!("Bearer {}", key.token(&issuer.claims("ann"))))
}

#[tokio::test]
async fn a_task_outlives_the_token_of_its_call_and_a_live_token_collects_the_result() {
    let (upstream, gate, issuer, key) = house().await;
    let client = session(&gate, &short(&issuer, &key)).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    assert_eq!(waiting.head().await.0, 200);
    let primed = waiting.next_of_any_kind().await.unwrap();
    ended(&client).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        assert_eq!(client.answer(method, json!({ "taskId": id })).await.status, 401, "{method}");
    }
    assert!(slow.is_open(), "the call is the task's, not the token's");
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#);
    // The waiting stream ends without the result.
    assert_eq!(waiting.next().await, None);
    let client = renewed(&client, &issuer, &key);
    client.until(&id, "completed").await;
    assert_eq!(client.collect(&id).await["result"]["content"][0]["text"], "done");
    // It can also be resumed, and then brings the result.
    let resumed = client.with("last-event-id", &primed.id.unwrap()).get_stream().await.last().await;
    assert_eq!(resumed["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn a_get_stream_delivers_nothing_after_its_token_expires_and_resumes_with_a_new_one() {
    let (upstream, gate, issuer, key) = house().await;
    let client = session(&gate, &short(&issuer, &key)).await;
    let server = upstream.get_stream().await;
    let mut stream = client.get_stream().await;
    server.notify("notifications/before", json!({})).await;
    let before = stream.next().await.unwrap();
    assert_eq!(before.json()["method"], "notifications/before");
    ended(&client).await;
    server.notify("notifications/after", json!({})).await;
    assert_eq!(stream.next().await, None);
    let client = renewed(&client, &issuer, &key).with("last-event-id", &before.id.unwrap());
    let mut stream = client.get_stream().await;
    assert_eq!(stream.message().await["method"], "notifications/after");
}

#[tokio::test]
async fn a_subscription_of_a_modern_client_tells_only_its_end_after_its_token_expires() {
    let (upstream, gate, issuer, key) = house().await;
    let client = Client::new(&gate.url).with("authorization", &format!("Bearer {}", short(&issuer, &key)));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let modern = client.with("mcp-protocol-version", "2026-07-28").with("mcp-method", "subscriptions/listen");
    let wanted = json!({ "toolsListChanged": true });
    let mut stream = modern.stream("subscriptions/listen", json!({ "_meta": meta, "notifications": wanted }));
    let (server, acknowledged) = tokio::join!(upstream.get_stream(), stream.message());
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    let id = acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
    ended(&client).await;
    server.notify("notifications/tools/list_changed", json!({})).await;
    // taskgate checks it with its next heartbeat.
    pass(Duration::from_secs(15)).await;
    let cancelled = stream.message().await;
    assert_eq!((&cancelled["method"], &cancelled["params"]["requestId"]), (&json!("notifications/cancelled"), &id));
    let end = stream.message().await;
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&id, &json!("complete")));
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_plain_call_is_answered_although_its_token_has_expired_meanwhile() {
    let (upstream, gate, issuer, key) = house().await;
    let client = session(&gate, &short(&issuer, &key)).await;
    let calling = client.ask("tools/call", json!({ "name": "slow", "arguments": {} }));
    let (result, ()) = tokio::join!(calling, async {
        let slow = upstream.held("slow").await.sse();
        slow.notify("notifications/message", json!({ "level": "info", "data": "x" })).await;
        ended(&client).await;
        slow.result(r#"{"content":[]}"#).await;
    });
    assert_eq!(result, json!({ "content": [] }));
}

#[tokio::test]
async fn an_http_sse_stream_lives_as_long_as_the_longest_lived_token_of_its_messages() {
    let key = Signer::ec("key");
    let issuer = Issuer::start(&[&key]).await;
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &format!("{}[[upstream]]\nsse_path = \"/sse\"\n", issuer.jwt())).await;
    let base = gate.url.trim_end_matches("/mcp").to_owned();
    let first = short(&issuer, &key);
    let client = Client::new(&format!("{base}/sse")).with("authorization", &format!("Bearer {first}"));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let open = async || {
        let mut stream = client.get_stream().await;
        let address = stream.next().await.unwrap().data;
        (stream, Client::new(&format!("{base}{address}")).with("authorization", &format!("Bearer {first}")))
    };
    let (mut kept, keeps) = open().await;
    let (mut ends, _) = open().await;
    let newer = renewed(&keeps, &issuer, &key);
    assert_eq!(newer.post(ping).await.status, 202);
    let error: Value = kept.message().await;
    assert_eq!(error["id"], 1, "no session yet, but an answer");
    eventually(async || (keeps.post(ping).await.status == 401).then_some(())).await;
    assert_eq!(newer.post(ping).await.status, 202);
    assert_eq!(kept.message().await["id"], 1);
    // taskgate checks the other one with its next heartbeat.
    pass(Duration::from_secs(15)).await;
    assert_eq!(ends.next().await, None);
    assert_eq!(newer.post(ping).await.status, 202);
}

#[tokio::test]
async fn the_leeway_covers_an_issuer_whose_clock_is_off() {
    let key = Signer::ec("key");
    let issuer = Issuer::start(&[&key]).await;
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &issuer.jwt().replace("1ms", "30s")).await;
    let mut claims = issuer.claims("ann");
    (claims["exp"], claims["nbf"]) = (in_seconds(-20.0).into(), in_seconds(20.0).into());
    let client = session(&gate, &key.token(&claims)).await;
    let id = client.create_id("echo").await;
    assert_eq!(status_of(&client.until(&id, "completed").await), "completed");
}
