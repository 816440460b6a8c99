//! What the upstream asks the client in the course of a task (section "Input Required Status").

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::{Change, Engine, State, TaskId, Writer};
use crate::{
    identity::Owner,
    observe::events,
    session::{Asked, Session, not_asked},
    upstream::{Failure, excerpt},
    wire::Message,
};

/// How long a client waits until its answer has been passed on.
const PROMPTLY: Duration = Duration::from_secs(1);

/// Whose call asks.
pub(super) struct Asker<'a> {
    pub task: TaskId,
    pub session: &'a Arc<Session>,
    /// Shared by all questions of the call.
    pub headers: &'a Arc<HeaderMap>,
    /// That of the client that wants the task.
    pub writer: &'static dyn Writer,
    pub input_timeout: Duration,
    /// How many answers without the client may be under way at once.
    pub replies: &'a Arc<Semaphore>,
}

impl Engine {
    /// Asks the client what the server asks with `request`.
    pub(super) async fn ask(self: &Arc<Self>, asker: Asker<'_>, request: &Message, asked: Asked) {
        let Asker { task, session, headers, writer, input_timeout, .. } = asker;
        let (question, closed) = match self.desk.open(task, request, &asked, session, writer) {
            Ok(opened) => opened,
            Err(why) => {
                self.observer.emit(events::QuestionRefused { task, reason: why.name() });
                let reply = not_asked(request.id_to_answer(), why.to_string());
                return self.reply_at_once(asker, reply).await;
            }
        };
        // The client that gets the question finds the task in this state.
        self.settle(&session.owner, task).await;
        self.desk.ask(question);
        self.observer.emit(events::QuestionAsked { task });
        let (engine, headers) = (Arc::clone(self), Arc::clone(headers));
        tokio::spawn(async move {
            tokio::select! {
                _ = closed => {}
                () = tokio::time::sleep(input_timeout) => engine.unanswered(question, input_timeout, &headers).await,
            }
        });
    }

    /// Answers a request of the server in the client's place: beside the call, which goes on; but a flood of questions is
    /// read no faster than it is answered.
    pub(super) async fn reply_at_once(self: &Arc<Self>, asker: Asker<'_>, reply: Bytes) {
        let Asker { task, session, headers, replies, .. } = asker;
        let Ok(turn) = Arc::clone(replies).acquire_owned().await else { return };
        let replying = self.reply(Arc::clone(session), task, reply, HeaderMap::clone(headers));
        tokio::spawn(async move {
            replying.await;
            drop(turn);
        });
    }

    /// Takes in the answer of a client to a question that it was asked in `session`, and passes on what `reply` makes of it
    /// under the server's own raw id of the question. Returns whether there is such a question.
    pub async fn answer(
        self: &Arc<Self>,
        session: Uuid,
        question: Uuid,
        reply: impl FnOnce(&str) -> Bytes,
        headers: HeaderMap,
    ) -> bool {
        let Some(question) = self.desk.answered(session, question) else { return false };
        let (engine, reply) = (Arc::clone(self), reply(&question.theirs));
        // A client that disconnects now has answered all the same.
        let passing = tokio::spawn(async move {
            let owner = &question.session.owner;
            engine.settle(owner, question.task).await;
            if let Err(failure) = question.session.reply(reply, headers).await {
                engine.not_taken(&question.session, question.task, &failure);
                let text = format!("The client's answer could not be passed on: {failure}");
                let _ = engine.change(owner, question.task, |_| Some(Change::Message(excerpt(&text).into()))).await;
            }
        });
        // A server that takes its time must not hold the client up.
        let _ = tokio::time::timeout(PROMPTLY, passing).await;
        true
    }

    /// The upstream does not want an answer any more.
    pub(super) async fn withdrawn(&self, owner: &Owner, task: TaskId, raw_id: &str) {
        self.desk.withdrawn(task, raw_id);
        self.settle(owner, task).await;
    }

    async fn unanswered(self: &Arc<Self>, question: Uuid, input_timeout: Duration, headers: &HeaderMap) {
        let Some(question) = self.desk.give_up(question) else { return };
        self.settle(&question.session.owner, question.task).await;
        let limit = humantime::format_duration(input_timeout);
        let why = format!("The client did not answer within input_timeout = {limit}");
        let reply = not_asked(&question.theirs, why);
        self.reply(Arc::clone(&question.session), question.task, reply, headers.clone()).await;
    }

    /// Puts a task into the state that its open questions mean.
    async fn settle(&self, owner: &Owner, task: TaskId) {
        // A task that has ended stays as it is.
        let _ = self
            .change_at_last(owner, task, |now| match self.desk.waits_for(task) {
                Some(text) => Some(Change::Ask(text)),
                None if now.state == State::InputRequired => Some(Change::Resume),
                None => None,
            })
            .await;
    }

    /// Answers the upstream.
    fn reply(
        self: &Arc<Self>,
        session: Arc<Session>,
        task: TaskId,
        reply: Bytes,
        headers: HeaderMap,
    ) -> impl Future<Output = ()> + use<> {
        let engine = Arc::clone(self);
        async move {
            if let Err(failure) = session.reply(reply, headers).await {
                engine.not_taken(&session, task, &failure);
            }
        }
    }

    /// Tells that the upstream did not take an answer.
    fn not_taken(&self, session: &Session, task: TaskId, failure: &Failure) {
        let (who, cause) = (&*session.who, failure.cause());
        let upstream = who.upstream();
        self.observer.emit(events::ExchangeFailed { upstream, who: Some(who), task: Some(task), cause });
    }
}
