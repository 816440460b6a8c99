//! Limits: turns of the tools that run.

mod turns;

pub use turns::{Admission, Limited, Permit, Turns, Waiting};
