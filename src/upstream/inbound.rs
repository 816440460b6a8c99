//! Delivers what an upstream sends: to the exchange that it belongs to, or to the client's GET stream.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::{Exchanges, Failure, KnownTools, NativeTasks, Purpose, UpstreamResponse, native::may_be_related};
use crate::{
    config::UpstreamId,
    flow::{Capacity, Outbox, Pushed},
    identity::Owner,
    observe::{Observer, events},
    wire::{
        ClientCapabilities, Kind, Message, Method, RpcError,
        beginning::Meant,
        code,
        legacy::error_code,
        message::echoed_number,
        modern::subscription,
        object::Members,
        params::{progress_token, requested, unambiguous},
        received::{Broken, Received},
        response::pong,
    },
};

/// What a link needs to hand over what its upstream sends.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// The upstream, for the log.
    pub upstream: UpstreamId,
    /// The requests in flight.
    pub exchanges: Arc<Exchanges>,
    /// The client's GET stream, for what belongs to no request.
    pub listener: Arc<Outbox<()>>,
    /// Which requests the client supports.
    pub client: ClientCapabilities,
    /// Whether callers of different sessions, or without any, may be in the session at once.
    pub pooled: bool,
    /// To whom the session belongs, where that is known.
    pub owner: Option<Owner>,
    /// The upstream's own tasks.
    pub native: Arc<NativeTasks>,
    /// What the upstream's lists have told of its tools, where taskgate adds some of its own.
    pub tools: Arc<KnownTools>,
    /// Cancelled when the upstream has answered the request for the GET stream, whatever it says.
    pub listening: CancellationToken,
    /// Where to report.
    pub observer: Arc<Observer>,
}

impl Inbound {
    /// Returns what links of one session with `upstream` need, whose client has the capabilities `client`.
    #[must_use]
    pub fn new(
        upstream: &UpstreamId,
        client: ClientCapabilities,
        outbox: &Arc<Capacity>,
        observer: &Arc<Observer>,
    ) -> Self {
        Self {
            upstream: upstream.clone(),
            exchanges: Exchanges::new(Arc::clone(outbox), Arc::clone(observer)),
            listener: Arc::new(Outbox::new(outbox)),
            client,
            pooled: false,
            owner: None,
            native: Arc::default(),
            tools: Arc::default(),
            listening: CancellationToken::new(),
            observer: Arc::clone(observer),
        }
    }

    /// Delivers one message that came with the answer to exchange `carrier`, or with none. Returns the answer that has
    /// to be sent back at once, if there is one.
    #[must_use]
    pub fn deliver(&self, message: Message, carrier: Option<u64>) -> Option<Bytes> {
        if let Err(why) = readable(&message) {
            return self.unreadable(&message, &why);
        }
        let message = self.admit(message)?;
        match (message.kind(), message.method()) {
            (Kind::Response, _) => {
                let number = match message.id() {
                    // An error whose id the upstream could not read answers the request that carried it. Where that is
                    // wrong, the upstream still works on this one.
                    None | Some("null") => carrier.inspect(|number| {
                        self.exchanges.note_failure(*number, &Failure::BadAnswer("an error without an id".to_owned()));
                    }),
                    Some(id) => echoed_number(id),
                };
                match number {
                    Some(number) => {
                        // Before the end, so that progress always finds the exchange or the task.
                        self.native.answered(number, &message);
                        self.exchanges.end(number, Ok(UpstreamResponse::Whole(message)));
                    }
                    None => self.observer.emit(events::UnknownResponse),
                }
            }
            // A server that ends a subscription by itself says so ("Cancellation" of 2026-07-28).
            (Kind::Notification, Method::Cancelled) if self.tears_down(&message) => {}
            (Kind::Notification, Method::Progress) => {
                let unclaimed = match progress_token(&message).and_then(echoed_number) {
                    Some(number) => self.exchanges.push(number, message),
                    None => Some(message),
                };
                if let Some(message) = unclaimed {
                    self.progress(&message, carrier);
                }
            }
            _ => {
                let carrier = if self.native.owns(&message) {
                    // It is about a task of the server, so it does not belong to a task of taskgate.
                    carrier.filter(|number| self.exchanges.is_foreground(*number))
                } else {
                    carrier.or_else(|| {
                        let claimant = self.claimant(&message)?;
                        self.exchanges.asked_elsewhere(claimant, &message);
                        Some(claimant)
                    })
                };
                let unclaimed = match carrier {
                    Some(number) => self.exchanges.push(number, message),
                    None => Some(message),
                };
                return unclaimed.and_then(|message| self.queue(message));
            }
        }
        None
    }

    /// Delivers a message as [`Inbound::deliver`] does. Anything else ends the call that it was meant to answer.
    #[must_use]
    pub fn take(&self, received: Received, carrier: Option<u64>) -> Option<Bytes> {
        let Broken { why, meant } = match received {
            Received::Message(message) => return self.deliver(message, carrier),
            Received::Broken(broken) => broken,
        };
        tracing::warn!(upstream = self.upstream.as_str(), why, "what the server sent is not a message");
        match meant {
            Meant::Response(number) => {
                if let Some(number) = number.or(carrier) {
                    self.exchanges.end(number, Err(Failure::BadAnswer(why)));
                }
                None
            }
            Meant::Request(id) => {
                Some(RpcError::invalid_request(format!("Invalid request: {why}")).to_response(Some(&id)))
            }
            // The response may still come.
            Meant::Unanswerable | Meant::Unknown => None,
        }
    }

    /// Answers a message that two readers could read differently, if it is a request.
    fn unreadable(&self, message: &Message, why: &str) -> Option<Bytes> {
        if message.kind() != Kind::Request {
            self.observer.emit(events::MessageUnreadable);
            return None;
        }
        Some(RpcError::bad_params(why).to_response(message.id()))
    }

    /// Delivers a message that came over a transport that never says to which request a message belongs. It goes to the
    /// only exchange in flight, or else to a listener that can hear it.
    #[must_use]
    pub fn deliver_unaddressed(&self, message: Message) -> Option<Bytes> {
        let carrier = match message.kind() {
            // A modern server says to which subscription a notification belongs.
            Kind::Notification if let Some(id) = subscription(&message) => echoed_number(id),
            Kind::Request | Kind::Notification if self.native.owns(&message) => {
                self.fallback(Some(Purpose::Foreground))
            }
            // Progress of a call is delivered by its number.
            Kind::Notification if message.method() == Method::Progress => self.fallback(Some(Purpose::Foreground)),
            Kind::Request if self.is_nobodys_question() => None,
            Kind::Request => self.exchanges.only(None).or_else(|| self.fallback(None)),
            Kind::Notification if message.method() == Method::Cancelled => self.asker(&message),
            // A change in what the server offers belongs to no request. It goes to one only if no client reads the GET
            // stream.
            Kind::Notification if message.method().is_change() => self.fallback(Some(Purpose::Foreground)),
            // A task must not get what may belong to another task.
            Kind::Notification => self.exchanges.only(None).or_else(|| self.fallback(Some(Purpose::Foreground))),
            // A server that could not read a request's id answers the only request in flight. That is a guess.
            Kind::Response if could_not_read(&message) => self.exchanges.only_answerable(),
            Kind::Response => None,
        };
        self.deliver(message, carrier)
    }

    /// Delivers the progress of a task of the upstream, whose call has been answered: where it came, or to a listener
    /// that can hear it.
    fn progress(&self, message: &Message, carrier: Option<u64>) {
        let Some((message, token)) = self.native.progress(message) else {
            return self.observer.emit(events::UnknownProgress);
        };
        // Otherwise the client's token would be taken for the number of that call.
        let carrier =
            carrier.filter(|number| self.exchanges.is_foreground(*number) && echoed_number(&token) != Some(*number));
        let unclaimed = match carrier {
            Some(number) => self.exchanges.push(number, message),
            None => Some(message),
        };
        // No notification is answered.
        drop(unclaimed.and_then(|message| self.queue(message)));
    }

    /// Removes what the client may not know of a message; `None` if that is all of it.
    fn admit(&self, message: Message) -> Option<Message> {
        if message.method() == Method::ToolsListChanged {
            self.tools.forget();
        }
        let admitted = self.native.admit(message);
        if admitted.is_none() {
            self.observer.emit(events::StatusHidden);
        }
        admitted
    }

    /// Returns the exchange to which a message on the GET stream belongs: many servers send there what they ask during
    /// a call.
    fn claimant(&self, message: &Message) -> Option<u64> {
        match message.method() {
            Method::Cancelled => self.asker(message),
            method if method.asks_client() && !self.is_nobodys_question() => {
                self.exchanges.only(Some(Purpose::Background)).or_else(|| self.fallback(None))
            }
            _ => None,
        }
    }

    /// Returns whether no call is known that a question of the server belongs to: it may belong to a call that was
    /// given up, and the calls in flight may be those of other callers.
    fn is_nobodys_question(&self) -> bool {
        self.pooled && self.exchanges.has_given_up()
    }

    /// Ends the subscription that the server has torn down. Returns whether the message says so.
    fn tears_down(&self, cancelled: &Message) -> bool {
        requested(cancelled).and_then(echoed_number).is_some_and(|number| self.exchanges.tear_down(number))
    }

    /// Returns the exchange during which the upstream has sent the request that it withdraws.
    fn asker(&self, cancelled: &Message) -> Option<u64> {
        self.exchanges.asked(requested(cancelled)?)
    }

    /// Returns the exchange that gets a message because no client reads the GET stream: the newest of that purpose.
    fn fallback(&self, purpose: Option<Purpose>) -> Option<u64> {
        if self.listener.has_reader() { None } else { self.exchanges.newest(purpose) }
    }

    /// Removes what the client may not know of a message, and queues the rest as [`Inbound::queue`] does.
    pub fn listen(&self, message: Message) -> Option<Bytes> {
        self.admit(message).and_then(|message| self.queue(message))
    }

    /// Queues a message, which taskgate may have tied to a task of its own, for the client's GET stream. Returns an
    /// answer in place of a client that does not listen, which has to be sent back.
    pub fn queue(&self, message: Message) -> Option<Bytes> {
        let request = message.id().filter(|_| message.kind() == Kind::Request).map(str::to_owned);
        if let (Some(id), Method::Ping, false) = (&request, message.method(), self.listener.has_reader()) {
            return Some(pong(id));
        }
        match self.listener.push(message) {
            Pushed::Kept => None,
            Pushed::Dropped(count) => {
                self.observer.emit(events::MessagesDropped { count });
                None
            }
            Pushed::Full => {
                self.observer.emit(events::MessagesDropped { count: 1 });
                let error = RpcError::internal("limit reached: the client does not read what it is asked");
                request.map(|id| error.to_response(Some(&id)))
            }
        }
    }
}

/// Refuses a message that has a member twice where taskgate or the client reads it: a request, its withdrawal, a
/// notification that may be tied to a task, or an error without an id, which could not be given one. Anything else
/// during a plain call concerns only the client.
pub(super) fn readable(message: &Message) -> Result<(), String> {
    match (message.kind(), message.method(), message.params()) {
        (Kind::Request, _, Some(params)) | (Kind::Notification, Method::Cancelled, Some(params)) => {
            unambiguous(params).map(drop)
        }
        (Kind::Notification, _, Some(params)) if may_be_related(message) => unambiguous(params).map(drop),
        (Kind::Request, _, None) => Members::parse(message.text()).map(drop),
        (Kind::Response, ..) if message.id().is_none() => Members::parse(message.text()).map(drop),
        _ => Ok(()),
    }
}

/// Returns whether a response says that the server could not read a request. Careless servers answer notifications with
/// other errors without an id.
pub(super) fn could_not_read(response: &Message) -> bool {
    let code = response.outcome().and_then(|(_, error)| error_code(error));
    [code::PARSE_ERROR, code::INVALID_REQUEST].map(|code| Some(code.into())).contains(&code)
}
