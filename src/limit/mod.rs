//! Limits: which calls run, wait and are refused, and how often an owner may do what.

mod accounts;
mod limited;
#[cfg(test)]
mod model;
mod scheduler;
mod turns;

pub use accounts::{Account, Accounts, FailedLookup, Rated, TooOften};
pub use limited::{Bound, Limited};
pub use scheduler::{ToolId, ToolLimits, Totals};
pub use turns::{Admission, Permit, QueuedCall, Turns};
