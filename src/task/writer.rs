//! How a dialect writes what the engine tells a client.

use std::fmt;

use uuid::Uuid;

use super::{Outlook, Task, TaskId};
use crate::wire::{Message, RpcError};

/// Writes what the engine tells for the streams of one dialect. A method returns `None` if the message cannot be
/// written, or if clients of the dialect are not told such things. By default they are told nothing, and collect their
/// questions.
pub trait TaskWriter: fmt::Debug + Send + Sync {
    /// Returns the name of the dialect, by which a later process finds its writer.
    fn name(&self) -> &'static str;

    /// Writes which state a task is in, and what is known of its time.
    fn status(&self, _task: &Task, _outlook: &Outlook) -> Option<Message> {
        None
    }

    /// Writes what the server says in the course of a task, tied to the task.
    fn tied(&self, task: TaskId, message: &Message) -> Option<Message>;

    /// Returns the answer to a task's call in a session as clients of the dialect are to read it.
    fn answer_in_session(&self, answer: Message) -> Message {
        answer
    }

    /// Returns whether a message tells progress of a task.
    fn is_progress(&self, _task: TaskId, _message: &Message) -> bool {
        false
    }

    /// Writes the question that the server asks with `request`, under an id that stands for `id`.
    fn question(&self, _task: TaskId, _id: Uuid, request: &Message) -> Option<Message> {
        Some(request.clone())
    }

    /// Returns how a request of the server is refused that no client of the dialect can be asked; `None` for any other.
    fn refusal(&self, _request: &Message) -> Option<RpcError> {
        None
    }

    /// Writes that a question need not be answered any more.
    fn withdrawal(&self, _task: TaskId, _id: Uuid) -> Option<Message> {
        None
    }

    /// Returns whether the client is asked on any stream that is open. Otherwise it collects its questions with
    /// [`super::Engine::questions`].
    fn pushes_questions(&self) -> bool {
        true
    }

    /// Returns which question a message asks that [`TaskWriter::question`] has written; `None` for any other message.
    fn question_of(&self, _message: &Message) -> Option<Uuid> {
        None
    }
}
