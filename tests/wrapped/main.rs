//! `taskgate stdio`: one client on stdin and stdout, any kind of server behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod ending;
mod starting_anew;
mod talking;
