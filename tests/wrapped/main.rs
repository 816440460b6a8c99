//! `taskgate stdio`: what its one client gets in front of every kind of server, how it ends, and its exit code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod ending;
mod starting_anew;
mod talking;
