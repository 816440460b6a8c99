//! Which of an owner's streams gets what belongs to a running task: a GET stream if one is open, else a stream that waits
//! for the task's result, and never two of them (section "Input Required Status").

mod inner;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::TaskId;
use crate::{
    identity::Owner,
    session::Session,
    upstream::Outbox,
    wire::{
        Edits, Message, Method, ids,
        legacy::{related, unrelated},
    },
};

/// How many questions of one task may be open at once.
const MAX_QUESTIONS: usize = 64;
/// How often a question is asked: a stream may break before it is answered.
const ASKED_AT_MOST: usize = 2;
/// What begins the ids of questions, so that answers to them are told from all others.
const PREFIX: &str = "taskgate:";

/// One stream that may get messages.
pub(super) type ListenerId = u64;

/// The streams and the open questions of all running tasks.
#[derive(Debug, Default)]
pub(super) struct Desk {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: ListenerId,
    listeners: HashMap<ListenerId, Listener>,
    /// The GET streams of each owner, oldest first.
    gets: HashMap<Owner, Vec<ListenerId>>,
    /// The streams that wait for each task's result, oldest first.
    waiters: HashMap<TaskId, Vec<ListenerId>>,
    /// The tasks that run.
    running: HashMap<TaskId, Running>,
    /// Those of them that have open questions, by their owners.
    asking: HashMap<Owner, HashSet<TaskId>>,
    questions: HashMap<Uuid, Question>,
}

#[derive(Debug)]
struct Running {
    owner: Owner,
    /// The session that created it, whose streams come first.
    session: Uuid,
    /// What it has asked and not yet been answered.
    questions: Vec<Uuid>,
    /// The version of the task whose status was told last.
    told: u32,
}

/// Whose stream it is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// The GET stream of a session.
    Session(Owner, Uuid),
    /// A stream of a session that waits for a task's result.
    Task(TaskId, Uuid),
}

impl Place {
    /// The session whose stream it is.
    const fn session(&self) -> Uuid {
        let (Self::Session(_, session) | Self::Task(_, session)) = self;
        *session
    }
}

#[derive(Debug)]
struct Listener {
    place: Place,
    outbox: Arc<Outbox<()>>,
    attached: bool,
}

/// A request of the upstream to the client, in the course of a task.
#[derive(Debug)]
pub(super) struct Question {
    pub task: TaskId,
    /// What the upstream sent.
    pub request: Message,
    /// The session whose upstream asks.
    pub session: Arc<Session>,
    /// The request under an id of ours, tied to the task.
    ours: Message,
    /// The stream that it was given to.
    on: Option<ListenerId>,
    /// The sessions that it was asked in, which alone may answer.
    asked_in: Vec<Uuid>,
    /// Not to be asked yet.
    held: bool,
    /// Dropped when the question is closed.
    _open: oneshot::Sender<()>,
}

impl Question {
    /// The answer as the upstream expects it.
    pub(super) fn reply(&self, answer: &Message) -> Bytes {
        unrelated(answer, self.request.id().unwrap_or("null"))
    }
}

/// The question that a raw id of ours stands for.
pub(super) fn question_id(raw: &str) -> Option<Uuid> {
    let id: String = serde_json::from_str(raw).ok()?;
    ids::parse(id.strip_prefix(PREFIX)?)
}

impl Desk {
    /// Lets a task's messages through from now on.
    pub(super) fn begin(&self, task: TaskId, owner: &Owner, session: Uuid) {
        let running = Running { owner: owner.clone(), session, questions: Vec::new(), told: 0 };
        self.inner.lock().running.insert(task, running);
    }

    /// Closes a task's questions, and takes back what has not left yet: nothing comes after the end.
    pub(super) fn end(&self, task: TaskId) {
        let mut inner = self.inner.lock();
        let Some(running) = inner.running.remove(&task) else { return };
        for question in running.questions {
            inner.close(question);
        }
        inner.asks_no_more(&running.owner, task);
        let text = task.to_string();
        let stale = |message: &Message| {
            message.method() == Method::Progress && memchr::memmem::find(message.bytes(), text.as_bytes()).is_some()
        };
        for id in inner.gets.get(&running.owner).into_iter().chain(inner.waiters.get(&task)).flatten() {
            inner.listeners[id].outbox.retract(stale);
        }
    }

    /// Adds a stream without a connection.
    pub(super) fn register(&self, place: Place, outbox: Arc<Outbox<()>>) -> ListenerId {
        let mut inner = self.inner.lock();
        inner.next += 1;
        let id = inner.next;
        inner.peers(&place).push(id);
        inner.listeners.insert(id, Listener { place, outbox, attached: false });
        id
    }

    /// Forgets a stream.
    pub(super) fn deregister(&self, id: ListenerId) {
        self.detached(id);
        let mut inner = self.inner.lock();
        let Some(listener) = inner.listeners.remove(&id) else { return };
        let peers = inner.peers(&listener.place);
        peers.retain(|peer| *peer != id);
        if peers.is_empty() {
            match &listener.place {
                Place::Session(owner, _) => drop(inner.gets.remove(owner)),
                Place::Task(task, _) => drop(inner.waiters.remove(task)),
            }
        }
    }

    /// A stream has a connection. What nobody was asked yet is asked now, and once more what was asked on a stream that
    /// has lost its connection; where that stream itself is `resumed`, its client has the question, or gets it replayed.
    pub(super) fn attached(&self, id: ListenerId, resumed: bool) {
        let mut inner = self.inner.lock();
        let Some(listener) = inner.listeners.get_mut(&id) else { return };
        listener.attached = true;
        for question in inner.questions_for(id) {
            let (on, asked) = match inner.questions.get(&question) {
                Some(question) if !question.held => (question.on, question.asked_in.len()),
                _ => continue,
            };
            let unheard = match on {
                None => true,
                Some(on) if on == id => !resumed,
                Some(on) => !inner.listeners.get(&on).is_some_and(|listener| listener.attached),
            };
            if unheard && asked < ASKED_AT_MOST {
                inner.ask(question);
            }
        }
    }

    /// A stream has lost its connection. What it had not sent goes to another one. Returns whether it leaves questions
    /// behind that it did send.
    pub(super) fn detached(&self, id: ListenerId) -> bool {
        let mut inner = self.inner.lock();
        let Some(listener) = inner.listeners.get_mut(&id) else { return false };
        listener.attached = false;
        let mut left = false;
        for question in inner.questions_for(id) {
            if inner.take_back(question, id) {
                inner.ask(question);
            }
            left |= inner.questions.get(&question).is_some_and(|question| question.on == Some(id));
        }
        left
    }

    /// A stream that has lost its connection has not got another one for long: what was asked there is asked on one that
    /// is open.
    pub(super) fn stays_away(&self, id: ListenerId) {
        let mut inner = self.inner.lock();
        if inner.listeners.get(&id).is_some_and(|listener| listener.attached) {
            return;
        }
        for question in inner.questions_for(id) {
            let left = |question: &Question| question.on == Some(id) && question.asked_in.len() < ASKED_AT_MOST;
            if inner.questions.get(&question).is_some_and(left) {
                inner.ask(question);
            }
        }
    }

    /// Sends a message that belongs to a running task. Where no stream is open a `droppable` one is dropped, and any other
    /// waits for the GET stream of the task's session.
    pub(super) fn tell(&self, task: TaskId, message: Message, droppable: bool) -> Option<Message> {
        let inner = self.inner.lock();
        let running = inner.running.get(&task)?;
        match inner.best(task, running) {
            Some(id) => {
                inner.listeners[&id].outbox.push(message);
                None
            }
            None if droppable => None,
            None => Some(message),
        }
    }

    /// What waits for the stream that gets a task's messages now.
    pub(super) fn outbox(&self, task: TaskId) -> Option<Arc<Outbox<()>>> {
        let inner = self.inner.lock();
        let best = inner.best(task, inner.running.get(&task)?)?;
        Some(Arc::clone(&inner.listeners[&best].outbox))
    }

    /// Sends a notification of the state that version `version` of a task is in on the owner's GET stream, also while its
    /// connection is broken; not after that of a later one.
    pub(super) fn announce(&self, task: TaskId, version: u32, notification: Message) {
        let mut inner = self.inner.lock();
        let Some(running) = inner.running.get_mut(&task).filter(|running| running.told < version) else { return };
        running.told = version;
        let Some(running) = inner.running.get(&task) else { return };
        if let Some(id) = inner.get_stream(running, |_| true) {
            inner.listeners[&id].outbox.push(notification);
        }
    }

    /// Opens a question, which is asked by [`Desk::ask`]. The returned receiver resolves when it is closed. `None` if the
    /// task has ended, or too many of its questions are open.
    pub(super) fn open(
        &self,
        task: TaskId,
        request: &Message,
        session: &Arc<Session>,
    ) -> Option<(Uuid, oneshot::Receiver<()>)> {
        let id = Uuid::new_v4();
        let mut edits = Edits::of(request.bytes());
        edits.replace(request.id_span()?, format!("\"{PREFIX}{id}\""));
        let ours = related(&Message::parse(edits.apply().into_bytes()).ok()?, task)?;
        let (open, closed) = oneshot::channel();
        let mut inner = self.inner.lock();
        let running = inner.running.get_mut(&task).filter(|running| running.questions.len() < MAX_QUESTIONS)?;
        running.questions.push(id);
        let owner = running.owner.clone();
        inner.asking.entry(owner).or_default().insert(task);
        let (request, session) = (request.clone(), Arc::clone(session));
        let question =
            Question { task, request, session, ours, on: None, asked_in: Vec::new(), held: true, _open: open };
        inner.questions.insert(id, question);
        Some((id, closed))
    }

    /// Asks a question that was opened, if a stream is open, else when one is.
    pub(super) fn ask(&self, question: Uuid) {
        let mut inner = self.inner.lock();
        if let Some(question) = inner.questions.get_mut(&question) {
            question.held = false;
        }
        inner.ask(question);
    }

    /// What the task waits for: the request that came last.
    pub(super) fn waits_for(&self, task: TaskId) -> Option<Message> {
        let inner = self.inner.lock();
        let last = inner.running.get(&task)?.questions.last()?;
        inner.questions.get(last).map(|question| question.request.clone())
    }

    /// Takes out a question that is answered in a session that it was asked in.
    pub(super) fn answered(&self, session: Uuid, question: Uuid) -> Option<Question> {
        let mut inner = self.inner.lock();
        inner.questions.get(&question).filter(|question| question.asked_in.contains(&session))?;
        inner.remove(question)
    }

    /// Takes out a question that nobody is going to answer, and tells the client so.
    pub(super) fn give_up(&self, question: Uuid) -> Option<Question> {
        self.inner.lock().close(question)
    }

    /// Closes the questions that the upstream withdraws by the raw id that it gave them.
    pub(super) fn withdrawn(&self, task: TaskId, raw: &str) {
        let mut inner = self.inner.lock();
        let Some(running) = inner.running.get(&task) else { return };
        let of = |id: &&Uuid| inner.questions.get(id).is_some_and(|question| question.request.id() == Some(raw));
        let withdrawn: Vec<Uuid> = running.questions.iter().filter(of).copied().collect();
        for question in withdrawn {
            inner.close(question);
        }
    }

    /// Whether a question is still to be answered on that stream.
    pub(super) fn still_asks(&self, listener: ListenerId, question: Uuid) -> bool {
        self.inner.lock().questions.get(&question).is_some_and(|question| question.on == Some(listener))
    }
}
