//! A session with a server that a later process goes on with: its written form, and the calls that run in it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ::http::HeaderMap;
use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Call, UpstreamSession};
use crate::{
    flow::Capacity,
    observe::Observer,
    upstream::{Carrier, Failure, Inbound, Link, Outgoing, Resumption, SavedUpstream, Sending, TooMany, Upstream},
    wire::Version,
};

/// How many numbers are kept for requests that the written form knows nothing of.
const RESERVED: u64 = 1 << 20;
/// How many numbers there are to a millisecond of the time of the file. Far fewer requests are made in one, and all of
/// these numbers are exact in JSON.
const A_MILLISECOND: u64 = 1000;

/// A call that an earlier process has sent.
#[derive(Debug)]
pub struct BrokenCall {
    /// Where its answer goes on.
    pub resumption: Resumption,
    /// The raw progress token that the client gave.
    pub progress_token: Option<Box<str>>,
}

/// The link of a session whose server's side has ended with an earlier process.
#[derive(Debug)]
struct GoneLink {
    inbound: Inbound,
    /// Cancelled from the beginning.
    lost: CancellationToken,
}

impl Link for GoneLink {
    fn request(&self, outgoing: Outgoing) -> Option<Carrier> {
        self.inbound.exchanges.end(outgoing.number, Err(Failure::SessionLost));
        None
    }

    fn send(&self, _: Bytes, _: HeaderMap) -> Sending<'_> {
        Box::pin(std::future::ready(Err(Failure::SessionLost)))
    }

    fn listen(&self, _: HeaderMap) {}

    fn agreed(&self, _: Version) {}

    fn set_modern(&self) {}

    fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    fn close(&self, _: HeaderMap) {
        self.inbound.exchanges.abandon_all(&Failure::Abandoned);
    }
}

impl UpstreamSession {
    /// Returns the written form. It leaves the numbers from `next` on to a later process; this one uses none of them
    /// before it calls this again.
    #[must_use]
    pub fn saved(&self) -> SavedUpstream {
        let native = self.native().is_shown().then(|| self.native().lists());
        let next = self.inbound.exchanges.next_number() + RESERVED;
        SavedUpstream { link: self.link.saved(), client: self.inbound.client, next, native }
    }

    /// Goes on with numbers that no earlier process has used, though the form that tells a later process could not be
    /// written. `now` is the time of the file.
    pub fn number_by_time(&self, now: u64) {
        self.inbound.exchanges.number_from(self.inbound.exchanges.next_number().max(now.saturating_mul(A_MILLISECOND)));
    }

    /// Returns whether so many requests were made since a form was written with `next` that another one has to be
    /// written.
    #[must_use]
    pub fn needs_saving(&self, next: u64) -> bool {
        self.inbound.exchanges.next_number() + RESERVED / 2 > next
    }

    /// Returns whether a later process can go on with the session.
    #[must_use]
    pub fn outlives_process(&self) -> bool {
        self.link.saved().is_some()
    }

    /// Goes on with a session of an earlier process, which was one of the pool or not. Where the server's side is gone,
    /// the session is lost from the beginning.
    #[must_use]
    pub fn restore(
        upstream: &Upstream,
        saved: &SavedUpstream,
        pooled: bool,
        capacity: &Arc<Capacity>,
        observer: &Arc<Observer>,
    ) -> Self {
        let inbound = Inbound { pooled, ..Inbound::new(&upstream.id, saved.client, capacity, observer) };
        inbound.exchanges.number_from(saved.next);
        if let Some(lists) = saved.native {
            inbound.native.show(lists);
        }
        let link = saved.link.as_ref().and_then(|link| upstream.server.reconnect(inbound.clone(), link));
        let link = link.unwrap_or_else(|| {
            let lost = CancellationToken::new();
            lost.cancel();
            Arc::new(GoneLink { inbound: inbound.clone(), lost })
        });
        Self::new(inbound, link)
    }

    /// Counts the session as unused for so long.
    #[must_use]
    pub fn idle_for(self, idle: Duration) -> Self {
        Self { opened: self.opened.checked_sub(idle).unwrap_or(self.opened), ..self }
    }

    /// Goes on with a call of an earlier process, and tracks it.
    ///
    /// # Errors
    /// The limit on requests in flight.
    pub fn resume(&self, broken: BrokenCall) -> Result<Call, TooMany> {
        let BrokenCall { resumption, progress_token } = broken;
        let number = resumption.number;
        let mut exchange = self.inbound.exchanges.begin_again(number)?;
        let _ = exchange.track(Some(resumption.event.clone()));
        match self.link.resume(resumption) {
            Ok(carrier) => exchange.carry(Some(carrier)),
            Err(failure) => self.inbound.exchanges.end(number, Err(failure)),
        }
        Ok(Call { exchange, progress_token, sent: None, begun: Instant::now() })
    }

    /// Has the server keep its side for a later process when the link is closed.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }
}
