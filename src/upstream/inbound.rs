//! Where a message of an upstream goes.

use std::sync::Arc;

use super::{Answer, Exchanges, Outbox, outbox::Pushed};
use crate::{
    observe::{Observer, events},
    wire::{ClientCapabilities, Kind, Message, Method, message::echoed_number, object::Members},
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
    /// Delivers one message that came with the answer to exchange `carrier`, or with none.
    pub fn deliver(&self, message: Message, carrier: Option<u64>) {
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
                let unclaimed = match carrier {
                    Some(number) => self.exchanges.push(number, message),
                    None => Some(message),
                };
                if let Some(message) = unclaimed {
                    self.listen(message);
                }
            }
        }
    }

    /// Queues a message for the client's GET stream.
    pub fn listen(&self, message: Message) {
        match self.listener.push(message) {
            Pushed::Kept => {}
            Pushed::Dropped(count) => self.observer.emit(events::MessagesDropped { count }),
            Pushed::Full => self.observer.emit(events::MessagesDropped { count: 1 }),
        }
    }
}

/// The raw progress token of a progress notification.
#[must_use]
pub fn progress_token(message: &Message) -> Option<&str> {
    Members::parse(message.params()?).ok()?.get("progressToken")
}
