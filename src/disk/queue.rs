//! What waits for the disk: operations that are waited for, small before large ones, and work that can wait.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use uuid::Uuid;

use super::Unavailable;

/// How many operations may wait.
const MAX_WAITING: usize = 8192;
/// About how many bytes one batch writes for operations, so that none holds up the next for long. One is always taken.
const BATCH_BYTES: usize = 1 << 20;
/// How much work that can wait one batch does.
const BATCH_LATER: usize = 256;
/// How long work that can wait does so at most.
const FLUSH: Duration = Duration::from_secs(1);

/// Something to write, and who is told when it is on the disk. It may be run more than once; only the last time counts.
pub struct Operation {
    work: Box<dyn Work>,
    bytes: usize,
    is_bulk: bool,
}

type LaterWork = dyn Fn(&Connection) -> rusqlite::Result<()> + Send + Sync;

/// Work that can wait. It may be done more than once.
#[derive(Clone)]
pub struct Later {
    work: Arc<LaterWork>,
    done: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// Names work that can wait, so that newer work takes the place of older.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaterKey {
    /// What it does.
    pub kind: &'static str,
    /// To which row.
    pub row: u128,
    /// The task whose row that is, where it is known, for the operator.
    pub task: Option<Uuid>,
}

trait Work: Send {
    fn run(&mut self, connection: &Connection) -> rusqlite::Result<()>;
    fn tell(self: Box<Self>, batch: &Result<(), Unavailable>);
}

struct Typed<R, D, T> {
    run: R,
    given: Result<T, Unavailable>,
    done: D,
}

impl<R, D, T> Work for Typed<R, D, T>
where
    R: FnMut(&Connection) -> rusqlite::Result<T> + Send,
    D: FnOnce(Result<T, Unavailable>) + Send,
    T: Send,
{
    fn run(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let (given, failed) = match (self.run)(connection) {
            Ok(value) => (Ok(value), Ok(())),
            Err(error) => (Err(Unavailable::from(&error)), Err(error)),
        };
        self.given = given;
        failed
    }

    fn tell(self: Box<Self>, batch: &Result<(), Unavailable>) {
        let Self { given, done, .. } = *self;
        done(batch.clone().and(given));
    }
}

impl Operation {
    /// Returns an operation that runs on the writing thread as a part of a batch. `done` is called there after it, with
    /// what `run` returned, or with why the batch or the operation failed. Neither may wait: callers go on once all of
    /// the batch was told. `run` is called again where the batch is tried again.
    pub fn new<T: Send + 'static>(
        run: impl FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
        done: impl FnOnce(Result<T, Unavailable>) + Send + 'static,
    ) -> Self {
        let given = Err(Unavailable("it was not tried".into()));
        Self { work: Box::new(Typed { run, given, done }), bytes: 0, is_bulk: false }
    }

    /// Says about how much it writes.
    #[must_use]
    pub fn of_bytes(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    /// Says that it may wait for others that come later.
    #[must_use]
    pub fn bulk(self) -> Self {
        Self { is_bulk: true, ..self }
    }

    pub(super) fn run(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.work.run(connection)
    }

    pub(super) fn tell(self, batch: &Result<(), Unavailable>) {
        self.work.tell(batch);
    }
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operation").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Later {
    /// Returns work that runs on the writing thread as a part of a batch.
    pub fn new(work: impl Fn(&Connection) -> rusqlite::Result<()> + Send + Sync + 'static) -> Self {
        Self { work: Arc::new(work), done: None }
    }

    /// Has `done` called there once it is on the disk. Newer work that takes its place has to tell for itself.
    #[must_use]
    pub fn then(self, done: impl Fn() + Send + Sync + 'static) -> Self {
        Self { done: Some(Arc::new(done)), ..self }
    }

    pub(super) fn run(&self, connection: &Connection) -> rusqlite::Result<()> {
        (self.work)(connection)
    }

    pub(super) fn tell(&self) {
        if let Some(done) = &self.done {
            done();
        }
    }
}

impl std::fmt::Debug for Later {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Later").finish_non_exhaustive()
    }
}

/// What waits.
#[derive(Default)]
pub(super) struct Queue {
    small: VecDeque<Operation>,
    bulk: VecDeque<Operation>,
    later: HashMap<LaterKey, Later>,
    /// The keys of `later` in the order in which they came.
    order: VecDeque<LaterKey>,
    /// When the first of `later` is due.
    flush_at: Option<Instant>,
    /// Whether no batch does any of `later` before that.
    rests: bool,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &(self.small.len() + self.bulk.len())).finish_non_exhaustive()
    }
}

/// A part of what waits, taken out for one batch.
#[derive(Default)]
pub(super) struct Taken {
    pub operations: Vec<Operation>,
    pub later: Vec<(LaterKey, Later)>,
}

/// What the writing thread does next.
pub(super) enum Next {
    /// This.
    Batch(Taken),
    /// Nothing until then.
    Wait(Option<Instant>),
    /// Nothing any more.
    Closed,
}

impl Queue {
    /// Adds an operation.
    pub(super) fn push(&mut self, operation: Operation) -> Result<(), Unavailable> {
        if self.closed {
            return Err(Unavailable("it is closed".into()));
        }
        if self.small.len() + self.bulk.len() >= MAX_WAITING {
            return Err(Unavailable(format!("{MAX_WAITING} writes wait for the disk").into()));
        }
        if operation.is_bulk { &mut self.bulk } else { &mut self.small }.push_back(operation);
        Ok(())
    }

    /// Takes back operations that a batch left for the next one.
    pub(super) fn put_back(&mut self, waiting: Vec<Operation>) {
        for operation in waiting.into_iter().rev() {
            if operation.is_bulk { &mut self.bulk } else { &mut self.small }.push_front(operation);
        }
    }

    /// Adds work that can wait, and returns whether it is the only such work.
    pub(super) fn push_later(&mut self, key: LaterKey, work: Later) -> bool {
        if self.later.insert(key, work).is_none() {
            self.order.push_back(key);
        }
        self.flush_at.get_or_insert_with(|| Instant::now() + FLUSH);
        self.later.len() == 1
    }

    /// Takes back work that could not be done, unless newer work has taken its place. So much of it that was not tried
    /// comes first, and the rest last, so that it keeps no other from the disk.
    pub(super) fn again(&mut self, mut undone: Vec<(LaterKey, Later)>, untried: usize) {
        undone[..untried].reverse();
        for (at, (key, work)) in undone.into_iter().enumerate() {
            if self.later.contains_key(&key) {
                continue;
            }
            self.later.insert(key, work);
            if at < untried {
                self.order.push_front(key);
            } else {
                self.order.push_back(key);
            }
            self.flush_at.get_or_insert_with(|| Instant::now() + FLUSH);
        }
    }

    /// Has all work that can wait do so for a while: what fails each time must not keep the disk busy.
    pub(super) fn rest(&mut self) {
        (self.flush_at, self.rests) = (Some(Instant::now() + FLUSH), true);
    }

    /// Returns how much work that can wait there is.
    pub(super) fn count_later(&self) -> usize {
        self.later.len()
    }

    /// Returns how much waits in all.
    pub(super) fn count(&self) -> usize {
        self.small.len() + self.bulk.len() + self.later.len()
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Closes the queue, and returns the operations that wait in it.
    pub(super) fn close_at_once(&mut self) -> Vec<Operation> {
        self.closed = true;
        self.small.drain(..).chain(self.bulk.drain(..)).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes out the next batch, if anything is due.
    pub(super) fn next(&mut self) -> Next {
        let is_due = self.flush_at.is_some_and(|at| self.closed || at <= Instant::now());
        if self.small.is_empty() && self.bulk.is_empty() && !is_due {
            return if self.closed { Next::Closed } else { Next::Wait(self.flush_at) };
        }
        let mut taken = Taken::default();
        for queue in [&mut self.small, &mut self.bulk] {
            let mut bytes = 0;
            while bytes < BATCH_BYTES
                && let Some(operation) = queue.pop_front()
            {
                bytes += operation.bytes;
                taken.operations.push(operation);
            }
        }
        if is_due || !self.rests {
            let keys = self.order.len().min(BATCH_LATER);
            for key in self.order.drain(..keys) {
                taken.later.extend(self.later.remove(&key).map(|work| (key, work)));
            }
            (self.flush_at, self.rests) = ((!self.order.is_empty()).then(Instant::now), false);
        }
        Next::Batch(taken)
    }
}
