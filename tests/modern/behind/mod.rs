//! Servers that are modern themselves: what goes up and comes back is theirs, and tasks are taskgate's.

mod generation;
mod plain;
mod questions;
mod tasks;
