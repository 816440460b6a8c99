//! The open questions of tasks: who is asked, and who may answer.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tokio::sync::oneshot;
use uuid::Uuid;

use super::{
    Desk, Inner, ListenerId,
    room::{NotOpened, Room},
};
use crate::{
    flow::Pushed,
    session::Caller,
    task::{TaskId, Writer},
    upstream::{Asked, UpstreamSession, excerpt},
    wire::{Asks, Message},
};

/// What a question takes besides its text.
const OVERHEAD: usize = 1024;
/// How often a question is asked: a stream may break before it is answered.
const ASKED_AT_MOST: usize = 2;

/// The call of a task whose server asks.
#[derive(Clone, Debug)]
pub(in crate::task) struct AskingCall {
    pub(in crate::task) task: TaskId,
    /// Who created the task.
    pub(in crate::task) caller: Arc<Caller>,
    /// The session whose server asks.
    pub(in crate::task) upstream_session: Arc<UpstreamSession>,
}

/// A request of the upstream to the client, in the course of a task.
#[derive(Debug)]
pub(in crate::task) struct Question {
    pub(in crate::task) call: AskingCall,
    /// The raw id that the upstream gave it.
    pub(in crate::task) theirs: Box<str>,
    id: Uuid,
    /// Questions have the order in which they came.
    number: u64,
    /// What a person is told of it.
    text: Arc<str>,
    /// What a client has to have declared to be asked it.
    asks: Asks,
    /// What the server asks, in memory of its own.
    request: Message,
    /// The stream that it was given to.
    pub(super) on: Option<ListenerId>,
    /// The sessions that it was asked in, which alone may answer.
    pub(super) asked_in: Vec<Uuid>,
    /// Not to be asked yet.
    held: bool,
    room: Room,
    /// Dropped when the question is closed.
    _open: oneshot::Sender<()>,
}

impl Desk {
    /// Opens a question, which is asked by [`Desk::ask`]. The returned receiver resolves when it is closed.
    ///
    /// # Errors
    /// [`NotOpened`]
    pub(in crate::task) fn open(
        &self,
        call: &AskingCall,
        request: &Message,
        asked: &Asked,
        writer: &'static dyn Writer,
    ) -> Result<(Uuid, oneshot::Receiver<()>), NotOpened> {
        let task = call.task;
        let Some(theirs) = request.id() else { return Err(NotOpened::Ended) };
        let id = Uuid::new_v4();
        // What its own client cannot be asked is asked nowhere.
        let written = writer.question(task, id, request).ok_or(NotOpened::Ended)?;
        let (theirs, text): (Box<str>, Arc<str>) = (theirs.into(), excerpt(&asked.text).into());
        // Once it has been sent the stream keeps it as well, to send it again.
        let bytes = request.bytes().len() + written.bytes().len() + theirs.len() + text.len() + OVERHEAD;
        let request = request.clone().compact();
        let (open, closed) = oneshot::channel();
        let mut inner = self.inner.lock();
        let room = inner.room(self, task, bytes)?;
        inner.next += 1;
        let number = inner.next;
        let (on, asked_in, held) = (None, Vec::new(), true);
        let question = Question {
            call: call.clone(),
            theirs,
            id,
            number,
            text,
            asks: asked.needs,
            request,
            on,
            asked_in,
            held,
            room,
            _open: open,
        };
        if let Some(running) = inner.running.get_mut(&task) {
            running.questions.push(id);
        }
        inner.questions.insert(id, question);
        Ok((id, closed))
    }

    /// Asks a question that was opened, if a stream is open whose client can be asked it, else when one is.
    pub(in crate::task) fn ask(&self, question: Uuid) {
        let mut inner = self.inner.lock();
        if let Some(question) = inner.questions.get_mut(&question) {
            question.held = false;
        }
        inner.is_unheard(question);
        inner.ask(question);
    }

    /// What the task waits for, in words: the question that came last.
    pub(in crate::task) fn waits_for(&self, task: TaskId) -> Option<Arc<str>> {
        let inner = self.inner.lock();
        let last = inner.running.get(&task)?.questions.last()?;
        inner.questions.get(last).map(|question| Arc::clone(&question.text))
    }

    /// Takes out a question that is answered in a session that it was asked in.
    pub(in crate::task) fn answered(&self, session: Uuid, question: Uuid) -> Option<Question> {
        let mut inner = self.inner.lock();
        inner.questions.get(&question).filter(|question| question.asked_in.contains(&session))?;
        inner.remove(question)
    }

    /// Takes out a question that nobody is going to answer, and tells the client so.
    pub(in crate::task) fn give_up(&self, question: Uuid) -> Option<Question> {
        self.inner.lock().close(&[question]).pop()
    }

    /// Closes the questions that the upstream withdraws by the raw id that it gave them.
    pub(in crate::task) fn withdrawn(&self, task: TaskId, raw: &str) {
        let mut inner = self.inner.lock();
        let Some(running) = inner.running.get(&task) else { return };
        let of = |id: &&Uuid| inner.questions.get(id).is_some_and(|question| *question.theirs == *raw);
        let withdrawn: Vec<Uuid> = running.questions.iter().filter(of).copied().collect();
        let closed = inner.close(&withdrawn);
        drop(inner);
        drop(closed);
    }
}

impl Inner {
    /// Notes that no stream with a connection has a question.
    pub(super) fn is_unheard(&mut self, id: Uuid) {
        let Some(question) = self.questions.get(&id).filter(|question| !question.held) else { return };
        self.unheard.entry(question.call.caller.owner.clone()).or_default().insert(question.number, id);
    }

    fn is_waiting(&self, id: Uuid) -> bool {
        let waits = |question: &Question| self.unheard.get(&question.call.caller.owner)?.get(&question.number).copied();
        self.questions.get(&id).and_then(waits).is_some()
    }

    /// Notes that one has it.
    pub(super) fn is_heard(&mut self, id: Uuid) {
        let Some(question) = self.questions.get(&id) else { return };
        let Some(unheard) = self.unheard.get_mut(&question.call.caller.owner) else { return };
        unheard.remove(&question.number);
        if unheard.is_empty() {
            self.unheard.remove(&question.call.caller.owner);
        }
    }

    /// Asks a question on the best stream. Returns that stream where it had no room.
    pub(super) fn ask(&mut self, id: Uuid) -> Option<ListenerId> {
        let question = self.questions.get(&id).filter(|question| !question.held)?;
        if question.asked_in.len() >= ASKED_AT_MOST {
            return None;
        }
        let best = self.best(question.call.task, |listener| listener.client.can_be_asked(question.asks))?;
        self.take_off(id);
        let (question, listener) = (self.questions.get_mut(&id)?, self.listeners.get_mut(&best)?);
        let written = listener.writer.question(question.call.task, id, &question.request)?;
        if listener.outbox.push(written) == Pushed::Full {
            self.is_unheard(id);
            return Some(best);
        }
        listener.has.insert(id);
        question.on = Some(best);
        question.asked_in.push(listener.session);
        self.is_heard(id);
        None
    }

    /// Asks questions that no stream has any more, in the order in which they came.
    pub(super) fn ask_all(&mut self, questions: &[Uuid]) {
        let numbered = |id: &Uuid| self.questions.get(id).map(|question| (question.number, *id));
        let mut questions: Vec<_> = questions.iter().filter_map(numbered).collect();
        questions.sort_unstable();
        for (_, question) in questions {
            self.ask(question);
        }
    }

    /// Asks what no stream has on the one that can take it now, as far as there is room.
    pub(super) fn ask_on(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get(&id) else { return };
        if let Some(task) = listener.task {
            let questions = self.running.get(&task).map_or_else(Vec::new, |running| running.questions.clone());
            let waiting: Vec<Uuid> = questions.into_iter().filter(|id| self.is_waiting(*id)).collect();
            return self.ask_all(&waiting);
        }
        let owner = listener.owner.clone();
        let mut after = 0;
        while let Some((&number, &question)) = self.unheard.get(&owner).and_then(|all| all.range(after..).next()) {
            after = number + 1;
            if self.ask(question) == Some(id) {
                return;
            }
        }
    }

    /// Takes a question off the stream that has sent it.
    fn take_off(&mut self, id: Uuid) {
        let Some(on) = self.questions.get_mut(&id).and_then(|question| question.on.take()) else { return };
        if let Some(listener) = self.listeners.get_mut(&on)
            && listener.has.remove(&id)
        {
            listener.settled.insert(id);
        }
    }

    fn remove(&mut self, id: Uuid) -> Option<Question> {
        self.is_heard(id);
        self.take_off(id);
        let question = self.questions.remove(&id)?;
        let bytes = question.room.bytes;
        if let Some(running) = self.running.get_mut(&question.call.task) {
            running.questions.retain(|open| *open != id);
            running.bytes -= bytes;
        }
        self.bytes.take(&question.call.caller.owner, bytes);
        Some(question)
    }

    /// Takes out questions, and withdraws them from the clients that have them. Those that have not left yet are taken
    /// back.
    pub(super) fn close(&mut self, questions: &[Uuid]) -> Vec<Question> {
        let mut given: HashMap<ListenerId, HashSet<Uuid>> = HashMap::new();
        for id in questions {
            if let Some(on) = self.questions.get(id).and_then(|question| question.on) {
                given.entry(on).or_default().insert(*id);
            }
        }
        let closed: Vec<Question> = questions.iter().filter_map(|id| self.remove(*id)).collect();
        for (on, sent) in given {
            let Some(listener) = self.listeners.get(&on) else { continue };
            let (sent, writer) = (RefCell::new(sent), listener.writer);
            let unsent =
                |message: &Message| writer.question_of(message).is_some_and(|id| sent.borrow_mut().remove(&id));
            listener.outbox.retract(unsent);
            let sent = sent.into_inner();
            for question in closed.iter().filter(|question| sent.contains(&question.id)) {
                if let Some(withdrawal) = writer.withdrawal(question.call.task, question.id) {
                    listener.outbox.push(withdrawal);
                }
            }
        }
        closed
    }
}
