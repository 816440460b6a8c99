//! What streams are told of jobs: nothing, as their clients know no tasks.

use uuid::Uuid;

use crate::{
    task::{Outlook, Task, TaskId, TaskWriter},
    wire::{Message, RpcError, input_required::check_question},
};

/// Writes nothing. The questions of a job are asked on the stream of a call that waits for it.
#[derive(Debug)]
pub(super) struct JobWriter;

impl TaskWriter for JobWriter {
    fn name(&self) -> &'static str {
        "job"
    }

    fn status(&self, _: &Task, _: &Outlook) -> Option<Message> {
        None
    }

    /// A log message needs no task.
    fn tied(&self, _: TaskId, message: &Message) -> Option<Message> {
        Some(message.clone())
    }

    fn is_progress(&self, _: TaskId, _: &Message) -> bool {
        false
    }

    /// Clients of either generation wait for jobs.
    fn refusal(&self, request: &Message) -> Option<RpcError> {
        check_question(&request.method_name(), request.params()).err()
    }

    fn question(&self, _: TaskId, _: Uuid, request: &Message) -> Option<Message> {
        Some(request.clone())
    }

    fn withdrawal(&self, _: TaskId, _: Uuid) -> Option<Message> {
        None
    }

    fn pushes_questions(&self) -> bool {
        false
    }

    fn question_of(&self, _: &Message) -> Option<Uuid> {
        None
    }
}
