//! Tokens change, and the tasks stay.

use serde_json::json;

use crate::{
    introspection::{active, secret},
    issuer::{Issuer, Signer},
    kit::{Client, Gate, Upstream, status_of},
    session, with_token,
};

/// Checks that a task created with one token is found with another, in the same session and in a new one.
async fn stays(upstream: &Upstream, before: Client, after: Client) {
    let before = before.initialize("2025-11-25", json!({})).await;
    let id = before.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let new = after.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let same_session = before.with("authorization", &new.unwrap_or_default());
    let new_session = after.initialize("2025-11-25", json!({})).await;
    assert_eq!(status_of(&same_session.get(&id).await), "working");
    assert_eq!(new_session.list().await, std::slice::from_ref(&id));
    slow.result(r#"{"content":[]}"#);
    assert_eq!(new_session.collect(&id).await["result"]["content"], json!([]));
}

#[tokio::test]
async fn a_jwt_that_replaces_another_keeps_the_tasks() {
    let (old, new) = (Signer::ec("old"), Signer::rsa("new"));
    let issuer = Issuer::start(&[&old, &new]).await;
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &issuer.jwt()).await;
    let client = |key: &Signer| with_token(&gate.url, &key.token(&issuer.claims("ann")));
    stays(&upstream, client(&old), client(&new)).await;
}

#[tokio::test]
async fn an_introspected_token_that_replaces_another_keeps_the_tasks() {
    let issuer = Issuer::start(&[]).await;
    let upstream = Upstream::json().await;
    let secret = secret();
    let gate = Gate::with(&upstream, &issuer.introspect(secret.path().to_str().unwrap())).await;
    issuer.say("first", active(&issuer, "ann"));
    issuer.say("second", active(&issuer, "ann"));
    stays(&upstream, with_token(&gate.url, "first"), with_token(&gate.url, "second")).await;
}

#[tokio::test]
async fn with_a_trusted_header_a_token_beside_it_is_ignored() {
    let upstream = Upstream::json().await;
    let toml = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]";
    let gate = Gate::with(&upstream, toml).await;
    let client = |token| with_token(&gate.url, token).with("x-user", "ann");
    stays(&upstream, client("first"), client("second")).await;
}

#[tokio::test]
async fn the_same_subject_of_another_kind_of_token_is_the_same_owner() {
    let key = Signer::ec("key");
    let issuer = Issuer::start(&[&key]).await;
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &issuer.jwt()).await;
    let mut claims = issuer.claims("ann");
    claims["aud"] = json!(["other"]);
    claims["client_id"] = "another client".into();
    let ann = session(&gate, &key.token(&claims)).await;
    let id = ann.create_id("slow").await;
    let elsewhere = session(&gate, &key.token(&issuer.claims("ann"))).await;
    assert_eq!(elsewhere.list().await, [id]);
}
