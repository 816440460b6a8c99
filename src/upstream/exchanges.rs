//! The requests in flight on one link. An exchange outlives the handler that started it.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::{
    Failure, MAX_MESSAGE,
    http::{AnswerBody, read},
};
use crate::{
    flow::{Capacity, Outbox, Pushed},
    observe::{Observer, events},
    wire::{Kind, Message, message::MAX_ID},
};

/// How many requests of one session may be in flight at once.
pub const MAX_IN_FLIGHT: usize = 1024;

/// How many of the upstream's own requests in the course of one exchange are remembered, with ids no longer than ours.
const MAX_ASKED: usize = 64;

/// Room for how many exchanges a session without any keeps.
const KEPT_ROOM: usize = 64;

/// How often it is looked whether the response has come while a task of its own carries the exchange. One that ends soon
/// after the response leaves its connection to others; one that does not is given up.
const LINGER: Duration = Duration::from_secs(5);

/// How long a reader that is behind may take for what waits, where more must not be dropped.
const READING: Duration = Duration::from_secs(2);

/// How an exchange ends: with the upstream's response, or without one.
pub type ExchangeEnd = Result<UpstreamResponse, Failure>;

/// An upstream's response.
#[derive(Debug)]
pub enum UpstreamResponse {
    /// Read whole.
    Whole(Message),
    /// A large one that is still arriving; only where [`super::Outgoing::relay`] allows it.
    Large {
        /// Its beginning.
        first: Bytes,
        /// The rest.
        rest: AnswerBody,
    },
}

impl UpstreamResponse {
    /// The whole response, read to its end.
    ///
    /// # Errors
    /// [`Failure`] if the rest does not arrive, is too large or is no response.
    pub async fn whole(self) -> Result<Message, Failure> {
        match self {
            Self::Whole(message) => Ok(message),
            Self::Large { first, rest } => {
                let document = read(first, rest, MAX_MESSAGE).await?;
                Message::of_server(document).map_err(|malformed| Failure::BadAnswer(malformed.of_server()))
            }
        }
    }
}

/// The exchanges of one link by the number that stands for the client's id towards the upstream.
#[derive(Debug)]
pub struct Exchanges {
    next: AtomicU64,
    open: Mutex<HashMap<u64, InFlight>>,
    /// What may wait for the listeners.
    outbox: Arc<Capacity>,
    observer: Arc<Observer>,
}

#[derive(Debug)]
struct InFlight {
    shared: Arc<ExchangeState>,
    client_id: Option<Box<str>>,
    purpose: Purpose,
    transport: Option<AbortHandle>,
    /// The raw ids of what the upstream has asked in the course of this request.
    asked: Vec<Box<str>>,
    /// It was cancelled: what may still come is delivered, but it claims nothing that could be another one's.
    cancelled: bool,
    /// It was open already when silence was looked for the last time.
    waited: bool,
}

/// Who waits for an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client's open request.
    Foreground,
    /// A task.
    Background,
}

/// The session has [`MAX_IN_FLIGHT`] requests in flight.
#[derive(Debug)]
pub struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit reached: the session has {MAX_IN_FLIGHT} requests in flight; wait for some of them to end")
    }
}

/// What both ends of an exchange have in common.
#[derive(Debug)]
pub(super) struct ExchangeState {
    pub(super) outbox: Outbox<ExchangeEnd>,
    /// The upstream answers with a stream.
    pub(super) streams: AtomicBool,
}

impl Exchanges {
    /// No exchanges yet; `outbox` says what may wait for the listener of each.
    #[must_use]
    pub fn new(outbox: Arc<Capacity>, observer: Arc<Observer>) -> Arc<Self> {
        Arc::new(Self { next: AtomicU64::new(1), open: Mutex::default(), outbox, observer })
    }

    /// Registers a new exchange under the next number, for [`Exchanges::begin`].
    ///
    /// # Errors
    /// [`TooMany`]
    pub(super) fn register(
        &self,
        client_id: Option<&str>,
        purpose: Purpose,
    ) -> Result<(u64, Arc<ExchangeState>), TooMany> {
        let mut open = self.open.lock();
        // Tasks do not count: they have limits of their own, and were acknowledged under them.
        let plain = || open.values().filter(|open| open.purpose == Purpose::Foreground).count();
        if purpose == Purpose::Foreground && open.len() >= MAX_IN_FLIGHT && plain() >= MAX_IN_FLIGHT {
            return Err(TooMany);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(ExchangeState { outbox: Outbox::new(&self.outbox), streams: AtomicBool::new(false) });
        let (transport, asked, cancelled, waited) = (None, Vec::new(), false, false);
        let (listened, client_id) = (Arc::clone(&shared), client_id.map(Box::from));
        open.insert(number, InFlight { shared, client_id, purpose, transport, asked, cancelled, waited });
        Ok((number, listened))
    }

    /// Names the task that goes on carrying an exchange, to be stopped with it.
    pub(super) fn carried_by(&self, number: u64, transport: AbortHandle) {
        if let Some(open) = self.open.lock().get_mut(&number) {
            open.transport = Some(transport);
        }
    }

    /// Notes that the upstream answers with a stream, and lets who listens begin with it, before the first message.
    pub fn streams(&self, number: u64) {
        if let Some(open) = self.open.lock().get(&number) {
            open.shared.streams.store(true, Ordering::Release);
            open.shared.outbox.tell_silence();
        }
    }

    /// Tells who listens that the upstream has ended the connection, not the stream, and is asked again after `pause`.
    pub fn pause(&self, number: u64, pause: Duration) {
        if let Some(open) = self.open.lock().get(&number) {
            open.shared.outbox.pause(pause);
        }
    }

    /// Tells those who wait that nothing has come, in the exchanges that were open at the last call already. One call
    /// every few seconds costs less than a timer for each exchange.
    pub fn tell_silence(&self) {
        for open in self.open.lock().values_mut() {
            if open.purpose == Purpose::Foreground && std::mem::replace(&mut open.waited, true) {
                open.shared.outbox.tell_silence();
            }
        }
    }

    /// Hands a message of the upstream to whoever listens to the exchange. Gives it back where the number is unknown or
    /// its exchange has ended.
    pub fn push(&self, number: u64, message: Message) -> Option<Message> {
        let shared = match self.open.lock().get_mut(&number) {
            Some(open) => {
                if let (Kind::Request, Some(id)) = (message.kind(), message.id().filter(|id| id.len() <= MAX_ID)) {
                    if open.asked.len() == MAX_ASKED {
                        open.asked.remove(0);
                    }
                    open.asked.push(id.into());
                }
                Arc::clone(&open.shared)
            }
            None => return Some(message),
        };
        match shared.outbox.push(message) {
            Pushed::Kept => {}
            Pushed::Dropped(count) => self.observer.emit(events::MessagesDropped { count }),
            Pushed::Full => self.end(number, Err(Failure::ClientTooSlow)),
        }
        None
    }

    /// Waits for room for a request of the upstream in the course of an exchange, as long as it makes sense: a burst of
    /// requests is no sign that nobody reads.
    pub async fn room_for(&self, number: u64, request: &Message) {
        let shared = self.open.lock().get(&number).map(|open| Arc::clone(&open.shared));
        if let Some(shared) = shared.filter(|shared| !shared.outbox.has_room_for(request)) {
            let _ = tokio::time::timeout(READING, shared.outbox.emptied()).await;
        }
    }

    /// Resolves some time after an exchange has ended: the answer came elsewhere, or does not end with the response, and must
    /// not be carried for ever when nobody waits for it.
    pub(super) async fn outlived(&self, number: u64) {
        loop {
            tokio::time::sleep(LINGER).await;
            if !self.is_open(number) {
                return;
            }
        }
    }

    fn take(&self, number: u64) -> Option<InFlight> {
        let mut open = self.open.lock();
        let taken = open.remove(&number);
        if open.is_empty() && open.capacity() > KEPT_ROOM {
            *open = HashMap::new();
        }
        taken
    }

    /// Ends an exchange. An ending for an unknown number, late or invented, is counted and dropped.
    pub fn end(&self, number: u64, ending: ExchangeEnd) {
        match (self.take(number), ending) {
            (Some(open), ending) => open.shared.outbox.end(ending),
            (None, Ok(_)) => self.observer.emit(events::UnknownResponse),
            (None, Err(_)) => {}
        }
    }

    /// Notes that an exchange was cancelled, and may still end by itself. Returns whether that is new.
    pub fn cancelling(&self, number: u64) -> bool {
        self.open.lock().get_mut(&number).is_some_and(|open| !std::mem::replace(&mut open.cancelled, true))
    }

    /// Ends an exchange that was cancelled without waiting for the upstream, and stops what carries it.
    pub fn cancel(&self, number: u64) {
        if let Some(open) = self.take(number) {
            open.shared.outbox.end(Err(Failure::Cancelled));
            if let Some(transport) = open.transport {
                transport.abort();
            }
        }
    }

    /// Ends every exchange for the same reason.
    pub fn abandon_all(&self, failure: &Failure) {
        let all = std::mem::take(&mut *self.open.lock());
        for open in all.into_values() {
            open.shared.outbox.end(Err(failure.clone()));
            if let Some(transport) = open.transport {
                transport.abort();
            }
        }
    }

    /// The foreground exchange that stands for the client's request `client_id`, the newest if the client has used
    /// the id twice.
    #[must_use]
    pub fn of_client(&self, client_id: &str) -> Option<u64> {
        let open = self.open.lock();
        let matching = open.iter().filter(|(_, open)| open.client_id.as_deref() == Some(client_id));
        matching.map(|(number, _)| *number).max()
    }

    /// The exchange in the course of which the upstream has asked its request `id`.
    #[must_use]
    pub fn asked(&self, id: &str) -> Option<u64> {
        let open = self.open.lock();
        open.iter().find(|(_, open)| open.asked.iter().any(|asked| &**asked == id)).map(|(number, _)| *number)
    }

    /// The only exchange in flight, if there is just one, and it has that purpose. Those that were cancelled do not count.
    #[must_use]
    pub fn only(&self, purpose: Option<Purpose>) -> Option<u64> {
        let open = self.open.lock();
        let mut in_flight = open.iter().filter(|(_, open)| !open.cancelled);
        let only = in_flight.next().filter(|_| in_flight.next().is_none());
        only.filter(|(_, open)| purpose.is_none_or(|purpose| open.purpose == purpose)).map(|(number, _)| *number)
    }

    /// The newest exchange of that purpose, or, if any will do, rather one that a client's request waits for. Those that
    /// were cancelled do not count.
    #[must_use]
    pub fn newest(&self, purpose: Option<Purpose>) -> Option<u64> {
        let open = self.open.lock();
        let fits = |open: &InFlight| !open.cancelled && purpose.is_none_or(|purpose| open.purpose == purpose);
        let fit = open.iter().filter(|(_, open)| fits(open));
        let newest = fit.max_by_key(|(number, open)| (open.purpose == Purpose::Foreground, **number));
        newest.map(|(number, _)| *number)
    }

    /// Whether an exchange has neither ended nor been cancelled.
    #[must_use]
    pub fn is_in_flight(&self, number: u64) -> bool {
        self.open.lock().get(&number).is_some_and(|open| !open.cancelled)
    }

    /// Whether an exchange has not ended that a client's request waits for.
    #[must_use]
    pub fn is_foreground(&self, number: u64) -> bool {
        self.open.lock().get(&number).is_some_and(|open| open.purpose == Purpose::Foreground)
    }

    /// Whether an exchange is the call of a task.
    #[must_use]
    pub fn is_task(&self, number: u64) -> bool {
        self.open.lock().get(&number).is_some_and(|open| open.purpose == Purpose::Background)
    }

    /// Whether an exchange has not ended.
    #[must_use]
    pub fn is_open(&self, number: u64) -> bool {
        self.open.lock().contains_key(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_the_upstream_has_asked_the_newest_is_remembered() {
        let exchanges = Exchanges::new(Capacity::new(1 << 20, 1 << 20), Arc::default());
        let exchange = exchanges.begin(None, Purpose::Background).expect("room");
        for id in 0..=MAX_ASKED {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#);
            assert!(exchanges.push(exchange.number, Message::parse(text.into()).expect("valid")).is_none());
        }
        let asked = |id: usize| exchanges.asked(&id.to_string());
        assert_eq!((asked(0), asked(MAX_ASKED - 1), asked(MAX_ASKED)), (None, Some(1), Some(1)));
    }
}
