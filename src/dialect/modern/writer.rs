//! What streams are told of tasks in this generation: nothing, as its clients poll.

use super::translate;
use crate::{
    task::{TaskId, TaskWriter},
    wire::{Message, RpcError, input_required::check_question},
};

/// Returns what writes for the streams of this generation.
#[must_use]
pub fn writer() -> &'static dyn TaskWriter {
    &Polled
}

/// Writes nothing. A question is read where it stands, at the task.
#[derive(Debug)]
pub(super) struct Polled;

impl TaskWriter for Polled {
    fn name(&self) -> &'static str {
        "modern"
    }

    fn tied(&self, _: TaskId, _: &Message) -> Option<Message> {
        None
    }

    fn answer_in_session(&self, answer: Message) -> Message {
        translate::kept_in_task(&answer).unwrap_or(answer)
    }

    fn refusal(&self, request: &Message) -> Option<RpcError> {
        check_question(&request.method_name(), request.params()).err()
    }

    /// "fulfilled via `tasks/update`": another client of its owner would answer in the place of the one that called.
    fn pushes_questions(&self) -> bool {
        false
    }
}
