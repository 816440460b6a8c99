//! What is not about tasks passes, byte for byte, in both directions, also when something breaks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod broken;
mod bytes;
mod cancelling;
mod headers;
mod ids;
mod notifications;
mod progress;
mod resuming;
mod server_requests;
mod sessions;
mod streams;
