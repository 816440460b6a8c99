//! Passes what a shared child says to the sessions that it concerns.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{
    belongings::{elicitation, named},
    registry::Registry,
};
use crate::{
    observe::{Observer, events},
    upstream::{
        Failure, Inbound, UpstreamResponse,
        inbound::{could_not_read, readable},
        stdio::{
            child::{Child, ChildHandler},
            share::{MessageClass, TASKGATE},
        },
    },
    wire::{
        Edits, Kind, Message, Method, RpcError,
        message::echoed_number,
        modern::subscription,
        params::{progress_token, requested, unambiguous},
        response::{error_response, result_response},
    },
};

/// Passes the messages of one child to its sessions.
#[derive(Debug)]
pub(super) struct Dispatcher {
    /// The sessions, their calls, and the child's own requests.
    pub(super) registry: Mutex<Registry>,
    pub(super) observer: Arc<Observer>,
    /// Whether the child is a modern server, which asks by its answers only.
    pub(super) is_modern: AtomicBool,
}

impl Dispatcher {
    pub(super) fn new(registry: Registry, observer: Arc<Observer>) -> Self {
        Self { registry: Mutex::new(registry), observer, is_modern: AtomicBool::new(false) }
    }

    /// Waits until there has been no session for `linger`. After that none may join.
    pub(super) async fn deserted(&self, linger: Duration) {
        let mut count = self.registry.lock().count();
        loop {
            // An error is impossible: the sender is in the registry.
            let _ = count.wait_for(|count| *count == 0).await;
            let came_back = tokio::time::timeout(linger, count.wait_for(|count| *count > 0)).await.is_ok();
            if !came_back && self.registry.lock().close_if_empty() {
                return;
            }
        }
    }

    fn response(&self, response: Message) {
        let number = match response.id() {
            None | Some("null") => None,
            Some(id) => match echoed_number(id) {
                Some(number) => Some(number),
                None => return self.observer.emit(events::UnknownResponse),
            },
        };
        let mut registry = self.registry.lock();
        let Some(ending) = registry.greeted(number, Ok(response)) else { return };
        let Ok(response) = &ending else { return };
        let ours = match number {
            Some(ours) if registry.has_unsubscribed(ours) => return,
            Some(ours) => Some(ours),
            None => registry.only().filter(|_| could_not_read(response)),
        };
        let ended = ours.and_then(|ours| {
            registry.answered(ours, response);
            if number.is_some() { registry.end(ours) } else { registry.end_by_guess(ours) }
        });
        drop(registry);
        match ended {
            Some((inbound, number)) => inbound.exchanges.end(number, ending.map(UpstreamResponse::Whole)),
            None => self.observer.emit(events::UnknownResponse),
        }
    }

    /// Passes a request of the child, which does not say whose call has caused it, to the session that it most likely
    /// concerns.
    fn request(&self, request: &Message, child: &Child) {
        if self.is_modern.load(Ordering::Relaxed) {
            // An answer would be a response, which such a server must not get ("stdio", section "Sending Messages").
            let (upstream, method) = (child.upstream(), request.method_name());
            let method = &*crate::wire::excerpt(&method);
            tracing::warn!(
                upstream,
                method,
                "a request of a server of revision 2026-07-28 was dropped: it must not send any"
            );
            return;
        }
        let id = request.id_to_answer();
        let refuse = |error: &RpcError| tell(child, error_response(id, &error.to_raw()));
        if request.method() == Method::Ping {
            // The child asks whether its client is there, which is taskgate.
            return tell(child, result_response(id, "{}"));
        }
        let mut registry = self.registry.lock();
        let (seat, inbound) = match registry.session_to_ask() {
            Ok(asked) => asked,
            Err(why) => {
                drop(registry);
                self.observer.emit(events::UnattributedQuestion { upstream: child.upstream(), why });
                return refuse(&RpcError::internal(why));
            }
        };
        if let Some(error) = inbound.client.refusal(request) {
            drop(registry);
            return refuse(&error);
        }
        let meta = request.params().and_then(|params| unambiguous(params).ok()).and_then(|(_, meta)| meta);
        let token = meta.as_ref().and_then(|meta| meta.get("progressToken"));
        if let Err(error) = registry.questions.ask(id, token, seat) {
            drop(registry);
            return refuse(&error);
        }
        if let Some(id) = elicitation(request) {
            registry.belongings.elicited(seat, &id);
        }
        drop(registry);
        if let Some(reply) = inbound.deliver_unaddressed(request.clone()) {
            self.registry.lock().withdraw(id);
            tell(child, reply);
        }
    }

    /// Passes a notification to the sessions that it concerns. Nothing has to be sent back.
    fn notification(&self, message: Message) {
        if readable(&message).is_err() {
            return self.observer.emit(events::MessageUnreadable);
        }
        let deliver = |inbound: &Inbound, message| drop(inbound.deliver_unaddressed(message));
        if message.method() == Method::Cancelled && self.tears_down(&message) {
            return;
        }
        if let Some(id) = subscription(&message) {
            return self.subscribed(&message, id);
        }
        match message.method() {
            Method::Progress => self.progress(&message),
            Method::TaskStatus => self.observer.emit(events::StatusHidden),
            Method::Cancelled => {
                let Some(id) = requested(&message) else { return self.observer.emit(events::MessageUnreadable) };
                let asked = self.registry.lock().withdraw(id);
                if let Some(inbound) = asked {
                    deliver(&inbound, message);
                }
            }
            Method::ToolsListChanged | Method::OtherListChanged => {
                let sessions = self.registry.lock().sessions();
                for inbound in sessions {
                    let _ = inbound.listen(message.clone());
                }
            }
            Method::ResourceUpdated => {
                let Some(uri) = named(&message, "uri") else { return self.observer.emit(events::MessageUnreadable) };
                let subscribers = self.registry.lock().subscribers(&uri);
                for inbound in subscribers {
                    let _ = inbound.listen(message.clone());
                }
            }
            method => {
                let concerned = if method == Method::ElicitationComplete {
                    named(&message, "elicitationId").map(|id| self.registry.lock().elicitation_completed(&id))
                } else {
                    self.registry.lock().concerned()
                };
                match concerned.filter(|concerned| !concerned.is_empty()) {
                    Some(concerned) => concerned.iter().for_each(|inbound| deliver(inbound, message.clone())),
                    None => self.observer.emit(events::UnattributedNotification),
                }
            }
        }
    }

    /// Ends the subscription that the server has torn down. Returns whether the message says so.
    fn tears_down(&self, cancelled: &Message) -> bool {
        let ours = requested(cancelled).and_then(echoed_number);
        let caller = ours.and_then(|ours| self.registry.lock().caller(ours));
        let is_torn_down = caller.is_some_and(|(inbound, number)| inbound.exchanges.tear_down(number));
        if is_torn_down {
            ours.and_then(|ours| self.registry.lock().end(ours));
        }
        is_torn_down
    }

    /// Passes a notification of a modern server to the session whose subscription it names.
    fn subscribed(&self, message: &Message, id: &str) {
        let caller = echoed_number(id).and_then(|ours| self.registry.lock().caller(ours));
        let Some((inbound, number)) = caller else { return self.observer.emit(events::UnattributedNotification) };
        let mut edits = Edits::of(message.bytes());
        edits.replace_raw(id, number.to_string());
        if let Ok(message) = Message::parse(edits.apply().into_bytes()) {
            let _ = inbound.deliver(message, Some(number));
        }
    }

    fn progress(&self, message: &Message) {
        let token = progress_token(message);
        let caller = token.and_then(echoed_number).and_then(|ours| self.registry.lock().caller(ours));
        let (Some(token), Some((inbound, number))) = (token, caller) else {
            return self.observer.emit(events::UnknownProgress);
        };
        let mut edits = Edits::of(message.bytes());
        edits.replace_raw(token, number.to_string());
        if let Ok(message) = Message::parse(edits.apply().into_bytes()) {
            let _ = inbound.deliver(message, None);
        }
    }
}

/// Answers the child. A child that refuses the answer has ended, or does not read.
fn tell(child: &Child, answer: Bytes) {
    let _ = child.tell(TASKGATE, MessageClass::Answer, answer);
}

impl ChildHandler for Dispatcher {
    fn on_message(&self, message: Message, child: &Child) {
        match message.kind() {
            Kind::Response => self.response(message),
            Kind::Request => self.request(&message, child),
            Kind::Notification => self.notification(message),
        }
    }

    fn on_lost(&self, number: Option<u64>, failure: Failure) {
        let mut registry = self.registry.lock();
        let Some(Err(failure)) = registry.greeted(number, Err(failure)) else { return };
        if let Some(ours) = number {
            let ended = registry.end(ours);
            drop(registry);
            if let Some((inbound, number)) = ended {
                inbound.exchanges.end(number, Err(failure));
            }
            return;
        }
        let sessions = registry.sessions();
        drop(registry);
        for inbound in sessions {
            inbound.exchanges.abandon_all(&failure);
        }
    }

    fn on_end(&self, failure: &Failure) {
        let sessions = self.registry.lock().close(failure);
        for inbound in sessions {
            inbound.exchanges.abandon_all(failure);
        }
    }
}
