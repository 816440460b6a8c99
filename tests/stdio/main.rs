//! Servers that are child processes: what they receive, what comes back, and that none of them is left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod answers;
mod calls;
mod dying;
mod ending;
mod giving_way;
mod moments;
mod nasty;
mod native;
mod queue;
mod shared;
mod starting;
mod stopping;
