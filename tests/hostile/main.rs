//! Hostile input for the pure parts: one set of promises, for the committed inputs of the fuzz targets and for random
//! ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod corpora;
#[allow(unreachable_pub, reason = "the fuzz targets are another crate, of which it is the library")]
mod oracles;
mod properties;
