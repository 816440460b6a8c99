//! Which of an owner's streams gets what belongs to a running task, and never two of them (section "Input Required
//! Status"): those of the session that created it come first, its GET stream before one that waits for the result.
//!
//! Locks are taken in this order: those of a session's streams, of one stream, of the desk, of an outbox. What a question
//! holds is dropped outside the lock: with the last of a session go its streams, which come back here.

mod listeners;
mod questions;
mod room;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use uuid::Uuid;

pub(super) use self::{listeners::ListenerId, questions::AskingCall};
use self::{
    listeners::{Listener, Rank, SessionStreams},
    questions::Question,
};
use super::{Task, TaskId};
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
    /// What open questions are counted against, together with what waits for readers.
    capacity: Arc<Capacity>,
    observer: Arc<Observer>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Numbers streams and questions.
    next: u64,
    listeners: HashMap<ListenerId, Listener>,
    /// The streams of each session that has any.
    sessions: HashMap<Uuid, SessionStreams>,
    /// The GET streams of each owner, the best last.
    gets: HashMap<Owner, BTreeSet<Rank>>,
    /// The streams that wait for each task's result, the best last.
    waiters: HashMap<TaskId, BTreeSet<Rank>>,
    /// The tasks that run.
    running: HashMap<TaskId, Running>,
    questions: HashMap<Uuid, Question>,
    /// The questions of each owner that no stream with a connection has, oldest first.
    unheard: HashMap<Owner, BTreeMap<u64, Uuid>>,
    /// The bytes of each owner's open questions.
    bytes: Tally<Owner>,
}

#[derive(Debug)]
struct Running {
    owner: Owner,
    /// The session that created it, whose streams come first.
    session: Uuid,
    /// What it has asked and not yet been answered.
    questions: Vec<Uuid>,
    /// The bytes of these.
    bytes: usize,
    /// The version of the task whose status was told last.
    told: u32,
}

impl Desk {
    /// A desk without streams and tasks.
    pub(super) fn new(capacity: Arc<Capacity>, observer: Arc<Observer>) -> Self {
        Self { inner: Mutex::default(), capacity, observer }
    }

    /// Returns the queue of a stream that begins.
    pub(super) fn new_outbox(&self) -> Arc<Outbox<()>> {
        Arc::new(Outbox::new(&self.capacity))
    }

    /// Lets a task's messages through from now on.
    pub(super) fn begin(&self, task: TaskId, owner: &Owner, session: Uuid) {
        let running = Running { owner: owner.clone(), session, questions: Vec::new(), bytes: 0, told: 0 };
        self.inner.lock().running.insert(task, running);
    }

    /// Closes a task's questions, and takes back what has not left yet: nothing comes after the end.
    pub(super) fn end(&self, task: TaskId) {
        let mut inner = self.inner.lock();
        let Some(running) = inner.running.get(&task) else { return };
        let (session, questions) = (running.session, running.questions.clone());
        let closed = inner.close(&questions);
        inner.running.remove(&task);
        // Progress goes nowhere else.
        let own_waiters = inner.waiters.get(&task).into_iter().flatten().filter(|rank| rank.own).map(|rank| rank.id);
        for id in inner.get_stream_of(session).into_iter().chain(own_waiters) {
            let Listener { outbox, writer, .. } = &inner.listeners[&id];
            outbox.retract(|message| writer.is_progress(task, message));
        }
        drop(inner);
        drop(closed);
    }

    /// Sends progress of a running task, if the session that created it has a stream open. No other one knows the progress
    /// token, which may be that of another request there.
    pub(super) fn progress(&self, task: TaskId, progress: &Message) {
        let inner = self.inner.lock();
        if let Some(id) = inner.own_stream(task) {
            self.push_tied(&inner.listeners[&id], task, progress);
        }
    }

    /// Sends any other message that belongs to a running task: a log message needs no token, as it is tied to the task.
    /// Returns whether that is done; where no stream is open it waits for the GET stream of the task's session.
    pub(super) fn tell(&self, task: TaskId, message: &Message) -> bool {
        let inner = self.inner.lock();
        if !inner.running.contains_key(&task) {
            return true;
        }
        let Some(id) = inner.best(task, |_| true) else { return false };
        self.push_tied(&inner.listeners[&id], task, message);
        true
    }

    fn push_tied(&self, to: &Listener, task: TaskId, message: &Message) {
        match to.writer.tied(task, message) {
            Some(tied) => drop(to.outbox.push(tied)),
            // What cannot be tied to its task is not told as if it belonged to none.
            None => self.observer.emit(events::MessageUnreadable),
        }
    }

    /// What waits for the stream that gets a task's messages now.
    pub(super) fn outbox(&self, task: TaskId) -> Option<Arc<Outbox<()>>> {
        let inner = self.inner.lock();
        let best = inner.best(task, |_| true)?;
        Some(Arc::clone(&inner.listeners[&best].outbox))
    }

    /// Tells which state a task is in on the owner's GET stream, also while its connection is broken; not after that of a
    /// later version.
    pub(super) fn announce(&self, task: &Task) {
        let mut inner = self.inner.lock();
        let older = |running: &&mut Running| running.told < task.version;
        let Some(running) = inner.running.get_mut(&task.id).filter(older) else { return };
        running.told = task.version;
        let Some(Running { owner, session, .. }) = inner.running.get(&task.id) else { return };
        let other = || inner.gets.get(owner)?.last().map(|rank| rank.id);
        if let Some(id) = inner.get_stream_of(*session).or_else(other) {
            let Listener { writer, outbox, .. } = &inner.listeners[&id];
            if let Some(notification) = writer.status(task) {
                outbox.push(notification);
            }
        }
    }
}
