//! Limits: which calls run, wait and are refused, and how often an owner may do what.

mod accounts;
#[cfg(test)]
mod model;
mod scheduler;
mod turns;

pub use accounts::{Account, Accounts, FailedLookup, Rated, TooOften};
pub use scheduler::{ToolId, ToolLimits};
pub use turns::{Admission, Bound, Limited, Permit, QueuedCall, Totals, Turns};
