//! Bad input: each gets the right status and code and a text that helps, and everything else goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod http;
mod messages;
mod origins;
mod silence;
mod twice;
mod unread;

use kit::{Client, Witnessed as House};
use serde_json::json;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

impl House {
    async fn client(&self) -> Client {
        Client::connect(&self.gate.url).await
    }

    /// Checks that the process and the other session go on, and that the upstream has seen nothing of the bad input.
    async fn still_works(&self, messages: usize) {
        assert_eq!(self.upstream.seen().len(), messages);
        assert_eq!(self.witness.ask("ping", json!({})).await, json!({}));
    }
}
