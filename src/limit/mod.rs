//! Limits: turns of the calls that run, and how often an owner may do what.

mod accounts;
mod line;
#[cfg(test)]
mod model;
mod turns;

pub use accounts::{Account, Accounts, Lookup, Rated, TooOften};
pub use line::ToolId;
pub use turns::{Admission, Bound, Limited, Permit, Totals, Turns, Waiting};
