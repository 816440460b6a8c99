//! The binary: arguments, environment and file, exit codes, what it prints where, and how it stops.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod audit_file;
mod check;
mod complete;
mod demo;
mod environment;
mod logging;
mod packaging;
mod precedence;
mod secrets;
mod serve;
mod signals;
mod store;
mod version;

use tempfile::TempDir;

/// Wrong arguments or configuration.
const USAGE: Option<i32> = Some(64);

/// Writes a configuration file with this text; returns its folder with it.
fn file(text: &str) -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}
