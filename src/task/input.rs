//! What the upstream asks the client in the course of a task (section "Input Required Status").

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use uuid::Uuid;

use super::{Change, Engine, State, TaskId, desk::question_id};
use crate::{
    identity::Owner,
    observe::events,
    session::Session,
    upstream::excerpt,
    wire::{Kind, Message, Method, RpcError, legacy::question_text},
};

/// Whether a message of a client was the answer to a question of a task.
#[derive(Debug)]
pub enum Answered {
    /// It was, or cannot have been anything else.
    Taken,
    /// It belongs to somebody else.
    NotAQuestion(Message),
}

/// Whose call asks.
pub(super) struct Asker<'a> {
    pub task: TaskId,
    pub session: &'a Arc<Session>,
    pub headers: &'a HeaderMap,
    pub input_timeout: Duration,
}

impl Engine {
    /// Takes in a request of the upstream: asks the client, or says at once that it cannot be asked.
    pub(super) async fn ask(self: &Arc<Self>, asker: Asker<'_>, request: &Message) {
        let Asker { task, session, headers, input_timeout } = asker;
        let id = request.id().unwrap_or("null");
        if request.method() == Method::Ping {
            // Meant for whoever holds the connection.
            return self.reply(session, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), headers);
        }
        if let Some(error) = session.client().refusal(request) {
            return self.refuse(session, id, &error, headers);
        }
        let Some((question, closed)) = self.desk.open(task, request, session) else {
            let error = RpcError::internal("limit reached: the client has too many questions of this call to answer");
            return self.refuse(session, id, &error, headers);
        };
        // Whoever gets the question finds the task in this state.
        self.settle(&session.owner, task).await;
        self.desk.ask(question);
        self.observer.emit(events::QuestionAsked { task });
        let (engine, headers) = (Arc::clone(self), headers.clone());
        tokio::spawn(async move {
            tokio::select! {
                _ = closed => {}
                () = tokio::time::sleep(input_timeout) => engine.unanswered(question, input_timeout, &headers).await,
            }
        });
    }

    /// Takes in a client's answer to a question, and passes it on.
    pub async fn answer(self: &Arc<Self>, owner: &Owner, message: Message, headers: &HeaderMap) -> Answered {
        let id = message.id().filter(|_| message.kind() == Kind::Response).and_then(question_id);
        let Some(id) = id else { return Answered::NotAQuestion(message) };
        let Some(question) = self.desk.answered(owner, id) else {
            self.observer.emit(events::UnknownAnswer);
            return Answered::Taken;
        };
        let (engine, headers) = (Arc::clone(self), headers.clone());
        // A client that disconnects now has answered all the same.
        let passing = tokio::spawn(async move {
            let owner = &question.session.owner;
            engine.settle(owner, question.task).await;
            if let Err(failure) = question.session.reply(question.reply(&message), headers).await {
                engine.observer.emit(events::ExchangeFailed { failure: &failure });
                let text = format!("The client's answer could not be passed on: {failure}");
                let _ = engine.change(owner, question.task, |_| Some(Change::Message(excerpt(&text).into()))).await;
            }
        });
        let _ = passing.await;
        Answered::Taken
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
        let error = RpcError::internal(format!("The client did not answer within input_timeout = {limit}"));
        self.refuse(&question.session, question.request.id().unwrap_or("null"), &error, headers);
    }

    /// Puts a task into the state that its open questions mean.
    async fn settle(&self, owner: &Owner, task: TaskId) {
        // A task that has ended stays as it is.
        let _ = self
            .change(owner, task, |now| match self.desk.waits_for(task) {
                Some(request) => Some(Change::Ask(excerpt(&question_text(&request)).into())),
                None if now.state == State::InputRequired => Some(Change::Resume),
                None => None,
            })
            .await;
    }

    fn refuse(self: &Arc<Self>, session: &Arc<Session>, id: &str, error: &RpcError, headers: &HeaderMap) {
        self.reply(session, error.to_response(Some(id)), headers);
    }

    /// Answers the upstream, without holding up the call that has asked.
    fn reply(self: &Arc<Self>, session: &Arc<Session>, response: impl Into<Bytes>, headers: &HeaderMap) {
        let (observer, session, response, headers) =
            (Arc::clone(&self.observer), Arc::clone(session), response.into(), headers.clone());
        tokio::spawn(async move {
            if let Err(failure) = session.reply(response, headers).await {
                observer.emit(events::ExchangeFailed { failure: &failure });
            }
        });
    }
}
