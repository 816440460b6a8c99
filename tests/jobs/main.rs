//! Hosts without tasks in front of slow servers: heartbeats while a call is silent, and jobs that a model waits for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

#[path = "../modern/client.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod modern_client;

mod becoming;
mod ends;
mod heartbeats;
mod host;
mod limits;
mod lists;
mod modern;
mod off;
mod questions;
mod transports;
mod waiting;
