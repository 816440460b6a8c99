//! Tasks of revision 2025-11-25 as a receiver: one test for each promise of the protocol and of the configuration.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod asking_again;
mod belonging;
mod cancelling;
mod creating;
mod getting;
mod input;
mod limits;
mod listing;
mod native;
mod negotiation;
mod open_questions;
mod owners;
mod poll_intervals;
mod results;
mod sessions;
mod several_sessions;
mod shares;
mod telling;
mod ttl;
mod upstream;
