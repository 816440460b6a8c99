//! The streams towards clients that may get what belongs to tasks: those of sessions whose revision has tasks.

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
    task::{TaskId, TaskWriter},
    wire::ClientCapabilities,
};

/// The number of a stream at the desk.
pub(in crate::task) type StreamId = u64;

/// One stream that may get messages.
#[derive(Debug)]
pub(super) struct ClientStream {
    pub(super) owner: Owner,
    pub(super) session: Uuid,
    /// The task whose result it waits for; `None` where it is a GET stream.
    pub(super) task: Option<TaskId>,
    /// Whether it waits in the session that created the task.
    own: bool,
    /// What its client can be asked.
    pub(super) client: ClientCapabilities,
    pub(super) outbox: Arc<Outbox<()>>,
    pub(super) writer: &'static dyn TaskWriter,
    /// Whether it has a connection.
    pub(super) attached: bool,
    /// The open questions that are asked on it, sent or not.
    pub(super) questions: HashSet<Uuid>,
    /// The questions that it has sent and that were taken off it, since [`Desk::settled`] was called last.
    pub(super) settled: HashSet<Uuid>,
}

/// How good a stream is among others of its kind: the greatest is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) attached: bool,
    pub(super) own: bool,
    /// A newer stream is better.
    pub(super) id: StreamId,
}

/// The streams of one session.
#[derive(Debug, Default)]
pub(super) struct SessionStreams {
    all: BTreeSet<StreamId>,
    get: Option<StreamId>,
}

impl Desk {
    /// Adds a stream of a session, yet without a connection: its GET stream, or one that waits for the result of
    /// `task`. A stream of a session that has ended, or in which taskgate serves no tasks, gets an id and no messages.
    pub(in crate::task) fn add_stream(
        &self,
        session: &Session,
        task: Option<TaskId>,
        outbox: Arc<Outbox<()>>,
        writer: &'static dyn TaskWriter,
    ) -> StreamId {
        let mut inner = self.inner.lock();
        inner.next += 1;
        let id = inner.next;
        // Under the lock, so that `Desk::session_ended` finds the streams of a session that ends after this.
        if !session.tasks.are_ours() || session.has_ended() {
            return id;
        }
        let running = task.and_then(|task| inner.running.get(&task));
        let own = running.is_some_and(|running| running.session == Some(session.id));
        let (owner, client) = (session.caller.owner.clone(), session.caller.client);
        let (questions, settled) = (HashSet::new(), HashSet::new());
        let (session, attached) = (session.id, false);
        let stream = ClientStream { owner, session, task, own, client, outbox, writer, attached, questions, settled };
        let of_session = inner.sessions.entry(session).or_default();
        of_session.all.insert(id);
        if task.is_none() {
            of_session.get = Some(id);
        }
        inner.streams.insert(id, stream);
        inner.enter(id);
        id
    }

    /// Removes a stream that does not come back. Its questions are asked on another one.
    pub(in crate::task) fn remove_stream(&self, id: StreamId) {
        let mut inner = self.inner.lock();
        let questions = inner.remove_stream(id);
        inner.ask_all(&questions);
    }

    /// Removes the streams of a session that has ended, whose client cannot answer any more. What was asked in it is
    /// asked in another session.
    pub(in crate::task) fn session_ended(&self, session: Uuid) {
        let mut inner = self.inner.lock();
        let streams = inner.sessions.get(&session).map(|of_session| of_session.all.clone());
        for id in streams.into_iter().flatten() {
            inner.remove_stream(id);
        }
        // Those that were asked by `ask_in` stand on no stream.
        let mut unheard = Vec::new();
        for (id, question) in &mut inner.questions {
            if question.asked_in.contains(&session) {
                question.asked_in.retain(|asked| *asked != session);
                question.lost_in.retain(|lost| *lost != session);
                unheard.extend(question.on.is_none().then_some(*id));
            }
        }
        inner.ask_all(&unheard);
    }

    /// Notes that a stream has a connection, and asks there the questions that no other stream with a connection has.
    /// The stream's own questions are asked once more, unless it was `resumed`: then its client has them, or gets them
    /// replayed.
    pub(in crate::task) fn attached(&self, id: StreamId, resumed: bool) {
        let mut inner = self.inner.lock();
        if !inner.set_attached(id, true) {
            return;
        }
        if !resumed {
            // A question that an earlier connection has not taken yet must not come twice.
            inner.take_back(id);
        }
        for question in inner.streams[&id].questions.clone() {
            if resumed {
                inner.note_heard(question);
            } else {
                inner.note_unheard(question);
            }
        }
        inner.ask_on(id);
    }

    /// Asks again the questions that a stream has refused: it has room now.
    pub(in crate::task) fn ask_refused(&self, id: StreamId) {
        self.inner.lock().ask_on(id);
    }

    /// Notes that a stream has lost its connection, and asks its unsent questions on another one. Returns whether there
    /// are open questions that it has sent.
    pub(in crate::task) fn detached(&self, id: StreamId) -> bool {
        let mut inner = self.inner.lock();
        if !inner.set_attached(id, false) {
            return false;
        }
        let unsent = inner.take_back(id);
        let sent: Vec<Uuid> = inner.streams[&id].questions.iter().copied().collect();
        for question in &sent {
            inner.note_unheard(*question);
        }
        inner.ask_all(&unsent);
        !sent.is_empty()
    }

    /// Asks the questions of a stream on an open one, if the stream is still without a connection: its client has had
    /// time to come back.
    pub(in crate::task) fn client_stays_away(&self, id: StreamId) {
        let mut inner = self.inner.lock();
        let Some(stream) = inner.streams.get(&id).filter(|stream| !stream.attached) else { return };
        let sent: Vec<Uuid> = stream.questions.iter().copied().collect();
        inner.ask_all(&sent);
    }

    /// Returns the questions that a stream has sent and that were taken off it since the last call.
    pub(in crate::task) fn settled(&self, id: StreamId) -> HashSet<Uuid> {
        let mut inner = self.inner.lock();
        inner.streams.get_mut(&id).map(|stream| std::mem::take(&mut stream.settled)).unwrap_or_default()
    }
}

impl Inner {
    /// Returns a session's GET stream, with or without a connection.
    pub(super) fn get_stream_of(&self, session: Option<Uuid>) -> Option<StreamId> {
        self.sessions.get(&session?)?.get
    }

    /// Returns the open stream that a task has in the session that created it.
    pub(super) fn own_stream(&self, task: TaskId) -> Option<StreamId> {
        let get = self.get_stream_of(self.running.get(&task)?.session);
        let waiter =
            || self.result_streams.get(&task)?.last().filter(|rank| rank.attached && rank.own).map(|rank| rank.id);
        get.filter(|id| self.streams[id].attached).or_else(waiter)
    }

    /// Returns the open stream that gets a message of a task, among those that fit.
    pub(super) fn best(&self, task: TaskId, fits: impl Fn(&ClientStream) -> bool) -> Option<StreamId> {
        let fits = |id: &StreamId| fits(&self.streams[id]);
        let open = |ranks: &BTreeSet<Rank>| {
            let mut open = ranks.iter().rev().take_while(|rank| rank.attached).map(|rank| rank.id);
            open.find(fits)
        };
        let get = || self.get_streams.get(&self.running.get(&task)?.owner).and_then(open);
        let waiter = || self.result_streams.get(&task).and_then(open);
        self.own_stream(task).filter(fits).or_else(get).or_else(waiter)
    }

    /// Adds a stream to those of its kind, under its rank.
    fn enter(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        let rank = stream.rank(id);
        match stream.task {
            Some(task) => self.result_streams.entry(task).or_default().insert(rank),
            None => self.get_streams.entry(stream.owner.clone()).or_default().insert(rank),
        };
    }

    /// Removes a stream from those of its kind, before its rank changes.
    fn exit(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        let rank = stream.rank(id);
        let others = match &stream.task {
            Some(task) => self.result_streams.get_mut(task),
            None => self.get_streams.get_mut(&stream.owner),
        };
        let Some(others) = others else { return };
        others.remove(&rank);
        if others.is_empty() {
            match &stream.task {
                Some(task) => drop(self.result_streams.remove(task)),
                None => drop(self.get_streams.remove(&stream.owner)),
            }
        }
    }

    /// Notes whether a stream has a connection. Returns whether there is such a stream.
    fn set_attached(&mut self, id: StreamId, attached: bool) -> bool {
        self.exit(id);
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        stream.attached = attached;
        self.enter(id);
        true
    }

    /// Removes a stream. Returns its questions, which no stream has now.
    fn remove_stream(&mut self, id: StreamId) -> Vec<Uuid> {
        self.exit(id);
        let mut questions = self.take_back(id);
        let Some(stream) = self.streams.remove(&id) else { return questions };
        if let Some(of_session) = self.sessions.get_mut(&stream.session) {
            of_session.all.remove(&id);
            of_session.get.take_if(|get| *get == id);
            if of_session.all.is_empty() {
                self.sessions.remove(&stream.session);
            }
        }
        for question in stream.questions {
            if let Some(question) = self.questions.get_mut(&question) {
                question.on = None;
            }
            self.note_unheard(question);
            questions.push(question);
        }
        questions
    }

    /// Takes the questions off a stream that it has not sent yet, and returns them in their order.
    fn take_back(&mut self, id: StreamId) -> Vec<Uuid> {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.questions.is_empty()) else {
            return Vec::new();
        };
        let (session, writer) = (stream.session, stream.writer);
        let (questions, taken) = (RefCell::new(&mut stream.questions), RefCell::new(Vec::new()));
        stream.outbox.retract(|message| {
            let question = writer.question_of(message).filter(|question| questions.borrow_mut().remove(question));
            taken.borrow_mut().extend(question);
            question.is_some()
        });
        let taken = taken.into_inner();
        for question in &taken {
            if let Some(question) = self.questions.get_mut(question) {
                question.on = None;
                // By `ask_in` it may have been asked in another session since.
                if let Some(at) = question.asked_in.iter().rposition(|asked| *asked == session) {
                    question.asked_in.remove(at);
                }
            }
            self.note_unheard(*question);
        }
        taken
    }
}

impl ClientStream {
    fn rank(&self, id: StreamId) -> Rank {
        Rank { attached: self.attached, own: self.own, id }
    }
}
