//! Who is asking: tokens, their issuers, and what each owner can reach.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod bearer;
mod expiry;
mod introspection;
mod issuer;
mod keys;
mod metadata;
mod owners;
mod rotation;
mod secrecy;
mod tokens;

use std::time::Duration;

use kit::{Answer, Client, Gate, eventually};
use serde_json::json;

/// Returns a client with a token that has not initialised a session.
fn with_token(url: &str, token: &str) -> Client {
    Client::new(url).with("authorization", &format!("Bearer {token}"))
}

/// Opens a session with a token.
async fn session(gate: &Gate, token: &str) -> Client {
    with_token(&gate.url, token).initialize("2025-11-25", json!({})).await
}

/// Sends an `initialize` with a token, and returns the answer.
async fn attempt(gate: &Gate, token: &str) -> Answer {
    with_token(&gate.url, token).ask_to_initialize("2025-11-25", json!({})).await
}

/// Tries until a token is answered with this status.
async fn until_status(gate: &Gate, token: &str, status: u16) -> Answer {
    eventually(async || Some(attempt(gate, token).await).filter(|answer| answer.status == status)).await
}

/// Lets time pass, for everything that keeps it by tokio's clock.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}
