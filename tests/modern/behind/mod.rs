//! Servers that are modern themselves: what goes up and comes back is theirs, and tasks are taskgate's.

mod credentials;
mod generation;
mod listening;
mod native;
mod plain;
mod questions;
mod stdio;
mod tasks;
