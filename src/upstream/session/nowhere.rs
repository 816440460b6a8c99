//! A session with nothing behind it, for tests.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use ::http::HeaderMap;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::UpstreamSession;
use crate::{
    flow::Capacity,
    upstream::{Carrier, Inbound, Link, Outgoing, Sending},
    wire::{ClientCapabilities, Message, Version},
};

/// A link that takes everything and answers nothing.
#[derive(Debug, Default)]
struct Nowhere {
    lost: CancellationToken,
    /// How much was sent besides requests.
    sent: Arc<AtomicUsize>,
}

impl Link for Nowhere {
    fn request(&self, _: Outgoing) -> Option<Carrier> {
        None
    }

    fn send(&self, _: Bytes, _: HeaderMap) -> Sending<'_> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        Box::pin(ready(Ok(())))
    }

    fn listen(&self, _: HeaderMap) {}

    fn agreed(&self, _: Version) {}

    fn set_modern(&self) {}

    fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    fn close(&self, _: HeaderMap) {}
}

impl UpstreamSession {
    /// Returns a session with the upstream at `path` whose server never answers.
    pub(crate) fn nowhere(path: &str) -> Arc<Self> {
        Self::nowhere_counting(path).0
    }

    /// Returns a session as [`Self::nowhere`] does, with the number of notifications and responses that it was sent.
    pub(super) fn nowhere_counting(path: &str) -> (Arc<Self>, Arc<AtomicUsize>) {
        let capacity = Capacity::new(1024, 1024);
        let inbound = Inbound::new(&path.into(), ClientCapabilities::default(), &capacity, &Arc::default());
        let link = Nowhere::default();
        let sent = Arc::clone(&link.sent);
        (Arc::new(Self::new(inbound, Arc::new(link))), sent)
    }

    /// Has the server say something in the course of its newest call. Returns whether there is one.
    pub(crate) fn say(&self, message: Message) -> bool {
        let exchanges = &self.inbound.exchanges;
        exchanges.newest(None).is_some_and(|number| exchanges.push(number, message).is_none())
    }
}
