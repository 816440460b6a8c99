//! The listening end of one request in flight, and the work that carries the request.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use ::http::StatusCode;
use tokio::task::JoinHandle;

use super::{ExchangeEnd, Exchanges, Failure, Purpose, TooMany, open_exchange::ExchangeState};
use crate::flow::Item;

/// How long a server may take to say whether it refuses a request whose session it has forgotten.
const LAST_WORD: Duration = Duration::from_secs(5);

/// The work that sends an exchange's request and receives its answer.
pub type Carrier = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The listening end of an exchange. It also carries the exchange while a listener polls it, which saves a task and its
/// wake-ups. When it is dropped, because the client has left or does not wait, a task goes on with the work.
pub struct Exchange {
    /// The number that stands for the client's id and progress token towards the upstream.
    pub number: u64,
    state: Arc<ExchangeState>,
    /// The exchanges of its link.
    pub(super) all: Arc<Exchanges>,
    /// The work, while the listener does it.
    pub(super) carrier: Option<Carrier>,
    /// The task that the work was left to.
    pub(super) detached: Option<JoinHandle<()>>,
}

impl Exchanges {
    /// Begins a new exchange, for the client's request `client_id` if there is one.
    ///
    /// # Errors
    /// [`TooMany`]
    pub fn begin(self: &Arc<Self>, client_id: Option<&str>, purpose: Purpose) -> Result<Exchange, TooMany> {
        self.begin_as(client_id, purpose, false, None)
    }

    /// Begins a new exchange as [`Self::begin`] does, in the course of which the server asks nothing, and tells nothing
    /// without its number. It is so from the first moment on: what the server asks then belongs to the call beside it.
    ///
    /// # Errors
    /// [`TooMany`]
    pub fn begin_apart(self: &Arc<Self>, client_id: Option<&str>, purpose: Purpose) -> Result<Exchange, TooMany> {
        self.begin_as(client_id, purpose, true, None)
    }

    /// Goes on with the exchange of a task that an earlier process began under this number.
    ///
    /// # Errors
    /// [`TooMany`]
    pub(super) fn begin_again(self: &Arc<Self>, number: u64) -> Result<Exchange, TooMany> {
        self.begin_as(None, Purpose::Background, false, Some(number))
    }

    fn begin_as(
        self: &Arc<Self>,
        client_id: Option<&str>,
        purpose: Purpose,
        apart: bool,
        resumed: Option<u64>,
    ) -> Result<Exchange, TooMany> {
        let (number, state) = self.register(client_id, purpose, apart, resumed)?;
        Ok(Exchange { number, state, all: Arc::clone(self), carrier: None, detached: None })
    }
}

impl Exchange {
    /// Returns what it shares with the table.
    pub(super) fn state(&self) -> &ExchangeState {
        &self.state
    }

    /// Takes over the work of carrying the exchange.
    pub fn carry(&mut self, carrier: Option<Carrier>) {
        self.carrier = carrier;
    }

    /// Waits until nothing carries the exchange any more, once it has ended or was cancelled.
    pub async fn gone(&mut self) {
        self.carrier = None;
        if let Some(detached) = &mut self.detached {
            // A task that was aborted is gone as well.
            let _ = detached.await;
            self.detached = None;
        }
    }

    /// Returns whether the server has refused the request itself, and not run it, as it has forgotten the session.
    /// Where the exchange has ended first, because another request was refused, waits a moment for the server's word on
    /// this one.
    pub async fn was_refused(&mut self) -> bool {
        if self.streams() {
            return false;
        }
        if let Some(carrier) = self.carrier.take() {
            // A server that says nothing may have run it.
            let _ = tokio::time::timeout(LAST_WORD, carrier).await;
        }
        self.all.take_refused(self.number)
    }

    /// Waits for what comes next; `None` after the end.
    pub async fn next(&mut self) -> Option<Item<ExchangeEnd>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for what comes next; `None` after the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item<ExchangeEnd>>> {
        if self.carrier.is_some() {
            // Otherwise the work below would wake the task that is doing it.
            if let Some(message) = self.state.outbox.take() {
                return Poll::Ready(Some(Item::Message(message)));
            }
            // Taken out, so that work that panics is not polled again.
            let carrier = self.carrier.take();
            let _carried = Carried { all: &self.all, number: self.number };
            self.carrier = carrier.and_then(|mut carrier| carrier.as_mut().poll(cx).is_pending().then_some(carrier));
        }
        self.state.outbox.poll_next(cx)
    }

    /// Returns the HTTP error status that the response came with, if it came with one.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        // Pairs with the store in `Exchanges::note_status`.
        StatusCode::from_u16(self.state.status.load(Ordering::Acquire)).ok()
    }

    /// Sets whether the listener is told of a silence though the exchange is in the background: a client's request that
    /// comes in no session waits for it.
    pub fn hear_silence(&self, hears: bool) {
        self.state.hears_silence.store(hears, Ordering::Relaxed);
    }

    /// Returns whether it has ended, and the server does no more work for it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        // Pairs with the store in `ExchangeState::end`.
        self.state.over.load(Ordering::Acquire)
    }

    /// Notes that the server was told to do no more work for it.
    pub fn set_over(&self) {
        // Pairs with the load in `is_over`.
        self.state.over.store(true, Ordering::Release);
    }

    /// Returns whether it was cancelled, and is still open.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.all.is_cancelled(self.number)
    }

    /// Returns whether the upstream answers with a stream.
    #[must_use]
    pub fn streams(&self) -> bool {
        // Pairs with the store in `Exchanges::note_stream`.
        self.state.streams.load(Ordering::Acquire)
    }
}

/// Ends an exchange whose work panics, as nothing else ends it.
pub(super) struct Carried<'a> {
    pub(super) all: &'a Exchanges,
    pub(super) number: u64,
}

impl Drop for Carried<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.all.end(self.number, Err(Failure::OwnFault));
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("number", &self.number).finish_non_exhaustive()
    }
}
