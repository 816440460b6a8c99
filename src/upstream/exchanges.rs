//! The requests in flight on one link. An exchange outlives the handler that started it.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering},
    },
    time::Duration,
};

use ::http::StatusCode;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::{
    ExchangeEnd, Failure, Purpose, UpstreamResponse,
    open_exchange::{ExchangeState, InFlight, MAX_IN_FLIGHT, TooMany},
    points::{TrackedPoints, follow},
};
use crate::{
    flow::{Capacity, Outbox, Pushed},
    observe::{Observer, events},
    wire::{Kind, Message, Method, message::MAX_ID, params::unescaped, response::result_response},
};

/// How many requests of the upstream are remembered for each exchange, each with an id of at most [`MAX_ID`] bytes.
pub(super) const MAX_ASKED: usize = 64;

/// For how many exchanges a session that has none keeps room.
const KEPT_ROOM: usize = 64;

/// How long a slow reader may take to empty its queue when the next message must not be dropped.
const READING: Duration = Duration::from_secs(2);

/// The exchanges of one link, by the number that stands for the client's id towards the upstream.
#[derive(Debug)]
pub struct Exchanges {
    /// The next number.
    next: AtomicU64,
    /// The exchanges that have not ended, by their numbers.
    open: Mutex<HashMap<u64, InFlight>>,
    /// The numbers of requests that the server has refused, and not run, as it has forgotten the session.
    refused: Mutex<HashSet<u64>>,
    /// Whether any exchange was given up while the server may still ask in the course of it.
    given_up: AtomicBool,
    /// Whether this table has ever tracked the points from which answers can be resumed.
    pub(super) tracks: AtomicBool,
    /// How many bytes may wait for the listeners.
    outbox: Arc<Capacity>,
    observer: Arc<Observer>,
}

impl Exchanges {
    /// Creates an empty table; `outbox` bounds what may wait for the listener of each exchange.
    #[must_use]
    pub fn new(outbox: Arc<Capacity>, observer: Arc<Observer>) -> Arc<Self> {
        let (next, given_up, tracks) = (AtomicU64::new(1), AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { next, open: Mutex::default(), refused: Mutex::default(), given_up, tracks, outbox, observer })
    }

    /// Registers a new exchange under the next number, or under that of a call which an earlier process began. Of what
    /// the server sends, only messages with its number belong to one that is `apart`.
    ///
    /// # Errors
    /// [`TooMany`]
    pub(super) fn register(
        &self,
        client_id: Option<&str>,
        purpose: Purpose,
        apart: bool,
        resumed: Option<u64>,
    ) -> Result<(u64, Arc<ExchangeState>), TooMany> {
        let mut open = self.open.lock();
        // Tasks do not count: they have limits of their own, under which they were acknowledged.
        let plain = || open.values().filter(|open| open.purpose == Purpose::Foreground).count();
        if purpose == Purpose::Foreground && open.len() >= MAX_IN_FLIGHT && plain() >= MAX_IN_FLIGHT {
            return Err(TooMany);
        }
        let number = resumed.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        let state = Arc::new(ExchangeState {
            outbox: Outbox::new(&self.outbox),
            streams: AtomicBool::new(false),
            over: AtomicBool::new(false),
            status: AtomicU16::new(0),
            hears_silence: AtomicBool::new(false),
            points: TrackedPoints::new(),
        });
        let (carried_by, asked, cancelled, waited) = (None, Vec::new(), false, false);
        let (listened, client_id) = (Arc::clone(&state), client_id.map(Box::from));
        open.insert(number, InFlight { state, client_id, purpose, carried_by, asked, cancelled, apart, waited });
        Ok((number, listened))
    }

    /// Notes which task carries an exchange, so that it can be stopped with the exchange.
    pub(super) fn carried_by(&self, number: u64, task: AbortHandle) {
        if let Some(open) = self.open.lock().get_mut(&number) {
            open.carried_by = Some(task);
        }
    }

    /// Notes that the upstream answers with a stream, and lets the listener begin its own before the first message.
    pub fn note_stream(&self, number: u64) {
        if let Some(open) = self.open.lock().get(&number) {
            // Pairs with the load in `Exchange::streams`.
            open.state.streams.store(true, Ordering::Release);
            open.state.outbox.tell_silence();
        }
    }

    /// Notes which HTTP error status an exchange is about to end with.
    pub fn note_status(&self, number: u64, status: StatusCode) {
        if let Some(open) = self.open.lock().get(&number) {
            // Pairs with the load in `Exchange::status`.
            open.state.status.store(status.as_u16(), Ordering::Release);
        }
    }

    /// Tells the listener that the upstream has ended the connection but not the stream, and is asked again after
    /// `pause`.
    pub fn pause(&self, number: u64, pause: Duration) {
        if let Some(open) = self.open.lock().get(&number) {
            open.state.outbox.pause(pause);
        }
    }

    /// Notes that a task waits for an exchange, and no client's request any more.
    pub(super) fn leave_to_task(&self, number: u64) {
        if let Some(open) = self.open.lock().get_mut(&number) {
            (open.client_id, open.purpose) = (None, Purpose::Background);
        }
    }

    /// Tells the listeners of exchanges that were open at the last call already, and for which a client's request waits,
    /// that nothing has come. One call every few seconds costs less than a timer for each exchange.
    pub fn tell_silence(&self) {
        for open in self.open.lock().values_mut() {
            let hears = open.purpose == Purpose::Foreground || open.state.hears_silence.load(Ordering::Relaxed);
            if hears && std::mem::replace(&mut open.waited, true) {
                open.state.outbox.tell_silence();
            }
        }
    }

    /// Hands a message of the upstream to the listener of an exchange. Gives the message back if the number is unknown
    /// or its exchange has ended.
    pub fn push(&self, number: u64, message: Message) -> Option<Message> {
        let state = match self.open.lock().get_mut(&number) {
            Some(open) => {
                if let (Kind::Request, Some(id)) = (message.kind(), message.id().filter(|id| id.len() <= MAX_ID))
                    // The server does not depend on an answer to it.
                    && message.method() != Method::Ping
                {
                    if open.asked.len() == MAX_ASKED {
                        open.asked.remove(0);
                    }
                    open.asked.push(id.into());
                }
                follow(&open.state.points, &message);
                Arc::clone(&open.state)
            }
            None => return Some(message),
        };
        match state.outbox.push(message) {
            Pushed::Kept => {}
            Pushed::Dropped(count) => self.observer.emit(events::MessagesDropped { count }),
            Pushed::Full => self.end(number, Err(Failure::ClientTooSlow)),
        }
        None
    }

    /// Waits a moment for room for a request that the upstream sends during an exchange: a burst of requests does not
    /// yet mean that the client has stopped reading.
    pub async fn room_for(&self, number: u64, request: &Message) {
        if let Some(state) = self.state(number).filter(|state| !state.outbox.has_room_for(request)) {
            let _ = tokio::time::timeout(READING, state.outbox.emptied()).await;
        }
    }

    /// Returns what the listener of an exchange shares with the table.
    pub(super) fn state(&self, number: u64) -> Option<Arc<ExchangeState>> {
        self.open.lock().get(&number).map(|open| Arc::clone(&open.state))
    }

    /// Returns the number that the next exchange will have.
    pub(super) fn next_number(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Gives new exchanges numbers from `first` on.
    pub(super) fn number_from(&self, first: u64) {
        self.next.store(first, Ordering::Relaxed);
    }

    fn take(&self, number: u64, failure: Option<&Failure>) -> Option<InFlight> {
        let mut open = self.open.lock();
        let taken = open.remove(&number);
        if let (Some(taken), Some(failure)) = (&taken, failure) {
            // A body that is too large is the answer, and in a stream it may be anything.
            let is_answer = matches!(failure, Failure::TooLarge(_)) && !taken.state.streams.load(Ordering::Acquire);
            if !is_answer {
                self.note_given_up(taken, failure);
            }
        }
        if open.is_empty() && open.capacity() > KEPT_ROOM {
            *open = HashMap::new();
        }
        taken
    }

    /// Notes that an exchange is about to end after this failure, whatever its listener gets.
    pub(super) fn note_failure(&self, number: u64, failure: &Failure) {
        if let Some(open) = self.open.lock().get(&number) {
            self.note_given_up(open, failure);
        }
    }

    /// Notes that an exchange fails, before it leaves the table.
    fn note_given_up(&self, open: &InFlight, failure: &Failure) {
        self.given_up.fetch_or(open.may_go_on_after(failure), Ordering::Relaxed);
    }

    /// Ends an exchange. Counts and drops a response to an unknown number, which is late or invented.
    pub fn end(&self, number: u64, ending: ExchangeEnd) {
        match (self.take(number, ending.as_ref().err()), ending) {
            (Some(open), ending) => open.state.end(ending),
            (None, Ok(_)) => self.observer.emit(events::UnknownResponse),
            (None, Err(_)) => {}
        }
    }

    /// Ends a subscription that the server has torn down, as if it had answered it. Returns whether there is one of
    /// that number.
    pub fn tear_down(&self, number: u64) -> bool {
        let listens = |open: &InFlight| open.purpose == Purpose::Listening;
        if !self.open.lock().get(&number).is_some_and(listens) {
            return false;
        }
        let answer = result_response(&number.to_string(), r#"{"resultType":"complete"}"#);
        let answer = Message::parse(answer).map_err(|malformed| Failure::BadAnswer(malformed.to_string()));
        self.end(number, answer.map(UpstreamResponse::Whole));
        true
    }

    /// Notes that an exchange was cancelled, although it may still end by itself. Returns whether it was
    /// cancelled before; `None` where it is not open.
    pub fn cancelling(&self, number: u64) -> Option<bool> {
        let mut open = self.open.lock();
        let open = open.get_mut(&number)?;
        self.given_up.fetch_or(!open.apart, Ordering::Relaxed);
        Some(std::mem::replace(&mut open.cancelled, true))
    }

    /// Returns whether an open exchange was cancelled.
    pub(super) fn is_cancelled(&self, number: u64) -> bool {
        self.open.lock().get(&number).is_some_and(|open| open.cancelled)
    }

    /// Returns whether any exchange was cancelled or failed while the server may still ask in the course of it.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Notes that the server has refused a request, as it has forgotten the session.
    pub fn note_refused(&self, number: u64) {
        self.refused.lock().insert(number);
    }

    /// Returns whether the server has refused a request. Says so once.
    pub(super) fn take_refused(&self, number: u64) -> bool {
        self.refused.lock().remove(&number)
    }

    /// Ends a cancelled exchange without waiting for the upstream, and stops the task that carries it.
    pub fn cancel(&self, number: u64) {
        if let Some(open) = self.take(number, None) {
            open.state.end(Err(Failure::Cancelled));
            if let Some(task) = open.carried_by {
                task.abort();
            }
        }
    }

    /// Ends every exchange for the same reason.
    pub fn abandon_all(&self, failure: &Failure) {
        self.abandon(failure, |_| true);
    }

    /// Ends every exchange for which no stream of the upstream has begun, for the same reason.
    pub fn abandon_silent(&self, failure: &Failure) {
        // Pairs with the store in `Exchanges::note_stream`.
        self.abandon(failure, |open| !open.state.streams.load(Ordering::Acquire));
    }

    fn abandon(&self, failure: &Failure, is_meant: impl Fn(&InFlight) -> bool) {
        let abandoned: Vec<InFlight> = {
            let mut open = self.open.lock();
            let taken = open.extract_if(|_, open| is_meant(open)).map(|(_, open)| open);
            taken.inspect(|open| self.note_given_up(open, failure)).collect()
        };
        for open in abandoned {
            open.state.end(Err(failure.clone()));
            if let Some(task) = open.carried_by {
                task.abort();
            }
        }
    }

    /// Returns the foreground exchange of the client's request `id`; the newest if the client has used the id twice.
    #[must_use]
    pub fn of_client(&self, id: &str) -> Option<u64> {
        let (id, open) = (Some(unescaped(id)), self.open.lock());
        let matching = open.iter().filter(|(_, open)| open.client_id.as_deref().map(unescaped) == id);
        matching.map(|(number, _)| *number).max()
    }

    /// Returns the exchange during which the upstream has sent its request `id`.
    #[must_use]
    pub fn asked(&self, id: &str) -> Option<u64> {
        let open = self.open.lock();
        open.iter().find(|(_, open)| open.asked.iter().any(|asked| &**asked == id)).map(|(number, _)| *number)
    }

    /// Returns the only exchange in flight, if there is exactly one and it has that purpose. Cancelled ones do not
    /// count.
    #[must_use]
    pub fn only(&self, purpose: Option<Purpose>) -> Option<u64> {
        let (number, its) = self.single(InFlight::may_own)?;
        purpose.is_none_or(|purpose| its == purpose).then_some(number)
    }

    /// Returns the only exchange that a response without an id may answer.
    #[must_use]
    pub fn only_answerable(&self) -> Option<u64> {
        self.single(InFlight::may_be_answered).map(|(number, _)| number)
    }

    fn single(&self, counts: fn(&InFlight) -> bool) -> Option<(u64, Purpose)> {
        let open = self.open.lock();
        let mut counted = open.iter().filter(|(_, open)| counts(open));
        counted.next().filter(|_| counted.next().is_none()).map(|(number, open)| (*number, open.purpose))
    }

    /// Returns the newest exchange of that purpose. Without a purpose, prefers one that a client's request waits for.
    /// Cancelled ones do not count.
    #[must_use]
    pub fn newest(&self, purpose: Option<Purpose>) -> Option<u64> {
        let open = self.open.lock();
        let fits = |open: &InFlight| open.may_own() && purpose.is_none_or(|purpose| open.purpose == purpose);
        let fit = open.iter().filter(|(_, open)| fits(open));
        let newest = fit.max_by_key(|(number, open)| (open.purpose == Purpose::Foreground, **number));
        newest.map(|(number, _)| *number)
    }

    /// Returns whether an exchange is open, not cancelled, and no subscription.
    #[must_use]
    pub fn is_in_flight(&self, number: u64) -> bool {
        self.open.lock().get(&number).is_some_and(InFlight::may_own)
    }

    /// Returns whether the server may ask in the course of an exchange, also after it was cancelled.
    pub(super) fn may_have_asked(&self, number: u64) -> bool {
        self.open.lock().get(&number).is_none_or(|open| !open.apart && open.purpose != Purpose::Listening)
    }

    /// Returns whether an exchange is open that a response without an id may answer.
    #[must_use]
    pub fn may_be_answered(&self, number: u64) -> bool {
        self.open.lock().get(&number).is_some_and(InFlight::may_be_answered)
    }

    /// Returns whether an exchange is open and a client's request waits for it, perhaps a subscription.
    #[must_use]
    pub fn is_foreground(&self, number: u64) -> bool {
        self.open.lock().get(&number).is_some_and(|open| open.purpose != Purpose::Background)
    }

    /// Returns whether an exchange is open and is the call of a task.
    #[must_use]
    pub fn is_task(&self, number: u64) -> bool {
        self.open.lock().get(&number).is_some_and(|open| open.purpose == Purpose::Background)
    }

    /// Returns whether an exchange is open and a server may tell something in the course of it.
    #[must_use]
    pub fn may_tell(&self, number: u64) -> bool {
        self.open.lock().get(&number).is_some_and(|open| open.purpose != Purpose::Listening)
    }

    /// Returns whether an exchange is open: it has not ended.
    #[must_use]
    pub fn is_open(&self, number: u64) -> bool {
        self.open.lock().contains_key(&number)
    }
}
