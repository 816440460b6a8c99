//! Clients that mean harm: each is refused with the right status and code, costs a bounded amount, and disturbs no
//! other client.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod crowds;
mod giants;
mod http2;
mod limits;
mod raw;
mod shapes;
mod words;

use kit::Witnessed as House;
use serde_json::json;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
/// What must never reach the server behind.
const SMUGGLED: &str = r#"{"jsonrpc":"2.0","id":2,"method":"smuggled"}"#;

impl House {
    async fn raw(&self) -> raw::Raw {
        raw::Raw::connect(self.gate.authority()).await
    }

    /// Checks that the process and the other session go on, and that nothing was smuggled past taskgate.
    async fn still_works(&self) {
        assert_eq!(self.witness.ask("ping", json!({})).await, json!({}));
        assert!(!self.upstream.seen().iter().any(|seen| seen.text().contains("smuggled")));
    }
}
