//! Limits: which calls run, wait and are refused, and how often an owner may do what.

#[cfg(test)]
mod model;
mod rates;
mod scheduler;
mod turns;

pub use rates::{Account, Accounts, FailedLookup, Rated, TooOften};
pub use scheduler::{ToolId, ToolLimits};
pub use turns::{Admission, Bound, Limited, Permit, QueuedCall, Totals, Turns};
