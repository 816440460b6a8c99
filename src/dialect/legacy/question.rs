//! Questions of tasks as clients get them and answer them (sections "Input Required Status" and "Associating
//! Task-Related Messages").

use bytes::Bytes;
use http::HeaderMap;
use uuid::Uuid;

use super::{Legacy, reply::view};
use crate::{
    observe::events,
    session::Session,
    task::{Outlook, Task, TaskId, TaskWriter},
    wire::{
        Edits, Kind, Message, Method, ids,
        legacy::{related, unrelated},
        response::cancelled,
    },
};

/// The beginning of the ids of questions, by which their answers are recognised.
const PREFIX: &str = "taskgate:";

/// A message of a client that may be the answer to a question of a task.
#[derive(Debug)]
pub enum MaybeAnswer {
    /// It is one, and was taken.
    Taken,
    /// It is not an answer, and is returned.
    Other(Message),
}

impl Legacy {
    /// Takes a client's answer to a question, and passes it on. An answer to a question that is not open any more is
    /// dropped.
    pub async fn answer(&self, session: &Session, message: Message, headers: &HeaderMap) -> MaybeAnswer {
        let id = message.id().filter(|_| message.kind() == Kind::Response).and_then(question_id);
        let Some(id) = id else { return MaybeAnswer::Other(message) };
        let reply = move |raw_id: &str| unrelated(&message, raw_id);
        if !self.engine.answer(session.id, id, reply, headers.clone()).await {
            self.engine.observer().emit(events::UnknownAnswer { who: &session.caller.who });
        }
        MaybeAnswer::Taken
    }
}

/// Writes what the engine tells for the streams of this generation.
#[derive(Debug)]
pub(super) struct LegacyWriter;

impl TaskWriter for LegacyWriter {
    fn name(&self) -> &'static str {
        "legacy"
    }

    /// Writes a notification (section "Task Status Notification").
    fn status(&self, task: &Task, outlook: &Outlook) -> Option<Message> {
        Message::parse(view(task, outlook).to_notification().into()).ok()
    }

    fn tied(&self, task: TaskId, message: &Message) -> Option<Message> {
        related(message, task)
    }

    fn is_progress(&self, task: TaskId, message: &Message) -> bool {
        message.method() == Method::Progress
            && memchr::memmem::find(message.bytes(), task.to_string().as_bytes()).is_some()
    }

    fn question(&self, task: TaskId, id: Uuid, request: &Message) -> Option<Message> {
        related(&Message::parse(asked(id, request)?).ok()?, task)
    }

    fn withdrawal(&self, task: TaskId, id: Uuid) -> Option<Message> {
        let reason = "the request was withdrawn, or the task has ended";
        related(&Message::parse(cancelled(&raw_id(id), reason)).ok()?, task)
    }

    fn question_of(&self, message: &Message) -> Option<Uuid> {
        message.id().filter(|_| message.kind() == Kind::Request).and_then(question_id)
    }
}

/// Writes the question that a server asks with `request` for a client that knows no tasks.
#[must_use]
pub fn asked(id: Uuid, request: &Message) -> Option<Bytes> {
    let mut edits = Edits::of(request.bytes());
    edits.replace(request.id_span()?, raw_id(id));
    Some(edits.apply().into_bytes())
}

/// Writes that such a question need not be answered any more.
#[must_use]
pub fn withdrawn(id: Uuid) -> Bytes {
    cancelled(&raw_id(id), "the request was withdrawn, or the job has ended")
}

/// Returns the raw id that a question has towards clients.
fn raw_id(id: Uuid) -> String {
    format!("\"{PREFIX}{id}\"")
}

/// Returns the question that a raw id stands for, if it is the id of one.
fn question_id(raw: &str) -> Option<Uuid> {
    let id: String = serde_json::from_str(raw).ok()?;
    ids::parse(id.strip_prefix(PREFIX)?)
}
