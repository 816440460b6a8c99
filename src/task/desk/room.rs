//! How many questions may be open, and how many bytes they may take.

use std::{fmt, sync::Arc};

use super::{Desk, Inner};
use crate::{
    flow::Reserved,
    observe::{Observer, events},
    task::TaskId,
};

/// How many questions of one task may be open at once.
const MAX_QUESTIONS: usize = 64;
/// The part of `max_outbox_total` that the open questions of one task may take.
const SHARE_OF_TASK: usize = 4;
/// The part that those of one owner may take.
const SHARE_OF_OWNER: usize = 2;
/// The bytes that a question takes, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) bytes: usize,
    observer: Arc<Observer>,
    _reserved: Reserved,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.observer.emit(events::QuestionForgotten { bytes: self.bytes });
    }
}

/// Why a question is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::task) enum NotOpened {
    /// The task has ended.
    Ended,
    /// As many of its questions are open as may be.
    TooMany,
    /// Those of the task would take more bytes.
    BytesOfTask(usize),
    /// Those of its owner would.
    BytesOfOwner(usize),
    /// What waits for readers, and all open questions, would.
    Bytes(usize),
}

impl NotOpened {
    /// The limit in a word, for metrics.
    pub(in crate::task) const fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::TooMany => "questions_of_task",
            Self::BytesOfTask(_) => "question_bytes_of_task",
            Self::BytesOfOwner(_) => "question_bytes_of_owner",
            Self::Bytes(_) => "max_outbox_total",
        }
    }
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the call has ended, and its client is not asked any more"),
            Self::TooMany => f.write_str("limit reached: the client has too many questions of this call to answer"),
            Self::BytesOfTask(max) => write!(
                f,
                "limit reached: the open questions of this call would take more than {max} bytes, a quarter of \
                 server.max_outbox_total"
            ),
            Self::BytesOfOwner(max) => write!(
                f,
                "limit reached: the open questions of the client would take more than {max} bytes, half of \
                 server.max_outbox_total"
            ),
            Self::Bytes(max) => {
                write!(f, "limit reached: server.max_outbox_total = {max} bytes wait for clients already")
            }
        }
    }
}

impl Inner {
    /// Takes room for one more question of a task.
    pub(super) fn room(&mut self, desk: &Desk, task: TaskId, bytes: usize) -> Result<Room, NotOpened> {
        let running = self.running.get_mut(&task).ok_or(NotOpened::Ended)?;
        if running.questions.len() >= MAX_QUESTIONS {
            return Err(NotOpened::TooMany);
        }
        let all = desk.capacity.all();
        let (of_task, of_owner) = (all / SHARE_OF_TASK, all / SHARE_OF_OWNER);
        if running.bytes + bytes > of_task {
            return Err(NotOpened::BytesOfTask(of_task));
        }
        let owned = self.bytes.of(&running.owner);
        if owned + bytes > of_owner {
            return Err(NotOpened::BytesOfOwner(of_owner));
        }
        let reserved = desk.capacity.reserve(bytes).ok_or(NotOpened::Bytes(all))?;
        running.bytes += bytes;
        self.bytes.add(&running.owner, bytes);
        desk.observer.emit(events::QuestionKept { bytes });
        Ok(Room { bytes, observer: Arc::clone(&desk.observer), _reserved: reserved })
    }
}
