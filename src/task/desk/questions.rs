//! The open questions of tasks: on which stream each is asked, and which sessions may answer.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock},
};

use tokio::sync::oneshot;
use uuid::Uuid;

use super::{
    Desk, Inner, StreamId,
    room::{QuestionNotOpened, QuestionRoom},
};
use crate::{
    flow::Pushed,
    identity::Owner,
    session::Caller,
    task::{TaskId, TaskWriter},
    upstream::{ServerQuestion, UpstreamSession},
    wire::{Asks, Message, excerpt},
};

/// What a question takes besides its text, in bytes.
const OVERHEAD: usize = 1024;
/// How often a question is asked at most: a stream may break before it is answered.
const MAX_ASKED: usize = 2;

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
    pub(in crate::task) raw_id: Box<str>,
    id: Uuid,
    /// Questions have the order in which they came.
    number: u64,
    /// What a person may be told of it.
    text: Arc<str>,
    /// What a client has to have declared to be asked it.
    asks: Asks,
    /// The server's request, in memory of its own.
    request: Message,
    /// The stream on which it is asked, sent or not.
    pub(super) on: Option<StreamId>,
    /// The sessions in which it was asked, which alone may answer.
    pub(super) asked_in: Vec<Uuid>,
    /// Those of them whose client may not have got it.
    pub(super) lost_in: Vec<Uuid>,
    /// The one of them in which it was answered, once it was.
    answered_in: Arc<OnceLock<Uuid>>,
    /// Whether it must not be asked yet, or is never pushed, as its client collects it.
    held: bool,
    /// Whether it is asked on streams that are open.
    pushed: bool,
    room: QuestionRoom,
    /// Dropped when the question is closed.
    _open: oneshot::Sender<()>,
}

impl Desk {
    /// Opens a question, which [`Desk::ask`] asks. Returns its id, and a receiver that resolves when it is closed.
    ///
    /// # Errors
    /// [`QuestionNotOpened`]
    pub(in crate::task) fn open(
        &self,
        call: &AskingCall,
        request: &Message,
        asked: &ServerQuestion,
        writer: &'static dyn TaskWriter,
    ) -> Result<(Uuid, oneshot::Receiver<()>), QuestionNotOpened> {
        let task = call.task;
        let Some(raw_id) = request.id() else { return Err(QuestionNotOpened::Ended) };
        let id = Uuid::new_v4();
        // A question that its own client cannot be asked is asked nowhere.
        let written = writer.question(task, id, request).ok_or(QuestionNotOpened::Ended)?;
        let (raw_id, text): (Box<str>, Arc<str>) = (raw_id.into(), excerpt(&asked.text).into());
        // Once it has been sent, the stream keeps it too, to replay it.
        let bytes = request.bytes().len() + written.bytes().len() + raw_id.len() + text.len() + OVERHEAD;
        let request = request.clone().compact();
        let (open, closed) = oneshot::channel();
        let mut inner = self.inner.lock();
        let room = inner.take_room(self, task, bytes)?;
        inner.next += 1;
        let number = inner.next;
        let (on, asked_in, held) = (None, Vec::new(), true);
        let question = Question {
            call: call.clone(),
            raw_id,
            id,
            number,
            text,
            asks: asked.needs,
            request,
            on,
            asked_in,
            lost_in: Vec::new(),
            answered_in: Arc::default(),
            held,
            pushed: writer.pushes_questions(),
            room,
            _open: open,
        };
        if let Some(running) = inner.running.get_mut(&task) {
            running.questions.push(id);
        }
        inner.questions.insert(id, question);
        Ok((id, closed))
    }

    /// Asks a question that was opened, as soon as a stream is open whose client can be asked it.
    pub(in crate::task) fn ask(&self, question: Uuid) {
        let mut inner = self.inner.lock();
        if let Some(question) = inner.questions.get_mut(&question) {
            question.held = !question.pushed;
        }
        inner.note_unheard(question);
        inner.ask(question);
    }

    /// Returns what the task waits for, in words: the text of the question that came last.
    pub(in crate::task) fn waits_for(&self, task: TaskId) -> Option<Arc<str>> {
        let inner = self.inner.lock();
        let last = inner.running.get(&task)?.questions.last()?;
        inner.questions.get(last).map(|question| Arc::clone(&question.text))
    }

    /// Takes out a question that is answered in a session in which it was asked, and withdraws it from a stream of
    /// another one.
    pub(in crate::task) fn take_answered(&self, session: Uuid, question: Uuid) -> Option<Question> {
        let mut inner = self.inner.lock();
        let open = inner.questions.get(&question).filter(|question| question.asked_in.contains(&session))?;
        let _ = open.answered_in.set(session);
        let on = open.on.and_then(|on| inner.streams.get(&on));
        if on.is_some_and(|stream| stream.session != session) {
            return inner.close(&[question]).pop();
        }
        inner.remove(question)
    }

    /// Notes that a question of a task of `owner` is asked in a session. Where its client has to get it now, returns
    /// what tells in which session it is answered.
    pub(in crate::task) fn ask_in(
        &self,
        session: Uuid,
        owner: &Owner,
        task: TaskId,
        question: Uuid,
    ) -> Option<Arc<OnceLock<Uuid>>> {
        let mut inner = self.inner.lock();
        let Question { call, asked_in, lost_in, answered_in, .. } = inner.questions.get_mut(&question)?;
        if call.task != task || call.caller.owner != *owner {
            return None;
        }
        if !asked_in.contains(&session) {
            asked_in.push(session);
        } else if lost_in.extract_if(.., |lost| *lost == session).count() == 0 {
            return None;
        }
        Some(Arc::clone(answered_in))
    }

    /// Notes whether a question may not have reached the client of a session, which may answer it all the same.
    pub(in crate::task) fn may_be_lost_in(&self, session: Uuid, question: Uuid, may_be: bool) {
        if let Some(question) = self.inner.lock().questions.get_mut(&question) {
            question.lost_in.retain(|lost| *lost != session);
            question.lost_in.extend(may_be.then_some(session));
        }
    }

    /// Takes out a question of a task that the task's owner answers, and withdraws it from other streams.
    pub(in crate::task) fn take_answered_by(&self, owner: &Owner, task: TaskId, question: Uuid) -> Option<Question> {
        let mut inner = self.inner.lock();
        let open = inner.questions.get(&question)?;
        if open.call.task != task || open.call.caller.owner != *owner {
            return None;
        }
        inner.close(&[question]).pop()
    }

    /// Returns the open questions of a task of `owner`, each under its id, oldest first.
    pub(in crate::task) fn questions(&self, owner: &Owner, task: TaskId) -> Vec<(Uuid, Message)> {
        let inner = self.inner.lock();
        let Some(running) = inner.running.get(&task).filter(|running| running.owner == *owner) else {
            return Vec::new();
        };
        let open = running.questions.iter().filter_map(|id| Some((*id, inner.questions.get(id)?)));
        open.map(|(id, question)| (id, question.request.clone())).collect()
    }

    /// Takes out a question that was not answered in time, and withdraws it from its client.
    pub(in crate::task) fn give_up(&self, question: Uuid) -> Option<Question> {
        self.inner.lock().close(&[question]).pop()
    }

    /// Closes the questions that the upstream withdraws by the raw id that it gave them.
    pub(in crate::task) fn close_withdrawn(&self, task: TaskId, raw_id: &str) {
        let mut inner = self.inner.lock();
        let Some(running) = inner.running.get(&task) else { return };
        let of = |id: &&Uuid| inner.questions.get(id).is_some_and(|question| *question.raw_id == *raw_id);
        let withdrawn: Vec<Uuid> = running.questions.iter().filter(of).copied().collect();
        let closed = inner.close(&withdrawn);
        drop(inner);
        drop(closed);
    }
}

impl Inner {
    /// Notes that no stream with a connection has a question, unless it must not be asked yet.
    pub(super) fn note_unheard(&mut self, id: Uuid) {
        let Some(question) = self.questions.get(&id).filter(|question| !question.held) else { return };
        self.unheard.entry(question.call.caller.owner.clone()).or_default().insert(question.number, id);
    }

    fn is_unheard(&self, id: Uuid) -> bool {
        let waits = |question: &Question| self.unheard.get(&question.call.caller.owner)?.get(&question.number).copied();
        self.questions.get(&id).and_then(waits).is_some()
    }

    /// Notes that a stream with a connection has a question.
    pub(super) fn note_heard(&mut self, id: Uuid) {
        let Some(question) = self.questions.get(&id) else { return };
        let Some(unheard) = self.unheard.get_mut(&question.call.caller.owner) else { return };
        unheard.remove(&question.number);
        if unheard.is_empty() {
            self.unheard.remove(&question.call.caller.owner);
        }
    }

    /// Asks a question on the best stream. Returns that stream if it had no room.
    pub(super) fn ask(&mut self, id: Uuid) -> Option<StreamId> {
        let question = self.questions.get(&id).filter(|question| !question.held)?;
        if question.asked_in.len() >= MAX_ASKED {
            return None;
        }
        let best = self.best(question.call.task, |stream| stream.client.can_be_asked(question.asks))?;
        self.take_off(id);
        let (question, stream) = (self.questions.get_mut(&id)?, self.streams.get_mut(&best)?);
        let written = stream.writer.question(question.call.task, id, &question.request)?;
        if stream.outbox.push(written) == Pushed::Full {
            self.note_unheard(id);
            return Some(best);
        }
        stream.questions.insert(id);
        question.on = Some(best);
        question.asked_in.push(stream.session);
        self.note_heard(id);
        None
    }

    /// Asks questions on the best streams, in the order in which they came.
    pub(super) fn ask_all(&mut self, questions: &[Uuid]) {
        let numbered = |id: &Uuid| self.questions.get(id).map(|question| (question.number, *id));
        let mut questions: Vec<_> = questions.iter().filter_map(numbered).collect();
        questions.sort_unstable();
        for (_, question) in questions {
            self.ask(question);
        }
    }

    /// Asks the unheard questions that a stream may get, while it has room.
    pub(super) fn ask_on(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else { return };
        if let Some(task) = stream.task {
            let questions = self.running.get(&task).map_or_else(Vec::new, |running| running.questions.clone());
            let waiting: Vec<Uuid> = questions.into_iter().filter(|id| self.is_unheard(*id)).collect();
            return self.ask_all(&waiting);
        }
        let owner = stream.owner.clone();
        let mut after = 0;
        while let Some((&number, &question)) = self.unheard.get(&owner).and_then(|all| all.range(after..).next()) {
            after = number + 1;
            if self.ask(question) == Some(id) {
                return;
            }
        }
    }

    /// Takes a question off its stream.
    fn take_off(&mut self, id: Uuid) {
        let Some(on) = self.questions.get_mut(&id).and_then(|question| question.on.take()) else { return };
        if let Some(stream) = self.streams.get_mut(&on)
            && stream.questions.remove(&id)
        {
            stream.settled.insert(id);
        }
    }

    /// Removes a question, and what it counts for.
    fn remove(&mut self, id: Uuid) -> Option<Question> {
        self.note_heard(id);
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

    /// Takes out questions. Takes back the unsent ones, and withdraws the others from their clients.
    pub(super) fn close(&mut self, questions: &[Uuid]) -> Vec<Question> {
        let mut by_stream: HashMap<StreamId, HashSet<Uuid>> = HashMap::new();
        for id in questions {
            if let Some(on) = self.questions.get(id).and_then(|question| question.on) {
                by_stream.entry(on).or_default().insert(*id);
            }
        }
        let closed: Vec<Question> = questions.iter().filter_map(|id| self.remove(*id)).collect();
        for (on, sent) in by_stream {
            let Some(stream) = self.streams.get(&on) else { continue };
            let (sent, writer) = (RefCell::new(sent), stream.writer);
            let unsent =
                |message: &Message| writer.question_of(message).is_some_and(|id| sent.borrow_mut().remove(&id));
            stream.outbox.retract(unsent);
            let sent = sent.into_inner();
            for question in closed.iter().filter(|question| sent.contains(&question.id)) {
                if let Some(withdrawal) = writer.withdrawal(question.call.task, question.id) {
                    stream.outbox.push(withdrawal);
                }
            }
        }
        closed
    }
}
