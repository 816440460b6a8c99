//! How many questions may be open, and how many bytes they may take.

use std::{fmt, sync::Arc};

use super::{Desk, Inner};
use crate::{
    flow::Reserved,
    observe::{Observer, events},
    task::TaskId,
};

/// How many questions of one call may be open at once.
pub const MAX_QUESTIONS: usize = 64;
/// The open questions of one task may take this part of `max_outbox_total`: a quarter.
const SHARE_OF_TASK: usize = 4;
/// The open questions of one owner may take this part: a half.
const SHARE_OF_OWNER: usize = 2;

/// The bytes that a question takes, given back when it is dropped.
#[derive(Debug)]
pub(super) struct QuestionRoom {
    pub(super) bytes: usize,
    observer: Arc<Observer>,
    _reserved: Reserved,
}

impl Drop for QuestionRoom {
    fn drop(&mut self) {
        self.observer.emit(events::QuestionForgotten { bytes: self.bytes });
    }
}

/// Why a question was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::task) enum QuestionNotOpened {
    /// The task has ended.
    Ended,
    /// As many questions of the task are open as may be.
    TooMany,
    /// The open questions of the task would take more bytes than this.
    BytesOfTask(usize),
    /// The open questions of the owner would take more bytes than this.
    BytesOfOwner(usize),
    /// All open questions, with what waits for readers, would take more bytes than this.
    Bytes(usize),
}

impl QuestionNotOpened {
    /// Returns the limit in a word, for metrics.
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

impl fmt::Display for QuestionNotOpened {
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
    pub(super) fn take_room(
        &mut self,
        desk: &Desk,
        task: TaskId,
        bytes: usize,
    ) -> Result<QuestionRoom, QuestionNotOpened> {
        let running = self.running.get_mut(&task).ok_or(QuestionNotOpened::Ended)?;
        if running.questions.len() >= MAX_QUESTIONS {
            return Err(QuestionNotOpened::TooMany);
        }
        let all = desk.capacity.all();
        let (of_task, of_owner) = (all / SHARE_OF_TASK, all / SHARE_OF_OWNER);
        if running.bytes + bytes > of_task {
            return Err(QuestionNotOpened::BytesOfTask(of_task));
        }
        let owned = self.bytes.of(&running.owner);
        if owned + bytes > of_owner {
            return Err(QuestionNotOpened::BytesOfOwner(of_owner));
        }
        let reserved = desk.capacity.reserve(bytes).ok_or(QuestionNotOpened::Bytes(all))?;
        running.bytes += bytes;
        self.bytes.add(&running.owner, bytes);
        desk.observer.emit(events::QuestionKept { bytes });
        Ok(QuestionRoom { bytes, observer: Arc::clone(&desk.observer), _reserved: reserved })
    }
}
