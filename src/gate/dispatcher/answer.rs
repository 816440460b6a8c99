//! Answers a client's request, whatever the transport: here, or with what the upstream answers.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;

use super::{
    Dispatcher,
    native::{self, Edit, Tasklist},
    too_many_requests,
};
use crate::{
    dialect::legacy::{Acknowledgement, NoResult, Reply, RequestedTask},
    flow::Item,
    gate::{
        delivery::{Carrier, Delivery, Whole},
        refuse::Refusal,
    },
    observe::{Who, events},
    route::{Route, route},
    session::{Full, Session, Source, StreamItem, StreamRoom, Tasks},
    upstream::{
        Call, CallOptions, ExchangeEnd, Failure, MAX_MESSAGE, NativeTasks, Purpose, Upstream, UpstreamResponse,
        for_client,
    },
    wire::{Message, Parts as Document, RpcError, relay::Relay},
};

impl Dispatcher {
    /// Answers a request in a session, in a form that `carrier` can take.
    pub(in crate::gate) async fn request(
        self: &Arc<Self>,
        session: &Arc<Session>,
        message: Message,
        headers: HeaderMap,
        carrier: Carrier,
    ) -> Result<Delivery, Refusal> {
        let route = route(&message, session.tasks, &session.caller.upstream.policy);
        if session.tasks == Tasks::Both {
            match Box::pin(native::of_server(&self.legacy, session, &message, &headers, &route)).await {
                Ok(None) => {}
                Ok(Some((message, edit))) => return self.pass(session, message, headers, carrier, edit).await,
                Err(Failure::SessionLost) => {
                    return Err(Box::pin(self.lifecycle.lost(session)).await.answering(message.id()));
                }
                Err(failure) => {
                    let id = message.id_to_answer();
                    return Ok(Whole::failed(
                        &self.observer,
                        &session.caller.upstream,
                        Some(&session.caller.who),
                        id,
                        failure,
                    )
                    .into());
                }
            }
        }
        too_many_requests::count(session, &route).map_err(|refusal| refusal.answering(message.id()))?;
        let replied = match route {
            Route::Pass | Route::ToolsList | Route::Cancelled => {
                let edit = Edit::of(session, &message);
                return self.pass(session, message, headers, carrier, edit).await;
            }
            Route::RunAsTask { name, tool, ttl } => {
                let id = message.id_to_answer().to_owned();
                if session.is_lost() {
                    return Err(Box::pin(self.lifecycle.lost(session)).await.answering(Some(&id)));
                }
                let wanted = RequestedTask { name, tool, ttl, announced: session.caller.upstream.status_notifications };
                let created = Box::pin(self.legacy.create(session, message, headers, wanted));
                return Ok(match created.await {
                    Ok(Acknowledgement { response: document, start }) => Delivery::Acknowledgement { document, start },
                    Err(error) => Whole::error(&id, &error).into(),
                });
            }
            Route::Get => self.legacy.get(session, &message).await,
            Route::Result => self.legacy.result(session, message.clone()).await,
            Route::List if session.tasks == Tasks::Both => {
                match Box::pin(native::tasklist(&self.legacy, session, &message)).await {
                    Ok(Tasklist::Joint(message, edit)) => {
                        return self.pass(session, *message, headers, carrier, edit).await;
                    }
                    Ok(Tasklist::Own(reply)) => Ok(reply),
                    Err(none) => Err(none),
                }
            }
            Route::List => self.legacy.list(&session.caller.owner, &message).await,
            Route::Cancel => self.legacy.cancel(session, &message).await,
            Route::Refuse(error) => Err(error.into()),
        };
        Ok(match replied {
            Ok(Reply::Ready(document)) => Whole::Document(document).into(),
            Ok(Reply::Wait(waiter)) => match room(session, carrier) {
                Ok(room) => Delivery::Stream { source: waiter, room },
                Err(full) => Whole::error(message.id_to_answer(), &RpcError::internal(full.to_string())).into(),
            },
            // It has expired since it was looked for.
            Err(NoResult::NotFound(_)) if session.tasks == Tasks::Both && !session.is_lost() => {
                let edit = Edit::of(session, &message);
                return self.pass(session, message, headers, carrier, edit).await;
            }
            Err(NoResult::NotFound(task)) => {
                let answered =
                    Box::pin(too_many_requests::task_not_found(&self.observer, session, message.id_to_answer(), task))
                        .await;
                answered.map_err(|refusal| refusal.answering(message.id()))?.into()
            }
            Err(NoResult::Error(error)) => Whole::error(message.id_to_answer(), &error).into(),
        })
    }

    /// Passes a request to the upstream, and delivers the answer as it comes: JSON as JSON and a stream as a stream.
    async fn pass(
        self: &Arc<Self>,
        session: &Arc<Session>,
        message: Message,
        headers: HeaderMap,
        carrier: Carrier,
        edit: Edit,
    ) -> Result<Delivery, Refusal> {
        let id: Box<str> = message.id_to_answer().into();
        if session.is_lost() {
            return Err(Box::pin(self.lifecycle.lost(session)).await.answering(Some(&id)));
        }
        let room = match room(session, carrier) {
            Ok(room) => room,
            Err(full) => return Ok(Whole::error(&id, &RpcError::internal(full.to_string())).into()),
        };
        let relay = carrier == Carrier::Response && edit.relays();
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
        let dispatcher = Arc::clone(self);
        let pauses = session.streams().primes();
        let (upstream, native) = (Arc::clone(&session.caller.upstream), Arc::clone(session.native()));
        let who = Arc::clone(&session.caller.who);
        let (first, last) = (None, Last::NotYet);
        let mut passing = Passing { dispatcher, upstream, who, call, native, id, edit, pauses, first, last };
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
                Ok(Delivery::Stream { source: Box::new(passing), room })
            }
        }
    }
}

/// Takes room for the stream that an answer may need where it goes out in a response of its own.
fn room(session: &Session, carrier: Carrier) -> Result<Option<StreamRoom>, Full> {
    (carrier == Carrier::Response).then(|| session.streams().reserve()).transpose()
}

/// A plain request in flight.
struct Passing {
    dispatcher: Arc<Dispatcher>,
    upstream: Arc<Upstream>,
    who: Arc<Who>,
    call: Call,
    /// The tasks that the upstream has itself.
    native: Arc<NativeTasks>,
    id: Box<str>,
    edit: Edit,
    /// Whether the client may be told to come back later.
    pauses: bool,
    /// What came first, before the answer was known to be a stream.
    first: Option<Item<ExchangeEnd>>,
    last: Last,
}

/// The response of a stream.
enum Last {
    NotYet,
    Arriving(Pin<Box<dyn Future<Output = Result<Message, Failure>> + Send>>),
    Sent,
}

impl Passing {
    /// Delivers the answer of an upstream that does not stream.
    async fn answer(
        self,
        ending: ExchangeEnd,
        session: &Arc<Session>,
        room: Option<StreamRoom>,
    ) -> Result<Delivery, Refusal> {
        match ending {
            Ok(UpstreamResponse::Whole(response)) => Ok(Whole::Document(self.finish(&response)).into()),
            Ok(UpstreamResponse::Large { first, rest }) => {
                self.edit.relayed(&self.native);
                let relay = Relay::new(self.call.exchange.number, Bytes::copy_from_slice(self.id.as_bytes()));
                Ok(Delivery::Large { relay, first, rest })
            }
            Err(failure) if let Some(own) = self.instead(&failure) => Ok(Whole::Document(own).into()),
            Err(Failure::SessionLost) => {
                Err(Box::pin(self.dispatcher.lifecycle.lost(session)).await.answering(Some(&self.id)))
            }
            // No response to a request that was cancelled; the stream that could have carried it just ends.
            Err(Failure::Cancelled) => {
                Ok(Delivery::Stream { source: Box::new(Self { last: Last::Sent, ..self }), room })
            }
            Err(failure) => {
                Ok(Whole::failed(&self.dispatcher.observer, &self.upstream, Some(&self.who), &self.id, failure).into())
            }
        }
    }

    /// Returns the last document of a stream. A client that got none would wait for ever.
    fn last(&self, response: Result<Message, Failure>) -> Option<Bytes> {
        match response {
            Ok(response) => Some(self.finish(&response).into_bytes()),
            Err(Failure::Cancelled) => None,
            Err(failure) if let Some(own) = self.instead(&failure) => Some(own.into_bytes()),
            Err(failure) => {
                let (upstream, cause) = (self.upstream.id.as_str(), failure.cause());
                let who = Some(&*self.who);
                self.dispatcher.observer.emit(events::ExchangeFailed { upstream, who, task: None, cause });
                Some(RpcError::from(&failure).to_response(Some(&self.id)))
            }
        }
    }

    /// Returns the response with the client's id and with what taskgate adds to it.
    fn finish(&self, response: &Message) -> Document {
        let Upstream { id, policy, hints, .. } = &*self.upstream;
        if let Edit::Tools(page) = &self.edit {
            hints.tools(id, policy, page.is_some(), response, &self.dispatcher.observer);
        }
        self.edit.finish(response, &self.id, policy, &self.native)
    }

    /// Returns what taskgate can answer by itself.
    fn instead(&self, failure: &Failure) -> Option<Document> {
        match failure {
            Failure::Cancelled => None,
            // The client may not ask any more.
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
