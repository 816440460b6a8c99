//! A session with a child process of its own.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio_util::sync::CancellationToken;

use super::{
    child::{Child, ChildHandler},
    share::{MessageClass, SenderId, TASKGATE},
};
use crate::{
    upstream::{Carrier, Failure, Inbound, Link, Outgoing, Sending},
    wire::{Message, Method, Version, message::echoed_number, params::requested},
};

/// The session, as a sender of messages.
const CLIENT: SenderId = 1;

/// The link of a session that has a child of its own.
#[derive(Debug)]
pub(super) struct OwnLink {
    inbound: Inbound,
    child: Arc<Child>,
}

impl OwnLink {
    pub(super) fn new(inbound: Inbound, child: Arc<Child>) -> Self {
        Self { inbound, child }
    }

    /// Passes a notification, or an answer to a request of the child.
    fn tell(&self, message: Bytes) -> Result<(), Failure> {
        let parsed = Message::parse(message).map_err(|malformed| Failure::BadAnswer(malformed.to_string()))?;
        if parsed.method() == Method::Cancelled
            && let Some(number) = requested(&parsed).and_then(echoed_number)
            && self.child.withdraw(CLIENT, number)
        {
            // What the child has never got must not be cancelled there.
            self.inbound.exchanges.cancel(number);
            return Ok(());
        }
        // The child ends with the session, so answers need not be distinguished from notifications.
        self.child.tell(CLIENT, MessageClass::Notice, parsed.bytes().clone())
    }
}

impl Link for OwnLink {
    fn request(&self, outgoing: Outgoing) -> Option<Carrier> {
        let Outgoing { number, message, .. } = outgoing;
        let class = if self.inbound.exchanges.is_task(number) {
            MessageClass::Task(number)
        } else {
            MessageClass::Call(number)
        };
        let queued = self.child.call(CLIENT, class, message, &self.inbound.exchanges, number);
        queued.map_err(|failure| self.inbound.exchanges.end(number, Err(failure))).ok()
    }

    fn send(&self, message: Bytes, _headers: HeaderMap) -> Sending<'_> {
        Box::pin(std::future::ready(self.tell(message)))
    }

    fn listen(&self, _headers: HeaderMap) {}

    fn agreed(&self, _version: Version) {
        self.child.initialized();
    }

    fn is_modern(&self) {
        self.child.initialized();
    }

    fn lost(&self) -> &CancellationToken {
        self.child.ended()
    }

    fn close(&self, _headers: HeaderMap) {
        self.inbound.exchanges.abandon_all(&Failure::Abandoned);
        self.child.stop();
    }
}

impl ChildHandler for Inbound {
    fn on_message(&self, message: Message, child: &Child) {
        if let Some(reply) = self.deliver_unaddressed(message) {
            // A child that refuses the answer has ended, or does not read.
            let _ = child.tell(TASKGATE, MessageClass::Answer, reply);
        }
    }

    fn on_lost(&self, number: Option<u64>, failure: Failure) {
        match number {
            Some(number) => self.exchanges.end(number, Err(failure)),
            None => self.exchanges.abandon_all(&failure),
        }
    }

    fn on_end(&self, failure: &Failure) {
        self.exchanges.abandon_all(failure);
    }
}
