//! What streams are told of jobs: nothing, as their clients know no tasks.

use crate::{
    task::{TaskId, TaskWriter},
    wire::{Message, RpcError, input_required::check_question},
};

/// Writes nothing. The questions of a job are asked on the stream of a call that waits for it.
#[derive(Debug)]
pub(super) struct JobWriter;

impl TaskWriter for JobWriter {
    fn name(&self) -> &'static str {
        "job"
    }

    /// A log message needs no task.
    fn tied(&self, _: TaskId, message: &Message) -> Option<Message> {
        Some(message.clone())
    }

    /// Clients of either generation wait for jobs.
    fn refusal(&self, request: &Message) -> Option<RpcError> {
        check_question(&request.method_name(), request.params()).err()
    }

    fn pushes_questions(&self) -> bool {
        false
    }
}
