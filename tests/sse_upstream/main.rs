//! Servers of the 2024-11-05 HTTP+SSE transport: how they are found, and that everything works in front of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod answers;
mod broken;
mod calls;
mod endpoint;
mod fallback;
mod forgotten;
mod tasks;

use kit::{Client, Gate, SseUpstream};

/// Starts taskgate in front of `server`, with more keys of its `[[upstream]]`.
async fn gate_with(server: &SseUpstream, keys: &str) -> Gate {
    Gate::configured(&format!("[[upstream]]\nurl = {:?}\n{keys}\n", server.url())).await
}

/// Starts taskgate that is told that `server` is an old one.
async fn gate(server: &SseUpstream) -> Gate {
    gate_with(server, "transport = \"sse\"").await
}

/// Starts a server, taskgate in front of it, and a client in a session.
async fn all() -> (SseUpstream, Gate, Client) {
    let server = SseUpstream::new().await;
    let gate = gate(&server).await;
    let client = Client::connect(&gate.url).await;
    (server, gate, client)
}
