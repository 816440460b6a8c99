//! What streams are told of tasks in this generation: nothing, as its clients poll.

use uuid::Uuid;

use crate::{
    task::{Outlook, Task, TaskId, TaskWriter},
    wire::{Message, RpcError, input_required::check_question},
};

/// Returns what writes for the streams of this generation.
#[must_use]
pub fn writer() -> &'static dyn TaskWriter {
    &Polled
}

/// Writes for streams of this generation, which get nothing of tasks: their clients poll.
#[derive(Debug)]
pub(super) struct Polled;

impl TaskWriter for Polled {
    fn name(&self) -> &'static str {
        "modern"
    }

    fn status(&self, _: &Task, _: &Outlook) -> Option<Message> {
        None
    }

    fn tied(&self, _: TaskId, _: &Message) -> Option<Message> {
        None
    }

    fn is_progress(&self, _: TaskId, _: &Message) -> bool {
        false
    }

    fn refusal(&self, request: &Message) -> Option<RpcError> {
        check_question(&request.method_name(), request.params()).err()
    }

    /// A question is read where it stands, at the task.
    fn question(&self, _: TaskId, _: Uuid, request: &Message) -> Option<Message> {
        Some(request.clone())
    }

    fn withdrawal(&self, _: TaskId, _: Uuid) -> Option<Message> {
        None
    }

    fn question_of(&self, _: &Message) -> Option<Uuid> {
        None
    }
}
