//! What a server says in the course of a request: what its client hears, and what taskgate answers in its place.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::run::{Question, Run};
use crate::{
    observe::events,
    task::{MAX_QUESTIONS, MAX_REPLIES},
    upstream::{ServerEvent, question_refusal},
    wire::{Asks, LogLevel, Message, Method, input_required::check_question, object::Members},
};

/// What a question takes besides its text, in bytes.
const QUESTION_OVERHEAD: usize = 1024;

impl Run {
    /// Takes in what the server says.
    pub(super) async fn take(&mut self, message: Message) {
        let event = self.session().event(&self.call, &message);
        match event {
            ServerEvent::Progress { progress, text, for_client } if progress > self.progress => {
                (self.progress, self.text) = (progress, Some(text));
                // A call that goes on has not failed for want of an answer.
                self.lacks.forget();
                match (for_client, &mut self.heartbeat) {
                    (Some(theirs), Some(heartbeat)) => self.to.say(heartbeat.relay(progress, &theirs)),
                    (Some(theirs), None) => self.to.notify(theirs),
                    (None, _) => {}
                }
            }
            ServerEvent::Asks(_) if !self.asks || self.passes() => {
                self.refuse(&message, "the call is not one in the course of which a client can be asked").await;
            }
            ServerEvent::Asks(_) if let Err(why) = check_question(&message.method_name(), message.params()) => {
                self.reply(why.to_response(message.id())).await;
            }
            ServerEvent::Asks(_) if self.questions.len() >= MAX_QUESTIONS => {
                self.modern.observer.emit(events::CallNotAsked { reason: "questions_of_call" });
                self.refuse(&message, "limit reached: too many questions of one call are open").await;
            }
            ServerEvent::Asks(asked) if !self.request.caller.client.can_be_asked(asked.needs) => {
                self.lacks.add(asked.needs);
                self.refuse(&message, "the client has not declared that it can be asked this").await;
            }
            ServerEvent::Asks(_) => {
                self.lacks.forget();
                // The answer that asks has it once more.
                let bytes = QUESTION_OVERHEAD + 2 * message.bytes().len();
                match self.modern.in_flight.keep(&self.request.caller.account, bytes) {
                    Ok(kept) => {
                        let (key, request) = (uuid::Uuid::new_v4().to_string(), message.compact());
                        self.questions.push(Question { key, request, _kept: kept });
                    }
                    Err(why) => {
                        self.modern.observer.emit(events::CallNotAsked { reason: "sessionless_requests" });
                        self.refuse(&message, &format!("limit reached: {why}")).await;
                    }
                }
            }
            ServerEvent::AnsweredHere(answer) => {
                if let Ok(asks) = Asks::of(&message)
                    && !self.request.caller.client.can_be_asked(asks)
                {
                    self.lacks.add(asks);
                }
                self.reply(answer).await;
            }
            ServerEvent::Withdraws(theirs) => {
                self.questions.retain(|question| question.request.id() != Some(&theirs));
            }
            ServerEvent::Changes if !self.passes() => self.session().push(message),
            ServerEvent::Says if self.hears(&message) => self.to.notify(message),
            // What a client of a modern server has subscribed to comes on the stream of its subscription.
            ServerEvent::Progress { .. } | ServerEvent::Says | ServerEvent::Changes => {}
            ServerEvent::Nothing => self.modern.observer.emit(events::MessageUnreadable),
        }
    }

    /// Answers a question with an error.
    pub(super) async fn refuse(&mut self, question: &Message, why: &str) {
        self.reply(question_refusal(question.id_to_answer(), why.to_owned())).await;
    }

    /// Sends the server the response to a question. The call goes on meanwhile, but it hears a flood of questions no
    /// faster than they are answered.
    pub(super) async fn reply(&mut self, response: Bytes) {
        let (session, headers) = (Arc::clone(self.session()), self.request.headers.clone());
        let replies = self.replies.get_or_insert_with(|| Arc::new(Semaphore::new(MAX_REPLIES)));
        let Ok(permit) = Arc::clone(replies).acquire_owned().await else { return };
        tokio::spawn(async move {
            // A server that does not take it has its own end of the call.
            let _ = session.reply(response, headers).await;
            drop(permit);
        });
    }

    /// Returns whether the client hears what the server says: log messages as severe as it has asked for with this
    /// request, and everything else of a modern server. It gets no log message whose level cannot be read.
    fn hears(&self, message: &Message) -> bool {
        if message.method() != Method::LogMessage {
            return self.passes();
        }
        let Some(least) = self.request.meta.log_level else { return false };
        let params = message.params().and_then(|params| Members::parse(params).ok());
        let level = params.and_then(|params| params.text("level")).and_then(|level| LogLevel::parse(&level));
        level.is_some_and(|level| level >= least)
    }
}
