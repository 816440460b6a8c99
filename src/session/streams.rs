//! Streams of events towards one client. A stream outlives its connections: its events have ids, what was sent last is
//! kept, and a GET with `Last-Event-ID` goes on where a connection broke (section "Resumability and Redelivery").

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
    wire::sse::{self, EventId},
};

/// The stream of what belongs to no request.
const GET_STREAM: u64 = 0;
/// How many streams without a connection are kept to be resumed.
const MAX_KEPT: usize = 32;
/// How long a stream without a connection is kept to be resumed.
const RESUMABLE_FOR: Duration = Duration::from_mins(5);
/// When a client whose connection has broken comes back.
const RETRY: Duration = Duration::from_secs(1);

/// The streams of one session.
#[derive(Debug)]
pub struct Streams {
    table: Mutex<StreamTable>,
    /// In every event id, so that those of another session are told apart.
    session: u32,
    /// How many bytes of what was sent last are kept, for each stream and in all; the newest event of each always is.
    capacity: Arc<Capacity>,
    /// How many requests may be answered at once, each of which may need a stream.
    max: usize,
    /// Whether streams begin with an event that primes the client to resume, and may be interrupted.
    primes: bool,
}

#[derive(Debug, Default)]
struct StreamTable {
    next: u64,
    get_stream: Option<Arc<Stream>>,
    /// Requests that are being answered and have no stream yet.
    reserved: usize,
    delivering: HashMap<u64, Arc<Stream>>,
    /// Streams without a connection, those first that lost it first.
    kept: VecDeque<(Instant, Arc<Stream>)>,
}

/// One stream.
struct Stream {
    number: u64,
    /// The stream's beginning.
    beginning: EventId,
    /// The raw id of the request that it answers.
    answers: Option<Box<str>>,
    state: Mutex<StreamState>,
}

struct StreamState {
    /// Taken away at the stream's end.
    source: Option<Box<dyn Source>>,
    sent: Ring,
    /// The number of the last event.
    last: u64,
    /// Counts the connections: only the newest may deliver.
    connection: u64,
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

/// Why a stream is not resumed.
#[derive(Debug)]
pub enum NotResumed {
    /// There is no such stream in this session, or it is no longer kept.
    Unknown,
    /// As many streams are open as may be.
    Full(Full),
}

/// A connection that delivers a stream as encoded events.
#[derive(Debug)]
pub struct Connection {
    streams: Arc<Streams>,
    stream: Arc<Stream>,
    number: u64,
    /// The events after this one have to be sent again.
    replay_after: Option<u64>,
    primed: bool,
    over: bool,
}

impl Streams {
    /// No streams yet, and `max` that may answer requests at once. `primes`: the client knows events without data, and
    /// that a server may interrupt a stream.
    #[must_use]
    pub fn new(capacity: &Arc<Capacity>, max: usize, primes: bool) -> Arc<Self> {
        let table = Mutex::new(StreamTable { next: GET_STREAM + 1, ..StreamTable::default() });
        let (session, ..) = Uuid::new_v4().as_fields();
        Arc::new(Self { table, session, capacity: Arc::clone(capacity), max, primes })
    }

    /// Takes room for one more stream that answers a request, before anything is done for it.
    ///
    /// # Errors
    /// [`Full::OfStreams`]
    pub fn reserve(self: &Arc<Self>) -> Result<StreamRoom, Full> {
        let mut table = self.table.lock();
        self.room_in(&table)?;
        table.reserved += 1;
        drop(table);
        Ok(StreamRoom(Arc::clone(self)))
    }

    fn room_in(&self, table: &StreamTable) -> Result<(), Full> {
        if table.delivering.len() + table.reserved < self.max { Ok(()) } else { Err(Full::OfStreams(self.max)) }
    }

    /// Whether a stream may be interrupted.
    #[must_use]
    pub fn primes(&self) -> bool {
        self.primes
    }

    /// A new stream in answer to the request `id`, in the room that was taken for it.
    pub fn open(self: &Arc<Self>, id: &str, source: Box<dyn Source>, room: Option<StreamRoom>) -> Connection {
        let connection = self.open_in(&mut self.table.lock(), id, source);
        // It counts twice for a moment, never not at all.
        drop(room);
        connection
    }

    fn open_in(self: &Arc<Self>, table: &mut StreamTable, id: &str, source: Box<dyn Source>) -> Connection {
        let stream = self.stream(table.next, Some(id.into()), source);
        table.next += 1;
        table.delivering.insert(stream.number, Arc::clone(&stream));
        self.connect(stream, None)
    }

    /// The stream of what belongs to no request, made by `source` where there is none. Whoever had it before loses it:
    /// each message goes to one connection only.
    pub fn connect_get_stream(self: &Arc<Self>, source: impl FnOnce() -> Box<dyn Source>) -> Connection {
        let mut table = self.table.lock();
        let stream = Arc::clone(table.get_stream.get_or_insert_with(|| self.stream(GET_STREAM, None, source())));
        self.connect(stream, None)
    }

    /// Goes on with the stream that sent the event `last_event_id`, after that event.
    ///
    /// # Errors
    /// [`NotResumed`]
    pub fn resume(self: &Arc<Self>, last_event_id: &str) -> Result<Connection, NotResumed> {
        let id = EventId::parse(last_event_id).filter(|id| id.session == self.session).ok_or(NotResumed::Unknown)?;
        let mut table = self.table.lock();
        let kept = table.kept.iter().position(|(_, stream)| stream.number == id.stream);
        let stream = match kept {
            Some(at) => Some(Arc::clone(&table.kept[at].1)),
            None if id.stream == GET_STREAM => table.get_stream.clone(),
            // The client has noticed before us that the connection is gone.
            None => table.delivering.get(&id.stream).cloned(),
        };
        let stream = stream.filter(|stream| id.event <= stream.state.lock().last).ok_or(NotResumed::Unknown)?;
        if kept.is_some() {
            self.room_in(&table).map_err(NotResumed::Full)?;
        }
        if let Some((_, stream)) = kept.and_then(|at| table.kept.remove(at)) {
            table.delivering.insert(stream.number, stream);
        }
        Ok(self.connect(stream, Some(id.event)))
    }

    /// Ends the stream in answer to the request `id`, which the client has cancelled.
    pub fn cancel(&self, id: &str) -> bool {
        let stream = {
            let mut table = self.table.lock();
            let of = |stream: &Stream| stream.answers.as_deref() == Some(id);
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

    /// Forgets the streams that nobody has come back for.
    pub fn sweep(&self) {
        let mut table = self.table.lock();
        let mut over = Vec::new();
        while table.kept.front().is_some_and(|(since, _)| since.elapsed() > RESUMABLE_FOR) {
            over.extend(table.kept.pop_front());
        }
        // What a source holds is let go outside the lock.
        drop(table);
    }

    /// Forgets every stream; those that have a connection end by themselves.
    pub fn clear(&self) {
        let mut table = self.table.lock();
        let StreamTable { next, reserved, .. } = *table;
        let forgotten = std::mem::replace(&mut *table, StreamTable { next, reserved, ..StreamTable::default() });
        drop(table);
        drop(forgotten);
    }

    fn connect(self: &Arc<Self>, stream: Arc<Stream>, replay_after: Option<u64>) -> Connection {
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

    /// Keeps the stream of the connection `number`, which is gone, as far as there is room.
    fn keep(&self, stream: Arc<Stream>, number: u64) {
        let mut over = Vec::new();
        let mut table = self.table.lock();
        let (superseded, finished, bytes) = {
            let state = stream.state.lock();
            (state.connection != number, state.source.is_none(), state.sent.bytes())
        };
        if superseded || table.delivering.remove(&stream.number).is_none() {
            return;
        }
        // One that was delivered to its end is kept in case that was lost, and not for any price.
        if finished && bytes > 4 * self.capacity.each_sent() {
            return;
        }
        table.kept.push_back((Instant::now(), stream));
        let mut bytes: usize = table.kept.iter().map(|(_, stream)| stream.state.lock().sent.bytes()).sum();
        while table.kept.len() > MAX_KEPT || (bytes > 4 * self.capacity.each_sent() && table.kept.len() > 1) {
            let Some((_, oldest)) = table.kept.pop_front() else { break };
            bytes -= oldest.state.lock().sent.bytes();
            over.push(oldest);
        }
        drop(table);
    }

    fn stream(&self, number: u64, answers: Option<Box<str>>, source: Box<dyn Source>) -> Arc<Stream> {
        let sent = Ring::new(Arc::clone(&self.capacity));
        let state = StreamState { source: Some(source), sent, last: 0, connection: 0, reader: None };
        let beginning = EventId { session: self.session, stream: number, event: 0 };
        Arc::new(Stream { number, beginning, answers, state: Mutex::new(state) })
    }
}

impl Connection {
    /// The next piece of the stream; `None` when the connection has to end.
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
                // What the source holds is let go outside the lock, or it may come back to it.
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

    /// Encodes an event and keeps it, with as many before it as there is room for.
    fn keep(&mut self, beginning: EventId, question: Option<Uuid>, document: &[u8]) -> Bytes {
        self.settle();
        self.last += 1;
        let event = sse::encode(document, Some(self.id(beginning)));
        self.sent.keep(self.last, question, event.clone());
        event
    }

    /// The next event that has to be sent again.
    fn replay(&mut self, after: &mut Option<u64>) -> Option<Bytes> {
        let from = (*after)?;
        self.settle();
        let (number, event) = self.sent.after(from).unzip();
        *after = number;
        event
    }

    /// Forgets the questions that are not to be answered here any more.
    fn settle(&mut self) {
        if let Some(source) = self.source.as_mut().filter(|_| self.sent.asks()) {
            self.sent.settle(source.settled());
        }
    }

    /// Takes the source away at the stream's end, where nothing is left to be answered.
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
