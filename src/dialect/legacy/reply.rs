//! How the legacy dialect writes tasks, reads the parameters of task methods, and answers ids that are not found.

use crate::{
    dialect::{DAMAGED, not_found},
    session::Source,
    task::{Ending, Missing, Outlook, State, Task, TaskId, UNAVAILABLE},
    wire::{
        Message, Parts, RpcError, ids,
        legacy::{Status, TaskView},
        object::Members,
        response::result_response,
    },
};

/// What a task method answers.
pub enum Reply {
    /// A response that is ready.
    Ready(Parts),
    /// A stream of what belongs to the task until it ends, and then the response.
    Wait(Box<dyn Source>),
}

impl Reply {
    /// Returns the response to `request` with that raw `result`.
    pub(super) fn result(request: &Message, result: &str) -> Self {
        Self::Ready(result_response(request.id_to_answer(), result).into())
    }
}

/// Returns the wire form of a task, with what is known of its time.
pub(super) fn view<'a>(task: &'a Task, outlook: &Outlook) -> TaskView<'a> {
    TaskView {
        id: task.id,
        status: match task.state {
            State::Working => Status::Working,
            State::InputRequired => Status::InputRequired,
            State::Ended(Ending::Result) => Status::Completed,
            // Section "Task Execution Errors": an error result fails the task.
            State::Ended(Ending::ErrorResult | Ending::Error) => Status::Failed,
            State::Ended(Ending::Cancelled) => Status::Cancelled,
        },
        status_message: outlook.status_message(task),
        created_at: task.created_at,
        last_updated_at: task.last_updated_at,
        ttl: task.ttl,
        poll_interval: outlook.poll_interval,
    }
}

/// Why a task method has no result.
#[derive(Debug)]
pub enum NoResult {
    /// The owner has no task with this id; `None` where the text is no id at all. The answer is [`not_found`].
    NotFound(Option<TaskId>),
    /// Any other error.
    Error(RpcError),
}

impl From<Missing> for NoResult {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::NotFound(id) => Self::NotFound(Some(id)),
            Missing::Unavailable | Missing::Damaged => Self::Error(error_of(&missing)),
        }
    }
}

impl From<RpcError> for NoResult {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

/// Reads `params.taskId`, which alone names the task.
pub(super) fn task_id(request: &Message) -> Result<TaskId, NoResult> {
    let params = request.params().map(Members::parse).transpose();
    let params = params.map_err(RpcError::bad_params)?;
    let id = params.and_then(|params| params.text("taskId"));
    let id = id.ok_or_else(|| RpcError::bad_params("params.taskId must be a string"))?;
    ids::parse(&id).ok_or(NoResult::NotFound(None))
}

/// Returns the error that a client gets for a task that is not found.
pub(super) fn error_of(missing: &Missing) -> RpcError {
    match missing {
        Missing::NotFound(_) => not_found(),
        Missing::Unavailable => RpcError::internal(UNAVAILABLE),
        Missing::Damaged => RpcError::internal(DAMAGED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_does_not_answer_is_an_internal_error_and_never_a_missing_task() {
        assert!(matches!(NoResult::from(Missing::NotFound(TaskId::nil())), NoResult::NotFound(Some(_))));
        let NoResult::Error(error) = NoResult::from(Missing::Unavailable) else { panic!("not found") };
        assert_eq!(error.code, -32603);
        assert!(error.message.ends_with("try again"), "{}", error.message);
        let NoResult::Error(error) = NoResult::from(Missing::Damaged) else { panic!("not found") };
        assert!(error.code == -32603 && !error.message.contains("try again"), "{}", error.message);
    }
}
