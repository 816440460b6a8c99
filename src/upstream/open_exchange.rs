//! One request in flight, as the table of a link knows it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
};

use tokio::task::AbortHandle;

use super::{ExchangeEnd, Failure, Purpose, points::TrackedPoints};
use crate::flow::Outbox;

/// How many requests of one session may be in flight at once.
pub const MAX_IN_FLIGHT: usize = 1024;

/// What the listening end of an exchange shares with the table.
#[derive(Debug)]
pub(super) struct ExchangeState {
    /// The messages of the upstream, and the end, on their way to the listener.
    pub(super) outbox: Outbox<ExchangeEnd>,
    /// Whether the upstream answers with a stream.
    pub(super) streams: AtomicBool,
    /// Whether it has ended, and the server does no more work for it.
    pub(super) over: AtomicBool,
    /// The HTTP error status of the response; 0 without one.
    pub(super) status: AtomicU16,
    /// [`super::Exchange::hear_silence`]
    pub(super) hears_silence: AtomicBool,
    /// Where a later process can resume the answer, if that is tracked.
    pub(super) points: TrackedPoints,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Where its listener finds what comes.
    pub(super) state: Arc<ExchangeState>,
    /// The raw id of the client's request, if it is one.
    pub(super) client_id: Option<Box<str>>,
    /// What waits for it.
    pub(super) purpose: Purpose,
    /// The task that carries it, if one does.
    pub(super) carried_by: Option<AbortHandle>,
    /// The raw ids of the requests that the upstream has sent during this exchange.
    pub(super) asked: Vec<Box<str>>,
    /// Whether it was cancelled: it still gets messages with its number, but none that could belong to another
    /// exchange.
    pub(super) cancelled: bool,
    /// Whether nothing without its number belongs to it, so that it asks nothing.
    pub(super) apart: bool,
    /// Whether it was open at the last call of [`super::Exchanges::tell_silence`].
    pub(super) waited: bool,
}

impl ExchangeState {
    /// Tells the listener how the exchange has ended.
    pub(super) fn end(&self, ending: ExchangeEnd) {
        // Here it is taskgate that gives the request up, and the server goes on.
        let goes_on = matches!(ending, Err(Failure::OwnFault | Failure::ClientTooSlow));
        // Pairs with the load in `Exchange::is_over`.
        self.over.store(!goes_on, Ordering::Release);
        self.outbox.end(ending);
    }
}

impl InFlight {
    /// Returns whether a message without a number may belong to it.
    pub(super) fn may_own(&self) -> bool {
        self.may_be_answered() && !self.apart
    }

    /// Returns whether the server may still ask in its course after this failure. One that has asked was at work,
    /// whatever HTTP status comes then.
    pub(super) fn may_go_on_after(&self, failure: &Failure) -> bool {
        let was_at_work = matches!(failure, Failure::Http(_)) && !self.asked.is_empty();
        !self.apart && (was_at_work || failure.leaves_the_server_working())
    }

    /// Returns whether a response without an id may be its own.
    pub(super) fn may_be_answered(&self) -> bool {
        !self.cancelled && self.purpose != Purpose::Listening
    }
}

/// The session has [`MAX_IN_FLIGHT`] requests in flight.
#[derive(Debug)]
pub struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit reached: the session has {MAX_IN_FLIGHT} requests in flight; wait for some of them to end")
    }
}
