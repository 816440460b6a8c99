//! Limits: which calls run, wait and are refused, and how often an owner may do what.

mod count;
mod in_flight;
mod limited;
#[cfg(test)]
mod model;
mod rates;
mod scheduler;
mod turns;

pub use in_flight::{FlightGuard, InFlight, KeptBytes};
pub use limited::{Bound, Limited};
pub use rates::{Account, Accounts, FailedLookup, Rated, TooOften};
pub use scheduler::{ToolId, ToolLimits, Totals};
pub use turns::{Admission, Permit, QueuedCall, Turns};
