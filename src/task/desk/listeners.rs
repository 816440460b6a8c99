//! The streams that may get what belongs to tasks: those of sessions whose revision has tasks.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use uuid::Uuid;

use super::{Desk, Inner};
use crate::{
    flow::Outbox,
    identity::Owner,
    session::Session,
    task::{TaskId, Writer},
    wire::ClientCapabilities,
};

/// One stream that may get messages.
pub(in crate::task) type ListenerId = u64;

#[derive(Debug)]
pub(super) struct Listener {
    pub(super) owner: Owner,
    pub(super) session: Uuid,
    /// The task whose result it waits for; `None` where it is a GET stream.
    pub(super) task: Option<TaskId>,
    /// It waits in the session that created the task.
    own: bool,
    /// What its client can be asked.
    pub(super) client: ClientCapabilities,
    pub(super) outbox: Arc<Outbox<()>>,
    pub(super) writer: &'static dyn Writer,
    /// It has a connection.
    pub(super) attached: bool,
    /// The questions that were given to it.
    pub(super) has: HashSet<Uuid>,
    /// Those that it had sent and has no more, since [`Desk::settled`] was called last.
    pub(super) settled: HashSet<Uuid>,
}

/// How good a stream is among others of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) attached: bool,
    pub(super) own: bool,
    /// The newest is the best.
    pub(super) id: ListenerId,
}

/// The streams of one session.
#[derive(Debug, Default)]
pub(super) struct SessionStreams {
    all: BTreeSet<ListenerId>,
    get: Option<ListenerId>,
}

impl Desk {
    /// Adds a stream of a session without a connection: its GET stream, or one that waits for the result of `task`.
    /// Nothing of a task goes to a session whose revision has none, or that has ended.
    pub(in crate::task) fn register(
        &self,
        session: &Session,
        task: Option<TaskId>,
        outbox: Arc<Outbox<()>>,
        writer: &'static dyn Writer,
    ) -> ListenerId {
        let mut inner = self.inner.lock();
        inner.next += 1;
        let id = inner.next;
        // Under the lock: a session that ends after this is found by `Desk::leave`.
        if !session.tasks.are_ours() || session.has_ended() {
            return id;
        }
        let running = task.and_then(|task| inner.running.get(&task));
        let own = running.is_some_and(|running| running.session == session.id);
        let (owner, client) = (session.caller.owner.clone(), session.caller.client);
        let (has, settled) = (HashSet::new(), HashSet::new());
        let session = session.id;
        let listener = Listener { owner, session, task, own, client, outbox, writer, attached: false, has, settled };
        let streams = inner.sessions.entry(session).or_default();
        streams.all.insert(id);
        if task.is_none() {
            streams.get = Some(id);
        }
        inner.listeners.insert(id, listener);
        inner.enter(id);
        id
    }

    /// Forgets a stream that does not come back. What it was given is asked on another one.
    pub(in crate::task) fn deregister(&self, id: ListenerId) {
        let mut inner = self.inner.lock();
        let questions = inner.forget(id);
        inner.ask_all(&questions);
    }

    /// Forgets the streams of a session that has ended, where nobody can answer any more: what they were given is asked
    /// on those of another one.
    pub(in crate::task) fn leave(&self, session: Uuid) {
        let mut inner = self.inner.lock();
        let Some(streams) = inner.sessions.get(&session).map(|streams| streams.all.clone()) else { return };
        let questions: Vec<Uuid> = streams.into_iter().flat_map(|id| inner.forget(id)).collect();
        for id in &questions {
            if let Some(question) = inner.questions.get_mut(id) {
                question.asked_in.retain(|asked| *asked != session);
            }
        }
        inner.ask_all(&questions);
    }

    /// A stream has a connection. What no other stream with one has is asked there, and once more what the stream has
    /// sent itself, unless it was `resumed`: then its client has the question, or gets it replayed.
    pub(in crate::task) fn attached(&self, id: ListenerId, resumed: bool) {
        let mut inner = self.inner.lock();
        if !inner.set_attached(id, true) {
            return;
        }
        if !resumed {
            // What an earlier connection has not taken yet must not come twice.
            inner.take_back(id);
        }
        for question in inner.listeners[&id].has.clone() {
            if resumed {
                inner.is_heard(question);
            } else {
                inner.is_unheard(question);
            }
        }
        inner.ask_on(id);
    }

    /// A stream has room again for questions that were refused.
    pub(in crate::task) fn has_room(&self, id: ListenerId) {
        self.inner.lock().ask_on(id);
    }

    /// A stream has lost its connection. What it had not sent goes to another one. Returns whether it leaves questions
    /// behind that it did send.
    pub(in crate::task) fn detached(&self, id: ListenerId) -> bool {
        let mut inner = self.inner.lock();
        if !inner.set_attached(id, false) {
            return false;
        }
        let unsent = inner.take_back(id);
        let sent: Vec<Uuid> = inner.listeners[&id].has.iter().copied().collect();
        for question in &sent {
            inner.is_unheard(*question);
        }
        inner.ask_all(&unsent);
        !sent.is_empty()
    }

    /// A stream that has lost its connection has not got another one for long: what was asked there is asked on one that
    /// is open.
    pub(in crate::task) fn stays_away(&self, id: ListenerId) {
        let mut inner = self.inner.lock();
        let Some(listener) = inner.listeners.get(&id).filter(|listener| !listener.attached) else { return };
        let sent: Vec<Uuid> = listener.has.iter().copied().collect();
        inner.ask_all(&sent);
    }

    /// The questions that a stream has sent and that are not to be answered there any more, since the last call.
    pub(in crate::task) fn settled(&self, id: ListenerId) -> HashSet<Uuid> {
        let mut inner = self.inner.lock();
        inner.listeners.get_mut(&id).map(|listener| std::mem::take(&mut listener.settled)).unwrap_or_default()
    }
}

impl Inner {
    /// A session's GET stream, with or without a connection.
    pub(super) fn get_stream_of(&self, session: Uuid) -> Option<ListenerId> {
        self.sessions.get(&session)?.get
    }

    /// The open stream that a task has in the session that created it.
    pub(super) fn own_stream(&self, task: TaskId) -> Option<ListenerId> {
        let get = self.get_stream_of(self.running.get(&task)?.session);
        let waiter = || self.waiters.get(&task)?.last().filter(|rank| rank.attached && rank.own).map(|rank| rank.id);
        get.filter(|id| self.listeners[id].attached).or_else(waiter)
    }

    /// The open stream that gets a message of a task, among those that fit.
    pub(super) fn best(&self, task: TaskId, fits: impl Fn(&Listener) -> bool) -> Option<ListenerId> {
        let fits = |id: &ListenerId| fits(&self.listeners[id]);
        let open = |ranks: &BTreeSet<Rank>| {
            let mut open = ranks.iter().rev().take_while(|rank| rank.attached).map(|rank| rank.id);
            open.find(fits)
        };
        let get = || self.gets.get(&self.running.get(&task)?.owner).and_then(open);
        let waiter = || self.waiters.get(&task).and_then(open);
        self.own_stream(task).filter(fits).or_else(get).or_else(waiter)
    }

    fn enter(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get(&id) else { return };
        let rank = listener.rank(id);
        match listener.task {
            Some(task) => self.waiters.entry(task).or_default().insert(rank),
            None => self.gets.entry(listener.owner.clone()).or_default().insert(rank),
        };
    }

    fn exit(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get(&id) else { return };
        let rank = listener.rank(id);
        let others = match &listener.task {
            Some(task) => self.waiters.get_mut(task),
            None => self.gets.get_mut(&listener.owner),
        };
        let Some(others) = others else { return };
        others.remove(&rank);
        if others.is_empty() {
            match &listener.task {
                Some(task) => drop(self.waiters.remove(task)),
                None => drop(self.gets.remove(&listener.owner)),
            }
        }
    }

    /// Notes whether a stream has a connection. Returns whether there is such a stream.
    fn set_attached(&mut self, id: ListenerId, attached: bool) -> bool {
        self.exit(id);
        let Some(listener) = self.listeners.get_mut(&id) else { return false };
        listener.attached = attached;
        self.enter(id);
        true
    }

    /// Forgets a stream. Returns the questions that it was given, which no stream has now.
    fn forget(&mut self, id: ListenerId) -> Vec<Uuid> {
        self.exit(id);
        let mut questions = self.take_back(id);
        let Some(listener) = self.listeners.remove(&id) else { return questions };
        if let Some(streams) = self.sessions.get_mut(&listener.session) {
            streams.all.remove(&id);
            streams.get.take_if(|get| *get == id);
            if streams.all.is_empty() {
                self.sessions.remove(&listener.session);
            }
        }
        for question in listener.has {
            if let Some(question) = self.questions.get_mut(&question) {
                question.on = None;
            }
            self.is_unheard(question);
            questions.push(question);
        }
        questions
    }

    /// Takes back the questions that a stream was given and has not sent yet, in their order.
    fn take_back(&mut self, id: ListenerId) -> Vec<Uuid> {
        let Some(listener) = self.listeners.get_mut(&id).filter(|listener| !listener.has.is_empty()) else {
            return Vec::new();
        };
        let writer = listener.writer;
        let (has, taken) = (RefCell::new(&mut listener.has), RefCell::new(Vec::new()));
        listener.outbox.retract(|message| {
            let question = writer.question_of(message).filter(|question| has.borrow_mut().remove(question));
            taken.borrow_mut().extend(question);
            question.is_some()
        });
        let taken = taken.into_inner();
        for question in &taken {
            if let Some(question) = self.questions.get_mut(question) {
                question.on = None;
                question.asked_in.pop();
            }
            self.is_unheard(*question);
        }
        taken
    }
}

impl Listener {
    fn rank(&self, id: ListenerId) -> Rank {
        Rank { attached: self.attached, own: self.own, id }
    }
}
