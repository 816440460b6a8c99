//! Chooses the stream of an owner that gets what belongs to a running task, and never two of them (section "Input
//! Required Status"): the streams of the session that created the task come first, its GET stream before one that waits
//! for the result.
//!
//! Locks are taken in this order: of a session's streams, of one stream, of the desk, of an outbox. A question is
//! dropped outside the lock: it may hold the last reference to a session, whose streams call the desk when they are
//! dropped.

mod questions;
mod room;
mod streams;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use uuid::Uuid;

pub use self::room::MAX_QUESTIONS;
use self::streams::{ClientStream, Rank, SessionStreams};
pub(super) use self::{
    questions::{AskingCall, Question},
    streams::StreamId,
};
use super::{Outlook, Task, TaskId, id_map::IdMap};
use crate::{
    flow::{Capacity, Outbox, Tally},
    identity::Owner,
    observe::{Observer, events},
    wire::Message,
};

/// The streams and the open questions of all running tasks.
#[derive(Debug)]
pub(super) struct Desk {
    inner: Mutex<Inner>,
    /// Bounds open questions, together with what waits for readers.
    capacity: Arc<Capacity>,
    observer: Arc<Observer>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Numbers streams and questions.
    next: u64,
    streams: HashMap<StreamId, ClientStream>,
    /// The streams of each session that has any.
    sessions: IdMap<SessionStreams>,
    /// The GET streams of each owner, the best last.
    get_streams: HashMap<Owner, BTreeSet<Rank>>,
    /// The streams that wait for each task's result, the best last.
    result_streams: IdMap<BTreeSet<Rank>>,
    /// The tasks that run.
    running: IdMap<RunningTask>,
    questions: HashMap<Uuid, Question>,
    /// The questions of each owner that no stream with a connection has, oldest first.
    unheard: HashMap<Owner, BTreeMap<u64, Uuid>>,
    /// The bytes of each owner's open questions.
    bytes: Tally<Owner>,
}

#[derive(Debug)]
struct RunningTask {
    owner: Owner,
    /// The session that created it, whose streams come first.
    session: Option<Uuid>,
    /// Its open questions, in the order in which they came.
    questions: Vec<Uuid>,
    /// The bytes of its open questions.
    bytes: usize,
    /// The version that was announced last.
    announced: u32,
}

impl Desk {
    /// Returns a desk without streams and tasks.
    pub(super) fn new(capacity: Arc<Capacity>, observer: Arc<Observer>) -> Self {
        Self { inner: Mutex::default(), capacity, observer }
    }

    /// Returns the queue of a stream that begins.
    pub(super) fn new_outbox(&self) -> Arc<Outbox<()>> {
        Arc::new(Outbox::new(&self.capacity))
    }

    /// Delivers what belongs to a task from now on.
    pub(super) fn begin(&self, task: TaskId, owner: &Owner, session: Option<Uuid>) {
        let running = RunningTask { owner: owner.clone(), session, questions: Vec::new(), bytes: 0, announced: 0 };
        self.inner.lock().running.insert(task, running);
    }

    /// Closes a task's questions and takes back its unsent progress: nothing comes after the end.
    pub(super) fn end(&self, task: TaskId) {
        let mut inner = self.inner.lock();
        let Some(running) = inner.running.get(&task) else { return };
        let (session, questions) = (running.session, running.questions.clone());
        let closed = inner.close(&questions);
        inner.running.remove(&task);
        // No other stream gets progress.
        let own_waiters =
            inner.result_streams.get(&task).into_iter().flatten().filter(|rank| rank.own).map(|rank| rank.id);
        for id in inner.get_stream_of(session).into_iter().chain(own_waiters) {
            let ClientStream { outbox, writer, .. } = &inner.streams[&id];
            outbox.retract(|message| writer.is_progress(task, message));
        }
        drop(inner);
        drop(closed);
    }

    /// Sends progress of a running task, if the session that created it has an open stream. In another session the
    /// progress token may be that of another request.
    pub(super) fn progress(&self, task: TaskId, progress: &Message) {
        let inner = self.inner.lock();
        if let Some(id) = inner.own_stream(task) {
            self.push_tied(&inner.streams[&id], task, progress);
        }
    }

    /// Sends any other message that belongs to a running task: a log message needs no token, as it is tied to the task.
    /// Returns `false` where no stream is open, and the message has to wait for the GET stream of the task's session.
    pub(super) fn tell(&self, task: TaskId, message: &Message) -> bool {
        let inner = self.inner.lock();
        if !inner.running.contains_key(&task) {
            return true;
        }
        let Some(id) = inner.best(task, |_| true) else { return false };
        self.push_tied(&inner.streams[&id], task, message);
        true
    }

    fn push_tied(&self, to: &ClientStream, task: TaskId, message: &Message) {
        match to.writer.tied(task, message) {
            Some(tied) => drop(to.outbox.push(tied)),
            // A message that cannot be tied to its task is not sent without it.
            None => self.observer.emit(events::MessageUnreadable),
        }
    }

    /// Returns the queue of the stream that gets a task's messages now.
    pub(super) fn outbox(&self, task: TaskId) -> Option<Arc<Outbox<()>>> {
        let inner = self.inner.lock();
        let best = inner.best(task, |_| true)?;
        Some(Arc::clone(&inner.streams[&best].outbox))
    }

    /// Announces the state of a task on its owner's GET stream, even while the stream has no connection. A version
    /// older than the last announced one is left out.
    pub(super) fn announce(&self, task: &Task, outlook: &Outlook) {
        let mut inner = self.inner.lock();
        let is_newer = |running: &&mut RunningTask| running.announced < task.version;
        let Some(running) = inner.running.get_mut(&task.id).filter(is_newer) else { return };
        running.announced = task.version;
        let Some(RunningTask { owner, session, .. }) = inner.running.get(&task.id) else { return };
        let other = || inner.get_streams.get(owner)?.last().map(|rank| rank.id);
        if let Some(id) = inner.get_stream_of(*session).or_else(other) {
            let ClientStream { writer, outbox, .. } = &inner.streams[&id];
            if let Some(notification) = writer.status(task, outlook) {
                outbox.push(notification);
            }
        }
    }
}
