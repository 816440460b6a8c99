//! A session on a shared child.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio_util::sync::CancellationToken;

use super::{belongings::MAX_SUBSCRIBED, dispatcher::Dispatcher, registry::LeftBehind};
use crate::{
    upstream::{
        Carrier, Failure, Inbound, Link, Outgoing, Sending, UpstreamResponse,
        stdio::{
            child::Child,
            share::{MessageClass, SUBSCRIPTIONS, TASKGATE},
        },
    },
    wire::{
        Edits, Kind, Message, Method, RpcError, Version,
        message::echoed_number,
        object::quote,
        params::{progress_token, requested, unambiguous},
        response::{cancelled, error_response, result_response},
    },
};

/// The link of one session on a shared child.
#[derive(Debug)]
pub(in super::super) struct SharedLink {
    pub(super) seat_guard: SeatGuard,
    pub(super) child: Arc<Child>,
    /// The child's answer to `initialize`.
    pub(super) greeting: Message,
}

/// A session's seat on the child, which it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct SeatGuard {
    pub(super) dispatcher: Arc<Dispatcher>,
    /// The session's number in the registry.
    pub(super) seat: u64,
    pub(super) inbound: Inbound,
}

impl SeatGuard {
    fn leave(&self) -> LeftBehind {
        self.dispatcher.registry.lock().leave(self.seat)
    }
}

impl Drop for SeatGuard {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Link for SharedLink {
    fn request(&self, outgoing: Outgoing) -> Option<Carrier> {
        let Outgoing { number, message, .. } = outgoing;
        let called = self.call(number, message);
        called.unwrap_or_else(|failure| {
            self.seat_guard.inbound.exchanges.end(number, Err(failure));
            None
        })
    }

    fn withdraw(&self, number: u64) -> bool {
        let SeatGuard { dispatcher, seat, .. } = &self.seat_guard;
        let mut registry = dispatcher.registry.lock();
        let withdrawn = registry.number_of(*seat, number).filter(|ours| self.child.withdraw(*seat, *ours));
        withdrawn.and_then(|ours| registry.end(ours)).is_some()
    }

    fn send(&self, message: Bytes, _headers: HeaderMap) -> Sending<'_> {
        Box::pin(std::future::ready(self.tell(message)))
    }

    fn listen(&self, _headers: HeaderMap) {}

    fn agreed(&self, _version: Version) {}

    fn set_modern(&self) {}

    fn lost(&self) -> &CancellationToken {
        self.child.ended()
    }

    fn close(&self, _headers: HeaderMap) {
        let LeftBehind { calls, questions, .. } = {
            let mut registry = self.seat_guard.dispatcher.registry.lock();
            let left = registry.leave(self.seat_guard.seat);
            for (ours, uri) in &left.subscriptions {
                // There is at most one for each subscription that the child was asked for.
                let _ = self.child.tell(SUBSCRIPTIONS, MessageClass::Cancellation, unsubscribe(*ours, uri));
            }
            left
        };
        let unheard = self.child.forget(self.seat_guard.seat);
        self.seat_guard.dispatcher.registry.lock().were_not_sent(&unheard);
        self.seat_guard.inbound.exchanges.abandon_all(&Failure::Abandoned);
        for ours in calls.iter().filter(|ours| !unheard.contains(ours)) {
            let message = cancelled(&ours.to_string(), "the session of the call has ended");
            // A child that refuses the cancellation has ended, or does not read.
            let _ = self.child.tell(TASKGATE, MessageClass::Cancellation, message);
        }
        let error = RpcError::internal("the session that was asked has ended").to_raw();
        for id in questions {
            let _ = self.child.tell(TASKGATE, MessageClass::Answer, error_response(&id, &error));
        }
    }
}

impl SharedLink {
    /// Passes a session's request to the child under a number of its own.
    fn call(&self, number: u64, message: Bytes) -> Result<Option<Carrier>, Failure> {
        let request = Message::parse(message).map_err(|malformed| Failure::BadAnswer(malformed.to_string()))?;
        if request.method() == Method::Initialize {
            self.seat_guard.inbound.exchanges.end(number, Ok(UpstreamResponse::Whole(self.greeting.clone())));
            return Ok(None);
        }
        let SeatGuard { dispatcher, seat, inbound } = &self.seat_guard;
        let refuse = |refusal: RpcError| self.answer(number, refusal.to_response(Some(&number.to_string())));
        if let Method::TasksGet | Method::TasksResult | Method::TasksList | Method::TasksCancel = request.method() {
            // Every session would see the child's tasks.
            let why = "there are no tasks in a session of this revision on a shared server";
            return refuse(RpcError::method_not_found(why));
        }
        // The child must read the same params that are looked up here.
        let (params, meta) = match request.params().map(unambiguous).transpose() {
            Ok(params) => params.unzip(),
            Err(why) => return refuse(RpcError::bad_params(why)),
        };
        let token = meta.flatten().and_then(|meta| meta.get("progressToken"));
        if let Method::Subscribe | Method::Unsubscribe = request.method()
            && let Some(uri) = params.as_ref().and_then(|params| params.text("uri"))
        {
            return self.subscription(number, &request, token, &uri);
        }
        let Some(ours) = dispatcher.registry.lock().call(*seat, number) else { return Err(Failure::Abandoned) };
        let mut edits = numbered(&request, token, ours);
        if let (Method::ToolsCall, Some(params)) = (request.method(), &params) {
            edits.remove(params, "task");
        }
        let class = if inbound.exchanges.is_task(number) { MessageClass::Task(ours) } else { MessageClass::Call(ours) };
        let queued = self.child.call(*seat, class, edits.apply().into_bytes(), &inbound.exchanges, number);
        if queued.is_err() {
            dispatcher.registry.lock().end(ours);
        }
        queued.map(Some)
    }

    /// Passes a session's request to subscribe to a resource, or to end that. It is decided and queued under one lock,
    /// in one line, and is never withdrawn: what the child gets last is what holds.
    fn subscription(
        &self,
        number: u64,
        request: &Message,
        token: Option<&str>,
        uri: &str,
    ) -> Result<Option<Carrier>, Failure> {
        let SeatGuard { dispatcher, seat, inbound } = &self.seat_guard;
        let mut registry = dispatcher.registry.lock();
        let mut ended = None;
        if request.method() == Method::Unsubscribe {
            ended = registry.belongings.unsubscribe(*seat, uri);
            if registry.belongings.has_subscriber(uri) {
                // The child must keep the subscription for the other sessions.
                drop(registry);
                return self.answer(number, result_response(&number.to_string(), "{}"));
            }
        }
        let Some(ours) = registry.call(*seat, number) else { return Err(Failure::Abandoned) };
        if request.method() == Method::Subscribe && !registry.belongings.subscribe(*seat, ours, uri) {
            registry.end(ours);
            let why = "bytes of URIs may be subscribed to in one session; unsubscribe from some";
            return Err(Failure::Limit(format!("limit reached: {MAX_SUBSCRIBED} {why}")));
        }
        let message = numbered(request, token, ours).apply().into_bytes();
        let queued = self.child.call(*seat, MessageClass::Subscription, message, &inbound.exchanges, number);
        if queued.is_err() {
            registry.belongings.refused(*seat, ours);
            if let Some(ended) = ended {
                registry.belongings.put_back(*seat, ended);
            }
            registry.end(ours);
        }
        queued.map(Some)
    }

    /// Answers a session's request in the child's place.
    fn answer(&self, number: u64, answer: Bytes) -> Result<Option<Carrier>, Failure> {
        let answer = Message::parse(answer).map_err(|malformed| Failure::BadAnswer(malformed.to_string()))?;
        self.seat_guard.inbound.exchanges.end(number, Ok(UpstreamResponse::Whole(answer)));
        Ok(None)
    }

    /// Passes a session's notification, or its answer to a request of the child.
    fn tell(&self, message: Bytes) -> Result<(), Failure> {
        let SeatGuard { dispatcher, seat, .. } = &self.seat_guard;
        let parsed = Message::parse(message).map_err(|malformed| Failure::BadAnswer(malformed.to_string()))?;
        match (parsed.kind(), parsed.method()) {
            // The child got one from taskgate.
            (Kind::Notification, Method::Initialized) => Ok(()),
            (Kind::Notification, Method::Cancelled) => {
                let Some(id) = requested(&parsed) else { return Ok(()) };
                let ours = echoed_number(id).and_then(|number| dispatcher.registry.lock().cancel(*seat, number));
                let Some(ours) = ours else { return Ok(()) };
                let mut edits = Edits::of(parsed.bytes());
                edits.replace_raw(id, ours.to_string());
                self.child.tell(*seat, MessageClass::Notice, edits.apply().into_bytes())
            }
            (Kind::Notification, Method::Progress) => {
                let token = progress_token(&parsed);
                if token.is_some_and(|token| dispatcher.registry.lock().questions.expects_progress(*seat, token)) {
                    return self.child.tell(*seat, MessageClass::Notice, parsed.bytes().clone());
                }
                tracing::debug!("dropped progress that belongs to no request of the server to this session");
                Ok(())
            }
            (Kind::Response, _) => {
                if dispatcher.registry.lock().questions.answer(*seat, parsed.id_to_answer()) {
                    return self.child.tell(*seat, MessageClass::Answer, parsed.bytes().clone());
                }
                tracing::debug!("dropped an answer that belongs to no request of the server to this session");
                Ok(())
            }
            _ => self.child.tell(*seat, MessageClass::Notice, parsed.bytes().clone()),
        }
    }
}

/// Returns the edits that give a request the child's number of it, as its id and in the place of its progress token.
fn numbered<'a>(request: &'a Message, token: Option<&'a str>, ours: u64) -> Edits<'a> {
    let mut edits = Edits::of(request.bytes());
    if let Some(id) = request.id_span() {
        edits.replace(id, ours.to_string());
    }
    if let Some(token) = token {
        edits.replace_raw(token, ours.to_string());
    }
    edits
}

/// Writes taskgate's own request that ends a subscription.
fn unsubscribe(number: u64, uri: &str) -> Bytes {
    let uri = quote(uri);
    format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"resources/unsubscribe","params":{{"uri":{uri}}}}}"#).into()
}
