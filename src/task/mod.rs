//! The product: a tool call that its caller can leave, poll, list, cancel and collect.
//!
//! The engine knows no wire form of tasks. It has a state machine, an owner, deadlines and the raw bytes of the outcome;
//! the files named for a method turn the wire into engine calls and back.

mod calls;
mod cancel;
mod change;
mod clock;
mod create;
mod cursor;
mod desk;
mod engine;
#[cfg(test)]
mod faults;
mod feed;
mod get;
mod input;
#[cfg(test)]
mod interleavings;
mod lasting;
mod list;
mod native;
mod outcome;
mod reply;
mod result;
mod runner;
mod state;
pub mod store;
mod wakes;

pub use clock::{Clock, Now};
pub use create::{Created, Wanted};
pub use engine::{Engine, Limits};
pub use input::Answered;
pub use lasting::Lasting;
pub use reply::{NoAnswer, Reply, not_found};
pub use state::{Change, End, Ending, HasEnded, State, Task, TaskId};
