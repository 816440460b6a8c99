//! Clients of revision 2026-07-28 in front of servers that know sessions only, and of modern ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod asked_apart;
mod behind;
mod client;
mod crowd;
mod crowded;
mod draining;
mod forgotten;
mod limits;
mod listening;
mod logging_in;
mod one_connection;
mod one_process;
mod opening;
mod owners;
mod pages;
mod plain;
mod pool;
mod questions;
mod refused;
mod request_state;
mod retrying;
mod servers;
mod tasks;
mod witness;
