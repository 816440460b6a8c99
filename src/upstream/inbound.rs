//! Where a message of an upstream goes.

use std::sync::Arc;

use bytes::Bytes;

use super::{Answer, Exchanges, Failure, NativeTasks, Purpose, native::may_be_related};
use crate::{
    config::UpstreamId,
    flow::{Capacity, Outbox, Pushed},
    observe::{Observer, events},
    wire::{
        ClientCapabilities, Kind, Message, Method, RpcError,
        beginning::Meant,
        code,
        legacy::error_code,
        message::echoed_number,
        object::Members,
        params::unambiguous,
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
    /// What belongs to no request: the client's GET stream.
    pub listener: Arc<Outbox<()>>,
    /// What the client can be asked.
    pub client: ClientCapabilities,
    /// The upstream's own tasks.
    pub native: Arc<NativeTasks>,
    /// Where to report.
    pub observer: Arc<Observer>,
}

impl Inbound {
    /// Returns what links of one session with `upstream` need, whose client can be asked what `client` says.
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
            native: Arc::default(),
            observer: Arc::clone(observer),
        }
    }

    /// Delivers one message that came with the answer to exchange `carrier`, or with none. What is returned answers it
    /// at once and has to be sent back.
    #[must_use]
    pub fn deliver(&self, message: Message, carrier: Option<u64>) -> Option<Bytes> {
        if let Err(why) = readable(&message) {
            return self.unreadable(&message, &why);
        }
        let message = self.admit(message)?;
        match (message.kind(), message.method()) {
            (Kind::Response, _) => {
                // An error whose id the upstream could not read answers the request that carried it.
                let number = match message.id() {
                    None | Some("null") => carrier,
                    Some(id) => echoed_number(id),
                };
                match number {
                    Some(number) => {
                        // Before the end, so that progress is known by one or the other.
                        self.native.answered(number, &message);
                        self.exchanges.end(number, Ok(Answer::Whole(message)));
                    }
                    None => self.observer.emit(events::UnknownResponse),
                }
            }
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
                    // A task of taskgate's is not the one that it is about.
                    carrier.filter(|number| self.exchanges.is_foreground(*number))
                } else {
                    carrier.or_else(|| self.claimant(&message))
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

    /// As [`Inbound::deliver`], for what may be no message: the call ends that it was to answer.
    #[must_use]
    pub fn take(&self, received: Received, carrier: Option<u64>) -> Option<Bytes> {
        let Broken { why, meant } = match received {
            Received::Message(message) => return self.deliver(message, carrier),
            Received::Broken(broken) => broken,
        };
        tracing::warn!(upstream = self.upstream.as_str(), why, "what the server sent is no message");
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
            Meant::Unknown => None,
        }
    }

    /// What answers a message that two readers could read differently; nothing but a request is answered.
    fn unreadable(&self, message: &Message, why: &str) -> Option<Bytes> {
        if message.kind() != Kind::Request {
            self.observer.emit(events::MessageUnreadable);
            return None;
        }
        Some(RpcError::invalid_params(format!("Invalid params: {why}")).to_response(message.id()))
    }

    /// Delivers a message that came over a transport that never says to which request a message belongs: the only one in
    /// flight, else whoever can hear it.
    #[must_use]
    pub fn deliver_unaddressed(&self, message: Message) -> Option<Bytes> {
        let carrier = match message.kind() {
            Kind::Request | Kind::Notification if self.native.owns(&message) => self.unheard(Some(Purpose::Foreground)),
            // That of a call is found by its number.
            Kind::Notification if message.method() == Method::Progress => self.unheard(Some(Purpose::Foreground)),
            Kind::Request => self.exchanges.only(None).or_else(|| self.unheard(None)),
            Kind::Notification if message.method() == Method::Cancelled => self.asker(&message),
            // What the server offers is no request's business, and is only told with one where it would not be heard.
            Kind::Notification if message.method().is_change() => self.unheard(Some(Purpose::Foreground)),
            // A task must not be given what may belong to another one.
            Kind::Notification => self.exchanges.only(None).or_else(|| self.unheard(Some(Purpose::Foreground))),
            // Servers without a name for what they could not read answer the only one that there is.
            Kind::Response if could_not_read(&message) => self.exchanges.only(None),
            Kind::Response => None,
        };
        self.deliver(message, carrier)
    }

    /// Delivers the progress of a task of the upstream, whose call has been answered: where it came, or to whoever can hear it.
    fn progress(&self, message: &Message, carrier: Option<u64>) {
        let Some((message, token)) = self.native.progress(message) else {
            return self.observer.emit(events::UnknownProgress);
        };
        // There the client's token would be taken for the number of the call.
        let carrier =
            carrier.filter(|number| self.exchanges.is_foreground(*number) && echoed_number(&token) != Some(*number));
        let unclaimed = match carrier {
            Some(number) => self.exchanges.push(number, message),
            None => Some(message),
        };
        // No notification is answered.
        drop(unclaimed.and_then(|message| self.queue(message)));
    }

    /// What the client may know of a message.
    fn admit(&self, message: Message) -> Option<Message> {
        let admitted = self.native.admit(message);
        if admitted.is_none() {
            self.observer.emit(events::StatusHidden);
        }
        admitted
    }

    /// The exchange to which a message belongs that came on the GET stream: many servers send there what they ask in the
    /// course of a call.
    fn claimant(&self, message: &Message) -> Option<u64> {
        match message.method() {
            Method::Cancelled => self.asker(message),
            Method::Elicit | Method::CreateMessage | Method::ListRoots => {
                self.exchanges.only(Some(Purpose::Background)).or_else(|| self.unheard(None))
            }
            _ => None,
        }
    }

    /// The exchange in the course of which the upstream has asked what it withdraws.
    fn asker(&self, cancelled: &Message) -> Option<u64> {
        self.exchanges.asked(Members::parse(cancelled.params()?).ok()?.get("requestId")?)
    }

    /// Who gets what nobody would hear on the GET stream.
    fn unheard(&self, purpose: Option<Purpose>) -> Option<u64> {
        if self.listener.has_reader() { None } else { self.exchanges.newest(purpose) }
    }

    /// As [`Inbound::queue`], for a message that comes as the upstream sent it.
    pub fn listen(&self, message: Message) -> Option<Bytes> {
        self.admit(message).and_then(|message| self.queue(message))
    }

    /// Queues a message for the client's GET stream, which may be tied to a task of taskgate's by now. What is returned
    /// answers it in the place of a client that does not listen.
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

/// Refuses a request, the withdrawal of one, or what may be tied to a task, that has a member twice where it is read here
/// or by the client, and an error without an id that cannot be given one. What else is told in the course of a plain call is
/// nobody's business but the client's.
fn readable(message: &Message) -> Result<(), String> {
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

/// Whether a response says that a request could not be read. Other errors without an id answer notifications, as careless
/// servers do.
fn could_not_read(response: &Message) -> bool {
    let code = response.outcome().and_then(|(_, error)| error_code(error));
    [code::PARSE_ERROR, code::INVALID_REQUEST].map(|code| Some(code.into())).contains(&code)
}

/// The raw progress token of a progress notification.
#[must_use]
pub fn progress_token(message: &Message) -> Option<&str> {
    Members::parse(message.params()?).ok()?.get("progressToken")
}
