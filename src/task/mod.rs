//! The product: a tool call that its caller can leave, poll, list, cancel and collect.
//!
//! The engine knows no wire form of tasks, only states, owners, deadlines and the raw bytes of outcomes. A dialect
//! turns what its clients send into calls of the engine, and writes what the engine tells.

mod adopt;
mod begin;
mod call_session;
mod calls;
mod clock;
mod create;
mod desk;
mod engine;
#[cfg(test)]
mod faults;
mod id_map;
mod in_words;
mod input;
mod insert;
#[cfg(test)]
mod interleavings;
mod lasting;
mod leave;
mod ledger;
mod links;
mod pace;
mod poll_demand;
mod poll_plan;
mod restore;
mod retrieve;
mod run_times;
mod runner;
mod saved;
mod saving;
mod session_end;
mod state;
mod status_message;
pub mod store;
mod stream;
#[cfg(test)]
mod tiny;
mod tool_times;
mod trying;
mod ttl;
mod wakes;
mod writer;

pub use adopt::{Adopted, Adoption};
pub use call_session::CallSession;
pub use calls::ToTell;
pub use clock::{Clock, Now};
pub use create::{CreatedTask, MAX_REPLIES, NewTask, NotCreated, ToolCall};
pub use desk::MAX_QUESTIONS;
pub use engine::{Engine, Limits};
pub use in_words::in_words;
pub use lasting::LastingWork;
pub use ledger::{Missing, UNAVAILABLE};
pub use pace::Outlook;
pub use restore::{Restored, Restoring};
pub use retrieve::{NotCancelled, PolledTask};
pub use run_times::{PollBounds, RunTimes, UsualTime};
pub use state::{Change, End, Ending, State, Task, TaskId};
pub use store::{KeptLimit, PageOrder};
pub use stream::{PendingResponse, WaitingRequest};
#[cfg(test)]
pub(crate) use tiny::unlimited;
pub use trying::Trying;
pub use ttl::AskedTtl;
pub use wakes::{MaxWaiters, WaitLimit, Watch};
pub use writer::TaskWriter;
