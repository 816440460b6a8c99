//! Answers a client's request, whatever the transport: here, or with what the upstream answers.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;

use super::{
    Dispatcher,
    hosts::{HostCall, room},
    native::{self, Edit, Tasklist},
    too_many_requests,
};
use crate::{
    dialect::{
        legacy::{Acknowledgement, NoResult, Reply, RequestedTask},
        tools::{Due, PlainCall},
    },
    flow::Item,
    gate::{
        delivery::{Carrier, Delivery, Whole},
        refuse::Refusal,
    },
    observe::{Who, events},
    route::{Route, route},
    session::{Session, Source, StreamItem, StreamRoom, Tasks},
    upstream::{
        Call, CallOptions, ExchangeEnd, Failure, MAX_MESSAGE, NativeTasks, Purpose, Upstream, UpstreamResponse,
        for_client,
    },
    wire::{Message, Method, Parts as Document, RpcError, relay::Relay},
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
        let policy = &session.caller.upstream.policy;
        let mut host = None;
        if policy.helps_hosts() && message.method() == Method::ToolsCall {
            match Box::pin(self.host_call(session, &message, &headers, carrier)).await {
                HostCall::Answered(answer) => return Ok(answer),
                HostCall::Goes(help) => host = help,
            }
        }
        let route = route(&message, session.tasks, policy);
        if session.tasks == Tasks::Both {
            match Box::pin(native::of_server(&self.legacy, session, &message, &headers, &route)).await {
                Ok(None) => {}
                Ok(Some((message, edit))) => return self.pass(session, message, headers, carrier, edit, None).await,
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
                return self.pass(session, message, headers, carrier, edit, host).await;
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
            Route::TasksGet => self.legacy.get(session, &message).await,
            Route::TasksResult => self.legacy.result(session, message.clone()).await,
            Route::TasksList if session.tasks == Tasks::Both => {
                match Box::pin(native::tasklist(&self.legacy, session, &message)).await {
                    Ok(Tasklist::Joint(message, edit)) => {
                        return self.pass(session, *message, headers, carrier, edit, None).await;
                    }
                    Ok(Tasklist::Own(reply)) => Ok(reply),
                    Err(none) => Err(none),
                }
            }
            Route::TasksList => self.legacy.list(&session.caller.owner, &message).await,
            Route::TasksCancel => self.legacy.cancel(session, &message).await,
            Route::Refuse(error) => Err(error.into()),
        };
        Ok(match replied {
            Ok(Reply::Ready(document)) => Whole::Document(document).into(),
            Ok(Reply::Wait(waiter)) => match room(session, carrier) {
                Ok(room) => Delivery::Stream { source: waiter, room },
                Err(full) => Whole::error(message.id_to_answer(), &full).into(),
            },
            // It has expired since it was looked for.
            Err(NoResult::NotFound(_)) if session.tasks == Tasks::Both && !session.is_lost() => {
                let edit = Edit::of(session, &message);
                return self.pass(session, message, headers, carrier, edit, None).await;
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
        help: Option<Box<PlainCall>>,
    ) -> Result<Delivery, Refusal> {
        let id: Box<str> = message.id_to_answer().into();
        if session.is_lost() {
            return Err(Box::pin(self.lifecycle.lost(session)).await.answering(Some(&id)));
        }
        let room = match room(session, carrier) {
            Ok(room) => room,
            Err(full) => return Ok(Whole::error(&id, &full).into()),
        };
        let relay = carrier == Carrier::Response && edit.relays();
        let options = CallOptions {
            purpose: Purpose::Foreground,
            max_answer: MAX_MESSAGE,
            relay,
            native: session.tasks.are_native(),
            wants_progress: help.as_ref().is_some_and(|help| help.may_become_job()),
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
        let (call, first, last) = (Some(call), None, Last::NotYet);
        // Boxed once, as it is moved from here on.
        let mut passing =
            Box::new(Passing { dispatcher, upstream, who, call, help, native, id, edit, pauses, first, last });
        let first = passing.first().await;
        match first {
            Some(Item::End(ending)) if !passing.streams() => passing.answer(ending, in_use.get(), room).await,
            // A stream in any other case: in a silence, so that heartbeats keep the connection open.
            first => {
                // A client that reads slowly must not slow down the upstream: its outbox drops what may be dropped.
                passing.call.iter_mut().for_each(|call| call.exchange.detach());
                passing.first = first;
                Ok(Delivery::Stream { source: passing, room })
            }
        }
    }
}

/// A plain request in flight.
struct Passing {
    dispatcher: Arc<Dispatcher>,
    upstream: Arc<Upstream>,
    who: Arc<Who>,
    /// The call; `None` once it is a job.
    call: Option<Call>,
    /// What a call of a host gets that may be too impatient for it.
    help: Option<Box<PlainCall>>,
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
    /// Waits for what comes first, or until the host has to be helped.
    async fn first(&mut self) -> Option<Item<ExchangeEnd>> {
        if let (Some(help), Some(call)) = (&mut self.help, &self.call) {
            help.begin(call);
        }
        poll_fn(|cx| {
            let polled = self.poll_call(cx);
            if polled.is_pending()
                && let Some(help) = &mut self.help
                && help.poll_due(cx).is_ready()
            {
                return Poll::Ready(Some(Item::Silence));
            }
            polled
        })
        .await
    }

    fn poll_call(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item<ExchangeEnd>>> {
        self.call.as_mut().map_or(Poll::Ready(None), |call| call.exchange.poll_next(cx))
    }

    fn streams(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.exchange.streams())
    }

    /// Polls for what the host is helped with. Returns its heartbeat, or the response of a call that has become a job.
    fn poll_help(&mut self, cx: &mut Context<'_>, is_idle: bool) -> Option<Bytes> {
        let is_cancelled = |call: &Call| call.exchange.is_cancelled();
        if self.help.is_some() && self.call.as_ref().is_some_and(is_cancelled) {
            // Its client does not wait for it any more.
            self.help = None;
        }
        let help = self.help.as_mut()?;
        match help.poll_next(cx, is_idle) {
            Poll::Ready(Due::Heartbeat(heartbeat)) => Some(heartbeat),
            Poll::Ready(Due::Job(job)) => {
                let response = help.becomes(self.call.take()?, *job);
                self.last = Last::Sent;
                Some(response.into_bytes())
            }
            Poll::Pending => None,
        }
    }

    /// Returns what the client gets of a message of the server.
    fn relay(&mut self, message: &Message) -> Option<Bytes> {
        let call = self.call.as_ref()?;
        match &mut self.help {
            Some(help) => help.relay(call, message),
            None => for_client(message, call),
        }
    }

    /// Delivers the answer of an upstream that does not stream.
    async fn answer(
        mut self: Box<Self>,
        ending: ExchangeEnd,
        session: &Arc<Session>,
        room: Option<StreamRoom>,
    ) -> Result<Delivery, Refusal> {
        match ending {
            Ok(UpstreamResponse::Whole(response)) => Ok(Whole::Document(self.finish(&response)).into()),
            Ok(UpstreamResponse::Large { first, rest }) => {
                self.edit.relayed(&self.native);
                let number = self.call.as_ref().map_or(0, |call| call.exchange.number);
                let relay = Relay::new(number, Bytes::copy_from_slice(self.id.as_bytes()));
                Ok(Delivery::Large { relay, first, rest })
            }
            Err(failure) if let Some(own) = self.instead(&failure) => Ok(Whole::Document(own).into()),
            Err(Failure::SessionLost) => {
                let unrun = match &mut self.call {
                    Some(call) => call.exchange.was_refused().await,
                    None => true,
                };
                let refusal = Box::pin(self.dispatcher.lifecycle.lost(session)).await;
                if unrun {
                    return Err(refusal.answering(Some(&self.id)));
                }
                // 404 would have the client begin anew and repeat a call that may have run.
                let (observer, who) = (&self.dispatcher.observer, Some(&*self.who));
                Ok(Whole::failed(observer, &self.upstream, who, &self.id, Failure::SessionLost).into())
            }
            // No response to a request that was cancelled; the stream that could have carried it just ends.
            Err(Failure::Cancelled) => {
                self.last = Last::Sent;
                Ok(Delivery::Stream { source: self, room })
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
            Err(failure) => Some(self.failed(&failure)),
        }
    }

    /// Returns the response with the client's id and with what taskgate adds to it.
    fn finish(&self, response: &Message) -> Document {
        let Upstream { id, policy, hints, .. } = &*self.upstream;
        if let Edit::Tools(page) = &self.edit {
            hints.tools(id, policy, page.both.is_some(), response, &self.dispatcher.observer);
        }
        self.edit
            .finish(response, &self.id, policy, &self.native)
            .unwrap_or_else(|failure| self.failed(&failure).into())
    }

    /// Notes a failure of the upstream, and returns the response that tells it.
    fn failed(&self, failure: &Failure) -> Bytes {
        let (upstream, cause) = (self.upstream.id.as_str(), failure.cause());
        let who = Some(&*self.who);
        self.dispatcher.observer.emit(events::ExchangeFailed { upstream, who, task: None, cause });
        RpcError::from(failure).to_response(Some(&self.id))
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
            if self.first.is_none()
                && let Some(document) = self.poll_help(cx, false)
            {
                return Poll::Ready(Some(StreamItem::Document(document)));
            }
            let polled = match self.first.take() {
                Some(first) => Poll::Ready(Some(first)),
                None => self.poll_call(cx),
            };
            let Poll::Ready(item) = polled else {
                let document = self.poll_help(cx, true);
                return document.map_or(Poll::Pending, |document| Poll::Ready(Some(StreamItem::Document(document))));
            };
            match item {
                Some(Item::Message(message)) => {
                    if let Some(document) = self.relay(&message) {
                        return Poll::Ready(Some(StreamItem::Document(document)));
                    }
                }
                Some(Item::Pause(pause)) if self.pauses => return Poll::Ready(Some(StreamItem::Pause(pause))),
                Some(Item::Pause(_) | Item::Silence) => {}
                Some(Item::End(ending)) => {
                    // A try to become a job is over.
                    self.help = None;
                    self.last = Last::Arriving(Box::pin(async move { ending?.whole().await }));
                }
                None => self.last = Last::Sent,
            }
        }
    }
}
