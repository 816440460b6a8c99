//! Streams of events towards one client. A stream outlives its connections: its events have ids, the last ones are
//! kept, and the client can resume it where a connection broke (`resume.rs`).

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Full,
    ring::Ring,
    source::{Source, StreamItem},
};
use crate::{
    flow::Capacity,
    wire::{
        params::unescaped,
        sse::{self, EventId},
    },
};

/// The number of the GET stream, which delivers what belongs to no request.
pub(super) const GET_STREAM: u64 = 0;
/// How long a client waits before it reconnects, once a connection has broken.
const RETRY: Duration = Duration::from_secs(1);

/// The streams of one session.
#[derive(Debug)]
pub struct Streams {
    pub(super) table: Mutex<StreamTable>,
    /// Stands in every event id, so that an id of another session is recognised.
    pub(super) session: u32,
    /// Whether an earlier process had the session. Its event ids have another number than `session`.
    pub(super) restored: bool,
    /// Bounds the bytes of events that are kept, for each stream and in all. The newest event of a stream is always
    /// kept.
    pub(super) capacity: Arc<Capacity>,
    /// How many requests may be answered at once, each of which may need a stream.
    max: usize,
    /// Whether streams begin with an event that primes the client to resume, and may be interrupted.
    primes: bool,
}

#[derive(Debug, Default)]
pub(super) struct StreamTable {
    /// The number of the next stream.
    next: u64,
    pub(super) get_stream: Option<Arc<Stream>>,
    /// How many requests are being answered that have no stream yet.
    reserved: usize,
    /// Streams that answer a request, with a connection.
    pub(super) delivering: HashMap<u64, Arc<Stream>>,
    /// Streams that answer a request, without a connection, and since when; the oldest first.
    pub(super) kept: VecDeque<(Instant, Arc<Stream>)>,
}

/// One stream.
pub(super) struct Stream {
    pub(super) number: u64,
    /// The id of the stream's beginning.
    beginning: EventId,
    /// The raw id of the request that it answers.
    answers: Option<Box<str>>,
    pub(super) state: Mutex<StreamState>,
}

pub(super) struct StreamState {
    /// `None` after the stream's end.
    pub(super) source: Option<Box<dyn Source>>,
    pub(super) sent: Ring,
    /// The number of the last event.
    pub(super) last: u64,
    /// The number of the newest connection, which alone may deliver.
    pub(super) connection: u64,
    reader: Option<Waker>,
}

/// Room for one stream, given back when dropped.
#[derive(Debug)]
pub struct StreamRoom(Arc<Streams>);

impl Drop for StreamRoom {
    fn drop(&mut self) {
        self.0.table.lock().reserved -= 1;
    }
}

/// A connection that delivers a stream as encoded events.
#[derive(Debug)]
pub struct Connection {
    streams: Arc<Streams>,
    stream: Arc<Stream>,
    number: u64,
    /// The events after this one have to be replayed.
    replay_after: Option<u64>,
    /// Whether the client has its first event, or needs none that primes it.
    primed: bool,
    over: bool,
}

impl Streams {
    /// Returns the table of a session, where at most `max` streams answer requests at once. `primes` says whether the
    /// client knows events without data, and that a server may interrupt a stream.
    #[must_use]
    pub fn new(capacity: &Arc<Capacity>, max: usize, primes: bool) -> Arc<Self> {
        Self::create(capacity, max, primes, false)
    }

    /// Returns the table of a session that an earlier process had.
    #[must_use]
    pub fn restored(capacity: &Arc<Capacity>, max: usize, primes: bool) -> Arc<Self> {
        Self::create(capacity, max, primes, true)
    }

    fn create(capacity: &Arc<Capacity>, max: usize, primes: bool, restored: bool) -> Arc<Self> {
        let table = Mutex::new(StreamTable { next: GET_STREAM + 1, ..StreamTable::default() });
        let (session, ..) = Uuid::new_v4().as_fields();
        Arc::new(Self { table, session, restored, capacity: Arc::clone(capacity), max, primes })
    }

    /// Takes room for one more stream that answers a request, before the request is handled.
    ///
    /// # Errors
    /// [`Full::OfStreams`]
    pub fn reserve(self: &Arc<Self>) -> Result<StreamRoom, Full> {
        let mut table = self.table.lock();
        self.check_room(&table)?;
        table.reserved += 1;
        drop(table);
        Ok(StreamRoom(Arc::clone(self)))
    }

    pub(super) fn check_room(&self, table: &StreamTable) -> Result<(), Full> {
        if table.delivering.len() + table.reserved < self.max { Ok(()) } else { Err(Full::OfStreams(self.max)) }
    }

    /// Returns whether streams begin with an event that primes the client to resume, and may be interrupted.
    #[must_use]
    pub fn primes(&self) -> bool {
        self.primes
    }

    /// Opens a stream in answer to the request `id`, in the room that was taken for it.
    pub fn open(self: &Arc<Self>, id: &str, source: Box<dyn Source>, room: Option<StreamRoom>) -> Connection {
        let connection = self.open_in(&mut self.table.lock(), id, source);
        // For a moment it counts twice, so that it always counts.
        drop(room);
        connection
    }

    fn open_in(self: &Arc<Self>, table: &mut StreamTable, id: &str, source: Box<dyn Source>) -> Connection {
        let stream = self.new_stream(table.next, Some(id.into()), source);
        table.next += 1;
        table.delivering.insert(stream.number, Arc::clone(&stream));
        self.connect(stream, None)
    }

    /// Connects the GET stream, and opens it with `source` if there is none. An earlier connection of it ends: each
    /// message goes to one connection only.
    pub fn connect_get_stream(self: &Arc<Self>, source: impl FnOnce() -> Box<dyn Source>) -> Connection {
        let mut table = self.table.lock();
        let stream = Arc::clone(table.get_stream.get_or_insert_with(|| self.new_stream(GET_STREAM, None, source())));
        self.connect(stream, None)
    }

    /// Ends the stream in answer to the request `id`, which the client has cancelled. Returns whether there is one.
    pub fn cancel(&self, id: &str) -> bool {
        let id = Some(unescaped(id));
        let stream = {
            let mut table = self.table.lock();
            let of = |stream: &Stream| stream.answers.as_deref().map(unescaped) == id;
            let kept = table.kept.iter().position(|(_, stream)| of(stream));
            match kept.and_then(|at| table.kept.remove(at)) {
                Some((_, stream)) => Some(stream),
                None => table.delivering.values().find(|stream| of(stream)).cloned(),
            }
        };
        let Some(stream) = stream else { return false };
        let mut state = stream.state.lock();
        let (source, reader) = (state.finish(), state.reader.take());
        drop(state);
        drop(source);
        if let Some(reader) = reader {
            reader.wake();
        }
        true
    }

    /// Drops every stream; those that have a connection end by themselves.
    pub fn clear(&self) {
        let mut table = self.table.lock();
        let StreamTable { next, reserved, .. } = *table;
        let former = std::mem::replace(&mut *table, StreamTable { next, reserved, ..StreamTable::default() });
        drop(table);
        drop(former);
    }

    /// Returns a new connection of `stream`, and ends the former one.
    pub(super) fn connect(self: &Arc<Self>, stream: Arc<Stream>, replay_after: Option<u64>) -> Connection {
        let mut state = stream.state.lock();
        state.connection += 1;
        if let Some(former) = state.reader.take() {
            former.wake();
        }
        if let Some(source) = &mut state.source {
            source.attached(replay_after.is_some());
        }
        let number = state.connection;
        drop(state);
        let primed = !self.primes || replay_after.is_some();
        Connection { streams: Arc::clone(self), stream, number, replay_after, primed, over: false }
    }

    fn new_stream(&self, number: u64, answers: Option<Box<str>>, source: Box<dyn Source>) -> Arc<Stream> {
        let sent = Ring::new(Arc::clone(&self.capacity));
        let state = StreamState { source: Some(source), sent, last: 0, connection: 0, reader: None };
        let beginning = EventId { session: self.session, stream: number, event: 0 };
        Arc::new(Stream { number, beginning, answers, state: Mutex::new(state) })
    }
}

impl Connection {
    /// Polls for the next piece of the stream; `None` when the connection has to end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.stream.state.lock();
        if self.over || state.connection != self.number {
            return Poll::Ready(None);
        }
        if let Some(event) = state.replay(&mut self.replay_after) {
            return Poll::Ready(Some(event));
        }
        let Some(source) = &mut state.source else { return Poll::Ready(None) };
        let next = match source.poll_next(cx) {
            Poll::Pending if self.primed => {
                state.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Pending => {
                self.primed = true;
                return Poll::Ready(Some(sse::prime(state.id(self.stream.beginning), RETRY)));
            }
            Poll::Ready(None) => {
                self.over = true;
                // The source is dropped outside the lock, as its drop may take the lock.
                let source = state.finish();
                drop(state);
                drop(source);
                return Poll::Ready(None);
            }
            Poll::Ready(Some(next)) => next,
        };
        let primer =
            (!std::mem::replace(&mut self.primed, true)).then(|| sse::prime(state.id(self.stream.beginning), RETRY));
        let (question, document) = match next {
            StreamItem::Document(document) => (None, document),
            StreamItem::Question(question, document) => (Some(question), document),
            StreamItem::Pause(pause) => {
                self.over = true;
                return Poll::Ready(Some(sse::prime(state.id(self.stream.beginning), pause)));
            }
        };
        let event = state.keep(self.stream.beginning, question, &document);
        Poll::Ready(Some(match primer {
            Some(primer) => [primer, event].concat().into(),
            None => event,
        }))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        {
            let mut state = self.stream.state.lock();
            if state.connection != self.number {
                return;
            }
            state.reader = None;
            if let Some(source) = &mut state.source {
                source.detached();
            }
        }
        self.streams.keep(Arc::clone(&self.stream), self.number);
    }
}

impl StreamState {
    fn id(&self, beginning: EventId) -> EventId {
        EventId { event: self.last, ..beginning }
    }

    /// Encodes an event, and keeps it to be replayed.
    fn keep(&mut self, beginning: EventId, question: Option<Uuid>, document: &[u8]) -> Bytes {
        self.settle();
        self.last += 1;
        let event = sse::encode(document, Some(self.id(beginning)));
        self.sent.keep(self.last, question, event.clone());
        event
    }

    /// Returns the next event that has to be replayed.
    fn replay(&mut self, after: &mut Option<u64>) -> Option<Bytes> {
        let from = (*after)?;
        self.settle();
        let (number, event) = self.sent.after(from).unzip();
        *after = number;
        event
    }

    /// Removes the questions that are not to be answered here any more.
    fn settle(&mut self) {
        if let Some(source) = self.source.as_mut().filter(|_| self.sent.has_questions()) {
            self.sent.settle(source.settled());
        }
    }

    /// Ends the stream, and returns its source. No question is left to be answered.
    fn finish(&mut self) -> Option<Box<dyn Source>> {
        self.sent.settle_all();
        self.source.take()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("number", &self.number).finish_non_exhaustive()
    }
}
