//! What the upstream asks the client in the course of a task (section "Input Required Status").

use std::{
    future::Future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use tokio::{sync::Semaphore, time::Instant};
use uuid::Uuid;

use super::{
    Change, Engine, State, TaskId, TaskWriter,
    desk::{AskingCall, Question},
};
use crate::{
    identity::Owner,
    observe::events,
    upstream::{Failure, ServerQuestion, UpstreamSession, question_refusal},
    wire::{Message, excerpt},
};

/// How long a client waits at most until its answer has been passed on.
const PASS_ON_TIMEOUT: Duration = Duration::from_secs(1);
/// For how long an answer is sent again to a server that cannot be reached.
const SENT_AGAIN_FOR: Duration = Duration::from_secs(8);
/// How long the first pause between two tries is, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The call that a question comes from, and how the question is asked and answered.
pub(super) struct QuestionOrigin<'a> {
    pub call: AskingCall,
    /// The headers of the call, for answers; all its questions share them.
    pub headers: &'a Arc<HeaderMap>,
    /// Writes for the streams of the task's client.
    pub writer: &'static dyn TaskWriter,
    /// How long the client may take to answer.
    pub input_timeout: Duration,
    /// Bounds the questions that are being answered in the client's place.
    pub replies: &'a Arc<Semaphore>,
}

impl Engine {
    /// Asks the client what the server asks with each of these requests: a client that finds the task waiting finds
    /// all of them.
    pub(super) async fn ask(self: &Arc<Self>, origin: QuestionOrigin<'_>, requests: &[(Message, ServerQuestion)]) {
        let task = origin.call.task;
        let mut opened = Vec::new();
        for (request, asked) in requests {
            if let Some(refusal) = origin.writer.refusal(request) {
                self.reply_at_once(&origin, refusal.to_response(request.id())).await;
                continue;
            }
            let (question, closed) = match self.desk.open(&origin.call, request, asked, origin.writer) {
                Ok(opened) => opened,
                Err(why) => {
                    self.observer.emit(events::QuestionRefused { task, reason: why.name() });
                    let reply = question_refusal(request.id_to_answer(), why.to_string());
                    self.reply_at_once(&origin, reply).await;
                    continue;
                }
            };
            self.observer.emit(events::QuestionAsked { task });
            opened.push(question);
            // Before the store has taken it: a server with sessions is told in time that no answer came.
            let (engine, headers, input_timeout) = (Arc::clone(self), Arc::clone(origin.headers), origin.input_timeout);
            tokio::spawn(async move {
                tokio::select! {
                    _ = closed => {}
                    () = tokio::time::sleep(input_timeout) => engine.give_up(question, input_timeout, &headers).await,
                }
            });
        }
        if opened.is_empty() {
            return;
        }
        // The client that gets a question finds the task in this state.
        self.settle(&origin.call.caller.owner, task).await;
        for question in opened {
            self.desk.ask(question);
        }
    }

    /// Answers a request of the server in the client's place. The call goes on meanwhile, but it reads a flood of
    /// requests no faster than they are answered.
    pub(super) async fn reply_at_once(self: &Arc<Self>, origin: &QuestionOrigin<'_>, reply: Bytes) {
        let Ok(permit) = Arc::clone(origin.replies).acquire_owned().await else { return };
        let replying = self.reply(origin.call.clone(), reply, HeaderMap::clone(origin.headers));
        tokio::spawn(async move {
            replying.await;
            drop(permit);
        });
    }

    /// Takes the answer of a client to a question that it was asked in `session`. `reply` writes it under the server's
    /// own raw id of the question, and the server gets it. Returns whether there is such a question.
    pub async fn answer(
        self: &Arc<Self>,
        session: Uuid,
        question: Uuid,
        reply: impl FnOnce(&str) -> Bytes,
        headers: HeaderMap,
    ) -> bool {
        let Some(question) = self.desk.take_answered(session, question) else { return false };
        self.pass_on(question, reply, headers).await;
        true
    }

    /// Passes on the answer to a question that was taken out.
    async fn pass_on(self: &Arc<Self>, question: Question, reply: impl FnOnce(&str) -> Bytes, headers: HeaderMap) {
        let (engine, reply) = (Arc::clone(self), reply(&question.raw_id));
        // The answer is passed on even if the client disconnects now.
        let passing = tokio::spawn(async move {
            let AskingCall { task, caller, upstream_session } = &question.call;
            let delivering = async {
                let delivered = deliver(upstream_session, reply, headers).await;
                delivered.inspect_err(|failure| engine.report_not_taken(&question.call, failure))
            };
            // The server does not wait for the store.
            let ((), delivered) = tokio::join!(biased; engine.settle(&caller.owner, *task), delivering);
            if let Err(failure) = delivered {
                let text = format!("The client's answer could not be passed on: {failure}");
                let _ = engine.change(&caller.owner, *task, |_| Some(Change::Message(excerpt(&text).into()))).await;
            }
        });
        // A slow server must not hold the client up.
        let _ = tokio::time::timeout(PASS_ON_TIMEOUT, passing).await;
    }

    /// Takes the answer of a task's owner to one of its questions, as [`Engine::answer`] does. Ignores one that is not
    /// open.
    pub async fn answer_in_task(
        self: &Arc<Self>,
        owner: &Owner,
        task: TaskId,
        question: Uuid,
        reply: impl FnOnce(&str) -> Bytes,
        headers: HeaderMap,
    ) {
        if let Some(question) = self.desk.take_answered_by(owner, task, question) {
            self.pass_on(question, reply, headers).await;
        }
    }

    /// Notes that a question of a task is asked in `session`, whose client may answer it with [`Engine::answer`].
    /// Where the client has to get it now, returns what tells in which session it is answered.
    pub fn ask_in(&self, session: Uuid, owner: &Owner, task: TaskId, question: Uuid) -> Option<Arc<OnceLock<Uuid>>> {
        self.desk.ask_in(session, owner, task, question)
    }

    /// Notes that a question may not have reached the client of `session`, and has to be asked there again.
    pub fn may_be_lost_in(&self, session: Uuid, question: Uuid, may_be: bool) {
        self.desk.may_be_lost_in(session, question, may_be);
    }

    /// Returns the open questions of a task, each under its id, oldest first.
    pub fn questions(&self, owner: &Owner, task: TaskId) -> Vec<(Uuid, Message)> {
        self.desk.questions(owner, task)
    }

    /// Closes the questions that the upstream withdraws by the raw id that it gave them.
    pub(super) async fn close_withdrawn(&self, owner: &Owner, task: TaskId, raw_id: &str) {
        self.desk.close_withdrawn(task, raw_id);
        self.settle(owner, task).await;
    }

    /// Gives up a question that the client has not answered in time, and tells the server so.
    async fn give_up(self: &Arc<Self>, question: Uuid, input_timeout: Duration, headers: &HeaderMap) {
        let Some(question) = self.desk.give_up(question) else { return };
        let (owner, task) = (question.call.caller.owner.clone(), question.call.task);
        let limit = humantime::format_duration(input_timeout);
        let why = format!("The client did not answer within input_timeout = {limit}");
        let reply = question_refusal(&question.raw_id, why);
        tokio::join!(biased; self.settle(&owner, task), self.reply(question.call, reply, headers.clone()));
    }

    /// Puts a task into the state that follows from its open questions.
    pub(super) async fn settle(&self, owner: &Owner, task: TaskId) {
        // A store that hangs may still write what it was told before.
        let has_asked = AtomicBool::new(false);
        loop {
            // A task that has ended stays as it is.
            let changed = self.change_when_available(owner, task, |current| match self.desk.waits_for(task) {
                Some(text) => {
                    has_asked.store(true, Ordering::Relaxed);
                    Some(Change::Ask(text))
                }
                None if current.state == State::InputRequired || has_asked.load(Ordering::Relaxed) => {
                    Some(Change::Resume)
                }
                None => None,
            });
            let Ok(Some(changed)) = changed.await else { return };
            // An answer that came while the disk wrote has found nothing to change.
            if changed.state != State::InputRequired || self.desk.waits_for(task).is_some() {
                return;
            }
        }
    }

    /// Answers the upstream.
    fn reply(self: &Arc<Self>, call: AskingCall, reply: Bytes, headers: HeaderMap) -> impl Future<Output = ()> + use<> {
        let engine = Arc::clone(self);
        async move {
            if let Err(failure) = deliver(&call.upstream_session, reply, headers).await {
                engine.report_not_taken(&call, &failure);
            }
        }
    }

    /// Reports that the upstream did not take an answer.
    fn report_not_taken(&self, call: &AskingCall, failure: &Failure) {
        let (who, cause) = (&*call.caller.who, failure.cause());
        let upstream = who.upstream();
        self.observer.emit(events::ExchangeFailed { upstream, who: Some(who), task: Some(call.task), cause });
    }
}

/// Passes an answer on to the server. Where that could not be reached nothing was sent, so the answer is sent again: the
/// user need not be asked a second time.
async fn deliver(session: &UpstreamSession, reply: Bytes, headers: HeaderMap) -> Result<(), Failure> {
    let (mut until, mut pause) = (None, FIRST_PAUSE);
    loop {
        let ended = session.reply(reply.clone(), headers.clone()).await;
        // A first try may take longer than this where packets are dropped.
        let until = *until.get_or_insert_with(|| Instant::now() + SENT_AGAIN_FOR);
        if !matches!(ended, Err(Failure::Unreachable(_))) || Instant::now() >= until {
            return ended;
        }
        tokio::time::sleep(pause).await;
        pause = MAX_PAUSE.min(2 * pause);
    }
}
