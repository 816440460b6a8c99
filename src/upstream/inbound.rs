//! Where a message of an upstream goes.

use std::sync::Arc;

use bytes::Bytes;

use super::{Answer, Exchanges, Outbox, Purpose, outbox::Pushed};
use crate::{
    observe::{Observer, events},
    wire::{ClientCapabilities, Kind, Message, Method, RpcError, message::echoed_number, object::Members},
};

/// What a link needs to hand over what its upstream sends.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// The requests in flight.
    pub exchanges: Arc<Exchanges>,
    /// What belongs to no request: the client's GET stream.
    pub listener: Arc<Outbox<()>>,
    /// What the client can be asked.
    pub client: ClientCapabilities,
    /// Where to report.
    pub observer: Arc<Observer>,
}

impl Inbound {
    /// Delivers one message that came with the answer to exchange `carrier`, or with none. What is returned answers it
    /// at once and has to be sent back.
    #[must_use]
    pub fn deliver(&self, message: Message, carrier: Option<u64>) -> Option<Bytes> {
        match (message.kind(), message.method()) {
            (Kind::Response, _) => {
                // An error whose id the upstream could not read answers the request that carried it.
                let number = match message.id() {
                    None | Some("null") => carrier,
                    Some(id) => echoed_number(id),
                };
                match number {
                    Some(number) => self.exchanges.end(number, Ok(Answer::Whole(message))),
                    None => self.observer.emit(events::UnknownResponse),
                }
            }
            (Kind::Notification, Method::Progress) => {
                let known = progress_token(&message).and_then(echoed_number);
                let delivered = known.is_some_and(|number| self.exchanges.push(number, message).is_none());
                if !delivered {
                    self.observer.emit(events::UnknownProgress);
                }
            }
            _ => {
                let carrier = carrier.or_else(|| self.claimant(&message));
                let unclaimed = match carrier {
                    Some(number) => self.exchanges.push(number, message),
                    None => Some(message),
                };
                return unclaimed.and_then(|message| self.listen(message));
            }
        }
        None
    }

    /// Delivers a message that came over a transport that never says to which request a message belongs: the only one in
    /// flight, else whoever can hear it.
    #[must_use]
    pub fn deliver_unaddressed(&self, message: Message) -> Option<Bytes> {
        let carrier = match message.kind() {
            Kind::Request => self.exchanges.only(None).or_else(|| self.unheard(None)),
            Kind::Notification if message.method() == Method::Cancelled => self.asker(&message),
            // What the server offers is no request's business, and is only told with one where it would not be heard.
            Kind::Notification if message.method() == Method::Changed => self.unheard(Some(Purpose::Foreground)),
            // A task must not be given what may belong to another one.
            Kind::Notification => self.exchanges.only(None).or_else(|| self.unheard(Some(Purpose::Foreground))),
            Kind::Response => None,
        };
        self.deliver(message, carrier)
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

    /// Queues a message for the client's GET stream. What is returned answers it in the place of a client that does not
    /// listen.
    pub fn listen(&self, message: Message) -> Option<Bytes> {
        let request = message.id().filter(|_| message.kind() == Kind::Request).map(str::to_owned);
        if let (Some(id), Method::Ping, false) = (&request, message.method(), self.listener.has_reader()) {
            return Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into());
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

/// The raw progress token of a progress notification.
#[must_use]
pub fn progress_token(message: &Message) -> Option<&str> {
    Members::parse(message.params()?).ok()?.get("progressToken")
}
