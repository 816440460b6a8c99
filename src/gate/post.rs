//! POST: one message of a client (section "Sending Messages to the Server").

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::body::Incoming;

use super::{
    Body, Gate, Response,
    headers::{SESSION_ID, accepts_answers, end_to_end, is_json, speaks_version},
    intake,
    refuse::{Refusal, json, rpc_error},
    sse::{self, Events},
};
use crate::{
    config::Policy,
    observe::events,
    route::{Route, is_modern, route, with_task_support},
    session::{self, Call, CallOptions, Opening, Session, Use, for_client, with_id},
    task::Reply,
    upstream::{Answer, Ending, Failure, HttpError, Item, MAX_MESSAGE, Purpose},
    wire::{
        Kind, Message, Method, Parts as Document, RpcError,
        depth::{MAX_DEPTH, nests_too_deep},
        relay::Relay,
    },
};

impl Gate {
    pub(super) async fn post(
        self: &Arc<Self>,
        upstream: usize,
        principal: Option<Arc<str>>,
        headers: HeaderMap,
        body: Incoming,
    ) -> Result<Response, Refusal> {
        is_json(&headers)?;
        accepts_answers(&headers)?;
        speaks_version(&headers)?;
        let body = intake::read(body, self.max_body).await?;
        if nests_too_deep(&body) {
            return Err(Refusal::too_deep(MAX_DEPTH));
        }
        let message = Message::parse(body).map_err(Refusal::malformed)?;
        if is_modern(&message) {
            return Err(Refusal::modern().answering(message.id()));
        }
        let initialize = message.kind() == Kind::Request && message.method() == Method::Initialize;
        if initialize && !headers.contains_key(SESSION_ID) {
            // Rare paths are boxed, so that every request's future stays small.
            return Ok(Box::pin(self.initialize(upstream, principal, &message, headers)).await);
        }
        let session = self.session(upstream, principal.as_ref(), &headers);
        let session = session.map_err(|refusal| refusal.answering(message.id()))?;
        let headers = end_to_end(headers);
        match message.kind() {
            Kind::Request => self.request(&session, message, headers).await,
            Kind::Notification | Kind::Response => Box::pin(self.accept(&session, message, headers)).await,
        }
    }

    async fn initialize(
        &self,
        upstream: usize,
        principal: Option<Arc<str>>,
        message: &Message,
        headers: HeaderMap,
    ) -> Response {
        let id = message.id().unwrap_or("null");
        let room = match self.sessions.room() {
            Ok(room) => room,
            Err(full) => return rpc_error(id, &RpcError::internal(full.to_string())),
        };
        let configured = &self.upstreams[upstream];
        let opening = Opening {
            server: &configured.server,
            upstream,
            native: configured.native,
            principal,
            observer: &self.observer,
        };
        let opened = self.sessions.unless_closed(opening.open(message, end_to_end(headers))).await;
        let opened = match opened.unwrap_or(Err(session::Refusal::Failed(Failure::Stopping))) {
            Ok(opened) => opened,
            Err(session::Refusal::Invalid(error)) => return rpc_error(id, &error),
            Err(session::Refusal::Upstream(answer)) => return json(answer),
            Err(session::Refusal::Failed(failure)) => return self.failed(id, &failure),
        };
        let session = opened.session;
        if let Err(full) = room.fill(Arc::clone(&session)) {
            session.end(HeaderMap::new());
            return rpc_error(id, &RpcError::internal(full.to_string()));
        }
        self.observer.emit(events::SessionOpened {
            path: &configured.path,
            version: session.version.as_str(),
            tasks: session.tasks == session::Tasks::Served,
        });
        let mut response = if opened.streams {
            let answer = stream::iter([opened.answer.into_bytes()]);
            sse::response(Events::new(answer, session.hold()))
        } else {
            json(opened.answer)
        };
        if let Ok(id) = HeaderValue::from_str(&session.id.to_string()) {
            response.headers_mut().insert(SESSION_ID, id);
        }
        response
    }

    /// A notification, or a response to a request of the server: 202 once the upstream has it.
    async fn accept(&self, session: &Arc<Session>, message: Message, headers: HeaderMap) -> Result<Response, Refusal> {
        let policy = &self.upstreams[session.upstream].policy;
        if session.is_lost() {
            return Err(self.lost(session).await);
        }
        let cancelled = matches!(route(&message, session.tasks, policy), Route::Cancelled);
        let sender = Arc::clone(session);
        // A client that disconnects now has sent its message all the same.
        let sent = tokio::spawn(async move {
            if cancelled { sender.cancel(&message, headers).await } else { sender.forward(&message, headers).await }
        });
        match sent.await.unwrap_or(Err(Failure::Abandoned)) {
            Err(Failure::SessionLost | Failure::ProcessEnded(_)) => return Err(self.lost(session).await),
            Err(Failure::Http(error)) if error.is_authorization() => return Ok(passed_on(&error)),
            // Clients give up the whole session over any other status for a message that expects no answer.
            Err(failure) => self.observer.emit(events::ExchangeFailed { failure: &failure }),
            Ok(()) => {}
        }
        let mut response = Response::new(Body::default());
        *response.status_mut() = StatusCode::ACCEPTED;
        Ok(response)
    }

    async fn request(
        self: &Arc<Self>,
        session: &Arc<Session>,
        message: Message,
        headers: HeaderMap,
    ) -> Result<Response, Refusal> {
        let policy = &self.upstreams[session.upstream].policy;
        let owner = &session.owner;
        let replied = match route(&message, session.tasks, policy) {
            Route::Pass | Route::Cancelled => return self.pass(session, message, headers, false).await,
            Route::ToolsList => return self.pass(session, message, headers, true).await,
            Route::RunAsTask { name, tool, ttl } => {
                let id = message.id().unwrap_or("null").to_owned();
                if session.is_lost() {
                    return Err(Box::pin(self.lost(session)).await.answering(Some(&id)));
                }
                let created = Box::pin(self.engine.create(session, message, headers, (name, tool, ttl)));
                return Ok(match created.await {
                    Ok(created) => json(Body::with_signal(created.answer, created.start)),
                    Err(error) => rpc_error(&id, &error),
                });
            }
            Route::Get => self.engine.get(owner, &message).await,
            Route::Result => self.engine.result(owner, message.clone()).await,
            Route::List => self.engine.list(owner, &message).await,
            Route::Cancel => self.engine.cancel(owner, &message).await,
            Route::Refuse(error) => Err(error),
        };
        Ok(match replied {
            Ok(Reply::Ready(document)) => json(document),
            Ok(Reply::Wait(waiter)) => {
                let answer = stream::once(async move { waiter.answer().await.into_bytes() });
                sse::response(Events::new(answer, session.hold()))
            }
            Err(error) => rpc_error(message.id().unwrap_or("null"), &error),
        })
    }

    /// A request for the upstream: its answer as it comes, JSON as JSON and a stream as a stream.
    async fn pass(
        self: &Arc<Self>,
        session: &Arc<Session>,
        message: Message,
        headers: HeaderMap,
        lists_tools: bool,
    ) -> Result<Response, Refusal> {
        let id: Box<str> = message.id().unwrap_or("null").into();
        if session.is_lost() {
            return Err(Box::pin(self.lost(session)).await.answering(Some(&id)));
        }
        let options = CallOptions { purpose: Purpose::Foreground, max_answer: MAX_MESSAGE, relay: !lists_tools };
        let call = match session.call(&message, headers, options) {
            Ok(call) => call,
            Err(too_many) => return Ok(rpc_error(&id, &RpcError::internal(too_many.to_string()))),
        };
        drop(message);
        // In use from here on: a session is not idle while its client waits.
        let mut passing = Passing { gate: Arc::clone(self), session: session.hold(), call, id, lists_tools };
        let first = passing.call.exchange.next().await;
        match first {
            Some(Item::End(ending)) if !passing.call.exchange.streams() => passing.answer(ending).await,
            // A stream in any other case: in a silence, so that heartbeats keep the connection open.
            first => Ok(passing.stream(first)),
        }
    }

    fn failed(&self, id: &str, failure: &Failure) -> Response {
        self.observer.emit(events::ExchangeFailed { failure });
        match failure {
            Failure::Http(error) if error.is_authorization() => passed_on(error),
            failure => rpc_error(id, &failure.into()),
        }
    }
}

/// A plain request in flight.
struct Passing {
    gate: Arc<Gate>,
    session: Use,
    call: Call,
    id: Box<str>,
    lists_tools: bool,
}

impl Passing {
    /// The answer of an upstream that does not stream.
    async fn answer(self, ending: Ending) -> Result<Response, Refusal> {
        match ending {
            Ok(Answer::Whole(response)) => Ok(json(self.finish(&response))),
            Ok(Answer::Large { first, rest }) => {
                let relay = Relay::new(self.call.exchange.number, Bytes::copy_from_slice(self.id.as_bytes()));
                let relayed = Body::relayed(relay, &first, rest).map(json);
                Ok(relayed
                    .unwrap_or_else(|foreign| self.gate.failed(&self.id, &Failure::BadAnswer(foreign.to_string()))))
            }
            Err(Failure::SessionLost) => {
                Err(Box::pin(self.gate.lost(self.session.get())).await.answering(Some(&self.id)))
            }
            // No response to a request that was cancelled; the stream that could have carried it just ends.
            Err(Failure::Cancelled) => Ok(sse::response(Events::new(stream::empty(), self.session.get().hold()))),
            Err(failure) => Ok(self.gate.failed(&self.id, &failure)),
        }
    }

    /// The answer as a stream, from `first` on.
    fn stream(mut self, first: Option<Item<Ending>>) -> Response {
        // A client that reads slowly must not slow down the upstream: its outbox drops what may be dropped.
        self.call.exchange.detach();
        let session = self.session.get().hold();
        let documents = stream::unfold((self, first, false), |(mut passing, mut first, over)| async move {
            if over {
                return None;
            }
            loop {
                let item = match first.take() {
                    Some(item) => Some(item),
                    None => passing.call.exchange.next().await,
                };
                match item? {
                    Item::Message(message) => {
                        if let Some(document) = for_client(&message, &passing.call) {
                            return Some((document, (passing, None, false)));
                        }
                    }
                    Item::End(ending) => {
                        let response = match ending {
                            Ok(answer) => answer.whole().await,
                            Err(failure) => Err(failure),
                        };
                        let document = passing.last(response)?;
                        return Some((document, (passing, None, true)));
                    }
                    Item::Silence => {}
                }
            }
        });
        sse::response(Events::new(documents, session))
    }

    /// The last document of a stream: a client that got none would wait for ever.
    fn last(&self, response: Result<Message, Failure>) -> Option<Bytes> {
        match response {
            Ok(response) => Some(self.finish(&response).into_bytes()),
            Err(Failure::Cancelled) => None,
            Err(failure) => {
                self.gate.observer.emit(events::ExchangeFailed { failure: &failure });
                Some(RpcError::from(&failure).to_response(Some(&self.id)))
            }
        }
    }

    /// The response with the client's id and what taskgate has to say in it.
    fn finish(&self, response: &Message) -> Document {
        match response.id_span() {
            Some(span) if self.lists_tools => {
                let policy: &Policy = &self.gate.upstreams[self.session.get().upstream].policy;
                let mut edits = with_task_support(response, policy);
                edits.replace(span, &*self.id);
                edits.apply()
            }
            _ => with_id(response, &self.id),
        }
    }
}

/// An upstream's HTTP error as it came.
fn passed_on(error: &HttpError) -> Response {
    let mut response = Response::new(Body::from(error.body.clone()));
    *response.status_mut() = error.status;
    for name in [header::CONTENT_TYPE, header::WWW_AUTHENTICATE] {
        for value in error.headers.get_all(&name) {
            response.headers_mut().append(name.clone(), value.clone());
        }
    }
    response
}
