//! What answers a client's request, whatever the transport: JSON, a stream, an acknowledgement, a relayed answer.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::oneshot;

use super::{
    Gate,
    native::{Edit, Tasklist},
    refuse::Refusal,
};
use crate::{
    dialect::legacy::{Acknowledgement, NoResult, Reply, RequestedTask},
    flow::Item,
    observe::{Who, events},
    route::{Route, route},
    session::{Full, Session, Source, StreamItem, StreamRoom, Tasks},
    upstream::{
        self, Call, CallOptions, Ending, Failure, HttpError, MAX_MESSAGE, NativeTasks, Purpose, Upstream, for_client,
        http::AnswerBody,
    },
    wire::{Message, Parts as Document, RpcError, relay::Relay},
};

/// An answer that is whole.
pub(super) enum Whole {
    /// A response.
    Document(Document),
    /// The upstream's refusal of who asks.
    Unauthorized(Box<HttpError>),
}

/// What answers a request.
pub(super) enum Answer {
    /// An answer that is ready.
    Whole(Whole),
    /// A response that acknowledges a task: its call starts when the sender is dropped, with the answer on its way.
    Acknowledgement(Document, oneshot::Sender<()>),
    /// A large response that is still arriving; only where the client's transport can relay it.
    Large(Relay, Bytes, AnswerBody),
    /// Messages, and the response as the last of them, in the room that was taken for them where a stream of its own
    /// carries them.
    Stream(Box<dyn Source>, Option<StreamRoom>),
}

impl Whole {
    pub(super) fn error(id: &str, error: &RpcError) -> Self {
        Self::Document(error.to_response(Some(id)).into())
    }
}

impl From<Whole> for Answer {
    fn from(whole: Whole) -> Self {
        Self::Whole(whole)
    }
}

impl Gate {
    /// Answers a request in a session. `apart`: the answer goes out on its own, so that it may need a stream, and a large
    /// one may be handed over while it arrives.
    pub(super) async fn request(
        self: &Arc<Self>,
        session: &Arc<Session>,
        message: Message,
        headers: HeaderMap,
        apart: bool,
    ) -> Result<Answer, Refusal> {
        let route = route(&message, session.tasks, &session.caller.upstream.policy);
        if session.tasks == Tasks::Both {
            match Box::pin(self.native(session, &message, &headers, &route)).await {
                Ok(None) => {}
                Ok(Some((message, edit))) => return self.pass(session, message, headers, (apart, edit)).await,
                Err(Failure::SessionLost) => return Err(Box::pin(self.lost(session)).await.answering(message.id())),
                Err(failure) => {
                    let id = message.id_to_answer();
                    return Ok(self.failed(&session.caller.upstream, Some(&session.caller.who), id, failure).into());
                }
            }
        }
        Self::count(session, &route).map_err(|refusal| refusal.answering(message.id()))?;
        let replied = match route {
            Route::Pass | Route::ToolsList | Route::Cancelled => {
                let edit = Edit::of(session, &message);
                return self.pass(session, message, headers, (apart, edit)).await;
            }
            Route::RunAsTask { name, tool, ttl } => {
                let id = message.id_to_answer().to_owned();
                if session.is_lost() {
                    return Err(Box::pin(self.lost(session)).await.answering(Some(&id)));
                }
                let wanted = RequestedTask { name, tool, ttl, announced: session.caller.upstream.status_notifications };
                let created = Box::pin(self.legacy.create(session, message, headers, wanted));
                return Ok(match created.await {
                    Ok(Acknowledgement { response, start }) => Answer::Acknowledgement(response, start),
                    Err(error) => Whole::error(&id, &error).into(),
                });
            }
            Route::Get => self.legacy.get(session, &message).await,
            Route::Result => self.legacy.result(session, message.clone()).await,
            Route::List if session.tasks == Tasks::Both => match Box::pin(self.tasklist(session, &message)).await {
                Ok(Tasklist::Joint(message, edit)) => return self.pass(session, message, headers, (apart, edit)).await,
                Ok(Tasklist::Own(reply)) => Ok(reply),
                Err(none) => Err(none),
            },
            Route::List => self.legacy.list(&session.caller.owner, &message).await,
            Route::Cancel => self.legacy.cancel(session, &message).await,
            Route::Refuse(error) => Err(error.into()),
        };
        Ok(match replied {
            Ok(Reply::Ready(document)) => Whole::Document(document).into(),
            Ok(Reply::Wait(waiter)) => match room(session, apart) {
                Ok(room) => Answer::Stream(waiter, room),
                Err(full) => Whole::error(message.id_to_answer(), &RpcError::internal(full.to_string())).into(),
            },
            // It has expired since it was looked for.
            Err(NoResult::NotFound(_)) if session.tasks == Tasks::Both && !session.is_lost() => {
                let edit = Edit::of(session, &message);
                return self.pass(session, message, headers, (apart, edit)).await;
            }
            Err(NoResult::NotFound(task)) => {
                let answered = Box::pin(self.not_found(session, message.id_to_answer(), task)).await;
                answered.map_err(|refusal| refusal.answering(message.id()))?.into()
            }
            Err(NoResult::Error(error)) => Whole::error(message.id_to_answer(), &error).into(),
        })
    }

    /// A request for the upstream: its answer as it comes, JSON as JSON and a stream as a stream.
    async fn pass(
        self: &Arc<Self>,
        session: &Arc<Session>,
        message: Message,
        headers: HeaderMap,
        (apart, edit): (bool, Edit),
    ) -> Result<Answer, Refusal> {
        let id: Box<str> = message.id_to_answer().into();
        if session.is_lost() {
            return Err(Box::pin(self.lost(session)).await.answering(Some(&id)));
        }
        let room = match room(session, apart) {
            Ok(room) => room,
            Err(full) => return Ok(Whole::error(&id, &RpcError::internal(full.to_string())).into()),
        };
        let relay = apart && edit.relays();
        let options = CallOptions {
            purpose: Purpose::Foreground,
            max_answer: MAX_MESSAGE,
            relay,
            native: session.tasks.are_native(),
        };
        let call = match session.upstream_session.call(&message, headers, options) {
            Ok(call) => call,
            Err(error) => return Ok(Whole::error(&id, &error).into()),
        };
        drop(message);
        // In use from here on: a session is not idle while its client waits.
        let in_use = session.hold();
        let gate = Arc::clone(self);
        let pauses = session.streams().primes();
        let (upstream, native) = (Arc::clone(&session.caller.upstream), Arc::clone(session.native()));
        let who = Arc::clone(&session.caller.who);
        let (first, last) = (None, Last::NotYet);
        let mut passing = Passing { gate, upstream, who, call, native, id, edit, pauses, first, last };
        let first = passing.call.exchange.next().await;
        match first {
            Some(Item::End(ending)) if !passing.call.exchange.streams() => {
                passing.answer(ending, in_use.get(), room).await
            }
            // A stream in any other case: in a silence, so that heartbeats keep the connection open.
            first => {
                // A client that reads slowly must not slow down the upstream: its outbox drops what may be dropped.
                passing.call.exchange.detach();
                passing.first = first;
                Ok(Answer::Stream(Box::new(passing), room))
            }
        }
    }

    /// The answer to a request of `who`, or to a handshake with that upstream, which failed.
    pub(super) fn failed(&self, upstream: &Upstream, who: Option<&Who>, id: &str, failure: Failure) -> Whole {
        let upstream = upstream.id.as_str();
        self.observer.emit(events::ExchangeFailed { upstream, who, task: None, cause: failure.cause() });
        match failure {
            Failure::Http(error) if error.is_authorization() => Whole::Unauthorized(error),
            failure => Whole::error(id, &RpcError::from(&failure)),
        }
    }
}

/// Takes room for the stream that an answer may need where it goes out `apart` from others.
fn room(session: &Session, apart: bool) -> Result<Option<StreamRoom>, Full> {
    apart.then(|| session.streams().reserve()).transpose()
}

/// A plain request in flight.
struct Passing {
    gate: Arc<Gate>,
    upstream: Arc<Upstream>,
    who: Arc<Who>,
    call: Call,
    /// The tasks that the upstream has itself.
    native: Arc<NativeTasks>,
    id: Box<str>,
    edit: Edit,
    /// Whether the client may be told to come back later.
    pauses: bool,
    /// What came before it was known that the answer is a stream.
    first: Option<Item<Ending>>,
    last: Last,
}

/// The response of a stream.
enum Last {
    NotYet,
    Arriving(Pin<Box<dyn Future<Output = Result<Message, Failure>> + Send>>),
    Sent,
}

impl Passing {
    /// The answer of an upstream that does not stream.
    async fn answer(self, ending: Ending, session: &Arc<Session>, room: Option<StreamRoom>) -> Result<Answer, Refusal> {
        match ending {
            Ok(upstream::Answer::Whole(response)) => Ok(Whole::Document(self.finish(&response)).into()),
            Ok(upstream::Answer::Large { first, rest }) => {
                self.edit.relayed(&self.native);
                let relay = Relay::new(self.call.exchange.number, Bytes::copy_from_slice(self.id.as_bytes()));
                Ok(Answer::Large(relay, first, rest))
            }
            Err(failure) if let Some(own) = self.instead(&failure) => Ok(Whole::Document(own).into()),
            Err(Failure::SessionLost) => Err(Box::pin(self.gate.lost(session)).await.answering(Some(&self.id))),
            // No response to a request that was cancelled; the stream that could have carried it just ends.
            Err(Failure::Cancelled) => Ok(Answer::Stream(Box::new(Self { last: Last::Sent, ..self }), room)),
            Err(failure) => Ok(self.gate.failed(&self.upstream, Some(&self.who), &self.id, failure).into()),
        }
    }

    /// The last document of a stream: a client that got none would wait for ever.
    fn last(&self, response: Result<Message, Failure>) -> Option<Bytes> {
        match response {
            Ok(response) => Some(self.finish(&response).into_bytes()),
            Err(Failure::Cancelled) => None,
            Err(failure) if let Some(own) = self.instead(&failure) => Some(own.into_bytes()),
            Err(failure) => {
                let (upstream, cause) = (self.upstream.id.as_str(), failure.cause());
                let who = Some(&*self.who);
                self.gate.observer.emit(events::ExchangeFailed { upstream, who, task: None, cause });
                Some(RpcError::from(&failure).to_response(Some(&self.id)))
            }
        }
    }

    /// The response with the client's id and what taskgate has to say in it.
    fn finish(&self, response: &Message) -> Document {
        let Upstream { id, policy, hints, .. } = &*self.upstream;
        if let Edit::Tools(page) = &self.edit {
            hints.tools(id, policy, page.is_some(), response, &self.gate.observer);
        }
        self.edit.finish(response, &self.id, policy, &self.native)
    }

    /// What taskgate can answer by itself.
    fn instead(&self, failure: &Failure) -> Option<Document> {
        match failure {
            Failure::Cancelled => None,
            // Who asks may not ask any more.
            Failure::Http(error) if error.is_authorization() => None,
            Failure::SessionLost | Failure::ProcessEnded(_) => self.edit.instead(&self.native, false),
            _ => self.edit.instead(&self.native, true),
        }
    }
}

impl Source for Passing {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        loop {
            match &mut self.last {
                Last::NotYet => {}
                Last::Arriving(response) => {
                    let response = ready!(response.as_mut().poll(cx));
                    self.last = Last::Sent;
                    return Poll::Ready(self.last(response).map(StreamItem::Document));
                }
                Last::Sent => return Poll::Ready(None),
            }
            let item = match self.first.take() {
                Some(item) => Some(item),
                None => ready!(self.call.exchange.poll_next(cx)),
            };
            match item {
                Some(Item::Message(message)) => {
                    if let Some(document) = for_client(&message, &self.call) {
                        return Poll::Ready(Some(StreamItem::Document(document)));
                    }
                }
                Some(Item::Pause(pause)) if self.pauses => return Poll::Ready(Some(StreamItem::Pause(pause))),
                Some(Item::Pause(_) | Item::Silence) => {}
                Some(Item::End(ending)) => self.last = Last::Arriving(Box::pin(async move { ending?.whole().await })),
                None => self.last = Last::Sent,
            }
        }
    }
}
