//! The product: a tool call that its caller can leave, poll, list, cancel and collect.
//!
//! The engine knows no wire form of tasks. It has a state machine, an owner, deadlines and the raw bytes of the outcome;
//! a dialect turns what its clients send into calls of the engine, and writes what the engine tells.

mod calls;
mod clock;
mod create;
mod desk;
mod engine;
#[cfg(test)]
mod faults;
mod feed;
mod input;
#[cfg(test)]
mod interleavings;
mod lasting;
mod ledger;
mod outcome;
mod retrieve;
mod runner;
mod session_end;
mod state;
pub mod store;
#[cfg(test)]
mod tiny;
mod wakes;
mod writer;

pub use clock::{Clock, Now};
pub use create::{AskedTtl, Created, Refused, Request, Wanted};
pub use engine::{Engine, Limits};
pub use feed::{Response, Waits};
pub use lasting::Lasting;
pub use retrieve::{Missing, NotCancelled};
pub use state::{Change, End, Ending, HasEnded, State, Task, TaskId};
pub use store::Limit as KeptLimit;
pub use wakes::{MaxWaiters, WaitLimit, Watch};
pub use writer::Writer;
