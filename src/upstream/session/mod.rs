//! A session with a server: the link, the requests in flight on it, and who uses it.

mod call;
mod call_outcome;
mod cancel;
mod discover;
mod event;
mod handshake;
mod listing;
#[cfg(test)]
mod nowhere;
mod rounds;
mod saved;
mod translate;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use ::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use tokio::{sync::Notify, time::Instant};

pub use call::{Call, CallOptions, ToServer};
pub use call_outcome::{CallOutcome, error_code, own_error};
pub use discover::Introduced;
pub use event::{ServerEvent, ServerQuestion, question_refusal};
pub use handshake::{Agreed, Handshake, NotAgreed};
pub use rounds::{Next, Round};
pub use saved::BrokenCall;
pub use translate::{for_client, refusal_with_id, with_id};

use self::{handshake::ending, rounds::Rounds};
use super::{Exchanges, Failure, Inbound, KnownTools, Link, MAX_MESSAGE, NativeTasks, Outgoing, Purpose};
use crate::{
    flow::Outbox,
    identity::senders,
    wire::{Message, Method},
};

/// How long a server may take to answer a request of taskgate's own.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A session with a server.
#[derive(Debug)]
pub struct UpstreamSession {
    inbound: Inbound,
    link: Arc<dyn Link>,
    opened: Instant,
    /// Microseconds from `opened` to the last use; it grows with each use.
    last_used: AtomicU64,
    /// How many guards are alive.
    uses: AtomicUsize,
    /// Whether the link closes with the last guard.
    closing: AtomicBool,
    /// The questions of a server of the modern generation; `None` for a legacy one.
    rounds: Option<Arc<Rounds>>,
    /// Whether the server keeps its side for a later process.
    kept: AtomicBool,
    /// The headers of messages of taskgate's own, where calls of the same client alone are in the session.
    own_headers: HeaderMap,
    /// Notified when a use of it has ended, where others may wait for the session or for its place.
    unused: Option<Arc<Notify>>,
}

/// What a use of a session keeps.
pub trait Kept: fmt::Debug + Send + Sync {
    /// Makes room for another session, as the server has forgotten this one.
    fn vacate(&self);
}

/// Keeps an upstream session in use while it lives.
#[derive(Debug)]
pub struct UpstreamGuard {
    session: Arc<UpstreamSession>,
    /// What must not end before this use is over.
    kept: Option<Arc<dyn Kept>>,
}

impl UpstreamSession {
    fn new(inbound: Inbound, link: Arc<dyn Link>) -> Self {
        Self {
            inbound,
            link,
            opened: Instant::now(),
            last_used: AtomicU64::new(0),
            uses: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            rounds: None,
            kept: AtomicBool::new(false),
            own_headers: HeaderMap::new(),
            unused: None,
        }
    }

    /// Returns the link to a server of the modern generation, which has no sessions.
    fn modern(inbound: Inbound, link: Arc<dyn Link>) -> Self {
        Self { rounds: Some(Arc::default()), ..Self::new(inbound, link) }
    }

    /// Keeps those of `headers` that tell who has opened the session, for messages of taskgate's own.
    pub(super) fn opened_with(self, headers: &HeaderMap) -> Self {
        let mut kept = HeaderMap::new();
        for (name, value) in senders(headers) {
            // Copied, because the header may be a cut of a larger buffer. What came as a header's value is one.
            let mut copy = HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone());
            copy.set_sensitive(true);
            kept.append(name.clone(), copy);
        }
        Self { own_headers: kept, ..self }
    }

    /// Has the session notify `unused` when a use of it has ended.
    pub(super) fn notifying(self, unused: &Arc<Notify>) -> Self {
        Self { unused: Some(Arc::clone(unused)), ..self }
    }

    /// Returns the headers of messages of taskgate's own.
    pub(super) fn headers_of_its_own(&self) -> HeaderMap {
        self.own_headers.clone()
    }

    /// Returns whether the server is of the modern generation, so that this is no more than the link to it.
    #[must_use]
    pub fn is_modern(&self) -> bool {
        self.rounds.is_some()
    }

    /// Marks the session as in use until the returned guard is dropped.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> UpstreamGuard {
        self.hold_with(None)
    }

    /// Marks the session as in use as [`UpstreamSession::hold`] does, and keeps `kept` as long.
    pub(super) fn hold_with(self: &Arc<Self>, kept: Option<Arc<dyn Kept>>) -> UpstreamGuard {
        // SeqCst with `close_when_unused`: either that sees this use, or the guard's drop sees that the link has to
        // close.
        self.uses.fetch_add(1, Ordering::SeqCst);
        UpstreamGuard { session: Arc::clone(self), kept }
    }

    /// Marks the session as used now.
    pub fn touch(&self) {
        let now = u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX);
        let later = |before: u64| Some(now.max(before.saturating_add(1)));
        let _ = self.last_used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// Returns how long the session has not been used; zero while it is in use.
    #[must_use]
    pub fn idle(&self) -> Duration {
        // SeqCst pairs with the guard's drop: the last use is noted before the count falls.
        if self.uses.load(Ordering::SeqCst) > 0 {
            return Duration::ZERO;
        }
        self.opened.elapsed().saturating_sub(Duration::from_micros(self.last_used.load(Ordering::Relaxed)))
    }

    /// Returns when the session was used last, as a number that grows with each use; `None` while it is in use, even by
    /// a call whose client has left.
    #[must_use]
    pub fn unused_since(&self) -> Option<u64> {
        // SeqCst pairs with the guard's drop, as in `idle`.
        let in_use = self.uses.load(Ordering::SeqCst) > 0 || self.inbound.exchanges.newest(None).is_some();
        (!in_use).then(|| self.last_used.load(Ordering::Relaxed))
    }

    /// Returns whether the server has ended the session, so that a client has to start anew.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.link.lost().is_cancelled()
    }

    /// Waits until the server has ended the session.
    pub async fn lost(&self) {
        self.link.lost().cancelled().await;
    }

    /// Returns the queue of what the server sends that belongs to no call.
    #[must_use]
    pub fn outbox(&self) -> &Arc<Outbox<()>> {
        &self.inbound.listener
    }

    /// Returns the server's own tasks.
    #[must_use]
    pub fn native(&self) -> &Arc<NativeTasks> {
        &self.inbound.native
    }

    /// Returns what the server's lists have told of its tools.
    #[must_use]
    pub fn tools(&self) -> &Arc<KnownTools> {
        &self.inbound.tools
    }

    /// Opens the stream on which the server sends what belongs to no call, if it has one and it is not open.
    pub fn listen(&self, headers: HeaderMap) {
        self.link.listen(headers);
    }

    /// Waits until the server has answered the request for that stream, if it was made, and for `at_most`: some servers
    /// answer it with their first event only.
    pub async fn listening(&self, at_most: Duration) {
        let _ = tokio::time::timeout(at_most, self.inbound.listening.cancelled()).await;
    }

    /// Queues a message of the server that belongs to no call.
    pub fn push(&self, message: Message) {
        // It is no request, so there is no answer to send.
        let _ = self.inbound.queue(message);
    }

    /// Passes on a client's notification, or its response to a request of the server. Once the handshake has ended, it
    /// opens the server's stream, which stays open while the session lives.
    ///
    /// # Errors
    /// [`Failure`] where the server did not take it.
    pub async fn forward(&self, message: &Message, headers: HeaderMap) -> Result<(), Failure> {
        let listening = (message.method() == Method::Initialized).then(|| headers.clone());
        self.link.send(message.bytes().clone(), headers).await?;
        if let Some(headers) = listening {
            self.listen(headers);
        }
        Ok(())
    }

    /// Answers a request that the server has sent in the course of a call.
    ///
    /// # Errors
    /// [`Failure`] where the server did not take it.
    pub async fn reply(&self, response: Bytes, headers: HeaderMap) -> Result<(), Failure> {
        if let Some(rounds) = &self.rounds {
            let response = Message::parse(response).map_err(|malformed| Failure::BadAnswer(malformed.to_string()))?;
            rounds.answer(&response, headers);
            return Ok(());
        }
        self.link.send(response.clone(), headers).await?;
        self.inbound.exchanges.answered(response);
        Ok(())
    }

    /// Returns the number of the request in flight that its client knows by this raw id.
    #[must_use]
    pub fn request_of_client(&self, id: &str) -> Option<u64> {
        self.inbound.exchanges.of_client(id)
    }

    /// Sends a request of taskgate's own with raw `params`, and waits for its answer.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn request(&self, method: &str, params: &str, headers: HeaderMap) -> Result<Message, Failure> {
        let begun = self.inbound.exchanges.begin_apart(None, Purpose::Foreground);
        let mut exchange = begun.map_err(|too_many| Failure::Limit(too_many.to_string()))?;
        let number = exchange.number;
        let _guard = ExchangeGuard { exchanges: Arc::clone(&self.inbound.exchanges), number };
        let message = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}"#).into();
        let outgoing = Outgoing { number, message, headers: headers.clone(), max_answer: MAX_MESSAGE, relay: false };
        exchange.carry(self.link.request(outgoing));
        let answering = ending(&mut exchange, &self.inbound, &self.link, &headers);
        tokio::time::timeout(REQUEST_TIMEOUT, answering).await.unwrap_or(Err(Failure::TimedOut(REQUEST_TIMEOUT)))
    }

    /// Tells the requests that have waited for long that nothing has come yet. Has to be called every few seconds.
    pub fn tell_silence(&self) {
        self.inbound.exchanges.tell_silence();
    }

    /// Closes the link.
    pub fn close(&self, headers: HeaderMap) {
        if self.kept.load(Ordering::Relaxed) { self.link.leave() } else { self.link.close(headers) }
    }

    /// Closes the link as soon as no guard is alive.
    pub fn close_when_unused(&self, headers: HeaderMap) {
        // SeqCst with the guard's drop: that sees `closing`, or its use has left the count here.
        self.closing.store(true, Ordering::SeqCst);
        if self.uses.load(Ordering::SeqCst) == 0 {
            self.close_unused(headers);
        }
    }

    fn close_unused(&self, headers: HeaderMap) {
        self.close(headers);
        self.inbound.listener.end(());
    }

    /// Returns whether any call in this session was given up while the server may still ask in the course of it.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.inbound.exchanges.has_given_up()
    }

    /// Returns whether there is no call in the course of which the server may ask, not even one that was given up.
    #[must_use]
    pub fn asks_nobody(&self) -> bool {
        // In this order: one that is given up is noted before it leaves the table.
        self.inbound.exchanges.newest(None).is_none() && !self.has_given_up()
    }
}

/// Gives up an exchange when it is dropped, if the exchange has not ended.
struct ExchangeGuard {
    exchanges: Arc<Exchanges>,
    number: u64,
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        self.exchanges.cancel(self.number);
    }
}

impl UpstreamGuard {
    /// Returns the session.
    #[must_use]
    pub fn get(&self) -> &Arc<UpstreamSession> {
        &self.session
    }

    /// Makes room for another session, as the server has forgotten this one.
    pub fn vacate(&self) {
        if let Some(kept) = &self.kept {
            kept.vacate();
        }
    }
}

impl Drop for UpstreamGuard {
    fn drop(&mut self) {
        self.session.touch();
        // First, so that a session that counts as unused is not kept by this use either.
        drop(self.kept.take());
        // SeqCst pairs with `close_when_unused`, and with `idle` and `unused_since`.
        let last = self.session.uses.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.session.closing.load(Ordering::SeqCst) {
            self.session.close_unused(self.session.headers_of_its_own());
        }
        if let Some(unused) = &self.session.unused {
            unused.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_is_not_in_use_by_a_request_that_the_server_has_not_answered_in_time() {
        let session = UpstreamSession::nowhere("/mcp");
        let answer = session.request("ping", "{}", HeaderMap::new()).await;
        assert!(matches!(answer, Err(Failure::TimedOut(REQUEST_TIMEOUT))));
        assert!(session.unused_since().is_some());
    }

    #[test]
    fn even_the_shortest_use_of_a_session_shows_in_when_it_was_used_last() {
        let session = UpstreamSession::nowhere("/mcp");
        for _ in 0..1000 {
            let before = session.unused_since();
            drop(session.hold());
            assert!(before.is_some() && session.unused_since() > before);
        }
    }
}
