//! What a server says of its client's credential passes, so that the client can log in.

use serde_json::{Value, json};

use crate::{
    client::Modern,
    kit::{Answer, Client, Gate, Upstream, soon},
};

const CHALLENGE: &str = "Bearer error=\"invalid_token\", resource_metadata=\"https://example.com/metadata\"";

/// Has `upstream` refuse the credential of a request, and returns what its client gets.
async fn refused(upstream: &Upstream, held: &str, status: u16, method: &'static str, params: Value) -> Answer {
    let gate = Gate::before(upstream).await;
    upstream.hold(held);
    let client = Modern::with_tasks(&gate.url);
    let asking = tokio::spawn(async move { client.send(method, params).await });
    upstream.held(held).await.status(status, &[("www-authenticate", CHALLENGE)], "who is there?");
    soon(asking).await.unwrap()
}

fn passed(answer: &Answer, status: u16) {
    assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (status, CHALLENGE), "{answer:?}");
    assert_eq!(answer.text(), "who is there?");
}

#[tokio::test]
async fn a_refused_credential_of_a_call_is_told_with_the_servers_challenge() {
    for upstream in [Upstream::json().await, Upstream::modern(json!({ "tools": {} })).await] {
        for status in [401, 403] {
            let call = json!({ "name": "slow", "arguments": {} });
            passed(&refused(&upstream, "slow", status, "tools/call", call).await, status);
        }
    }
}

#[tokio::test]
async fn a_refused_credential_that_is_a_json_rpc_error_has_the_clients_id() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let (modern, session) = (Modern::plain(&gate.url), Client::connect(&gate.url).await);
    for is_modern in [true, false] {
        let (modern, session) = (modern.clone(), session.clone());
        let call = json!({ "name": "slow", "arguments": {} });
        let asking = tokio::spawn(async move {
            // Its id is not the one that taskgate gives the request.
            let client = if is_modern { &modern.http } else { &session };
            let id = (0..50).fold(0, |_, _| client.next_id()) + 1;
            let answer = if is_modern {
                modern.send("tools/call", call).await
            } else {
                session.answer("tools/call", call).await
            };
            (id, answer)
        });
        let held = upstream.held("slow").await;
        let error =
            json!({ "jsonrpc": "2.0", "id": held.seen.json()["id"], "error": { "code": -32001, "message": "no" } });
        held.status(401, &[("content-type", "application/json")], &error.to_string());
        let (id, answer) = soon(asking).await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.json()["id"]), (401, &json!(id)), "{answer:?}");
    }
}

#[tokio::test]
async fn a_refused_credential_of_the_handshake_is_told_with_the_servers_challenge() {
    for method in ["server/discover", "tools/list"] {
        let upstream = Upstream::json().await;
        passed(&refused(&upstream, "initialize", 401, method, json!({})).await, 401);
    }
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    passed(&refused(&upstream, "server/discover", 401, "tools/list", json!({})).await, 401);
}

#[tokio::test]
async fn a_refused_credential_of_the_session_that_follows_a_forgotten_one_is_told_with_the_servers_challenge() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    client.call("echo").await;
    upstream.forget_sessions();
    upstream.hold("initialize");
    let call = json!({ "name": "echo", "arguments": {} });
    let asking = tokio::spawn(async move { client.send("tools/call", call).await });
    upstream.held("initialize").await.status(401, &[("www-authenticate", CHALLENGE)], "who is there?");
    passed(&soon(asking).await.unwrap(), 401);
}
