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
    wire::{Message, Version},
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

    fn withdraw(&self, number: u64) -> bool {
        self.child.withdraw(CLIENT, number)
    }

    fn send(&self, message: Bytes, _headers: HeaderMap) -> Sending<'_> {
        // The child ends with the session, so answers need not be distinguished from notifications.
        Box::pin(std::future::ready(self.child.tell(CLIENT, MessageClass::Notice, message)))
    }

    fn listen(&self, _headers: HeaderMap) {}

    fn agreed(&self, _version: Version) {
        self.child.initialized();
    }

    fn set_modern(&self) {
        self.child.set_modern();
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
