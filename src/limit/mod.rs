//! Limits: turns of the tools that run, and how often an owner may do what.

mod accounts;
mod turns;

pub use accounts::{Account, Accounts, Lookup, Rated, TooOften};
pub use turns::{Admission, Limited, Permit, Turns, Waiting};
