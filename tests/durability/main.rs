//! Nothing acknowledged is lost: taskgate with its store on disk is killed, loses power, and meets disks that
//! misbehave. `scripts/durability` runs it for longer.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod adopting;
mod book;
mod damage;
mod ends_and_starts;
mod faults;
mod house;
mod kills;
#[path = "../kit/mod.rs"]
mod kit;
mod loss;
mod misbehaving;
#[path = "../modern/client.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod modern_client;
mod outage;
mod people;
mod power;
mod refused;
mod shim_itself;
mod space;
mod workshop;
