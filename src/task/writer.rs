//! How what the engine tells is written for a client.

use std::fmt;

use super::Task;
use crate::wire::Message;

/// Writes for the streams of one dialect.
pub trait Writer: fmt::Debug + Send + Sync {
    /// Returns what tells that a task is in the state that it is in; `None` where clients of the dialect are not told.
    fn status(&self, task: &Task) -> Option<Message>;
}
