//! A change of a task on its way to the disk: the pieces of a large result first, then the small write that is waited
//! for.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use tokio::sync::oneshot;

use super::{
    kept::{KeptTasks, Stage},
    record::ResultPlace,
    rows::{self, CHUNK, NextRow, SMALL},
};
use crate::{
    disk::{
        Later, LaterKey, Operation, Seals, Unavailable, WeakDisk,
        rusqlite::{self, Connection},
    },
    observe::events,
    task::{
        End, Task, TaskId,
        store::{CallChange, SavedCall},
    },
};

/// How many bytes of a result one write takes.
const STEP: usize = 4 * CHUNK;

/// Where a change goes, and from where it is told.
#[derive(Clone)]
pub(super) struct Ways {
    pub tasks: Arc<KeptTasks>,
    pub seals: Arc<Seals>,
    pub disk: WeakDisk,
}

/// Tells whether a change was made.
pub(super) type Answer = oneshot::Sender<Result<bool, Unavailable>>;

/// A change that waits for the disk. The task is marked as changing until it is decided.
pub(super) struct PendingChange {
    next: Task,
    end: Option<End>,
    call: CallChange,
    /// Where the row of the task stands.
    place: u64,
    /// Where the result is to stand, with what was written of it so far.
    result: Option<ResultPlace>,
    /// Whether pieces of the result are known to be on the disk.
    has_pieces: bool,
    ways: Ways,
    answer: Answer,
}

/// The pieces of a large result that are yet to be written.
struct Rest {
    raw: Bytes,
    digest: Context,
}

impl PendingChange {
    /// Returns a change of the task in the row `place`, which the caller has marked as changing.
    pub(super) fn new(next: Task, end: Option<End>, call: CallChange, place: u64, ways: Ways, answer: Answer) -> Self {
        let has_result = end.as_ref().is_some_and(|end| end.raw().is_some());
        let result = has_result.then(|| ResultPlace {
            number: ways.tasks.number_result(),
            bytes: 0,
            chunks: 0,
            digest: String::new(),
        });
        Self { next, end, call, place, result, has_pieces: false, ways, answer }
    }

    /// Sends the change on its way.
    pub(super) fn send(mut self) {
        let Some(raw) = self.end.as_ref().and_then(End::raw).cloned() else { return self.decide(None) };
        let mut rest = Rest { raw, digest: Context::new(&SHA256) };
        if rest.raw.len() > CHUNK {
            return self.write_step(rest);
        }
        if let Some(result) = &mut self.result {
            result.bytes = rest.raw.len();
            if result.bytes > SMALL {
                rest.digest.update(&rest.raw);
                (result.chunks, result.digest) = (1, rows::hex(rest.digest));
            }
        }
        self.decide(Some(rest.raw));
    }

    /// Writes some pieces of a large result in a batch of its own, and goes on after it. Others are written in between.
    fn write_step(mut self, mut rest: Rest) {
        let step = rest.raw.split_to(STEP.min(rest.raw.len()));
        rest.digest.update(&step);
        let Some(result) = &mut self.result else { return };
        let (number, first, bytes) = (result.number, result.chunks, step.len());
        result.bytes += bytes;
        // A result is never larger than an answer may be, which is far below what so many pieces hold.
        result.chunks = result.chunks.saturating_add(u16::try_from(bytes.div_ceil(CHUNK)).unwrap_or(u16::MAX));
        let (tasks, seals, next) = (Arc::clone(&self.ways.tasks), Arc::clone(&self.ways.seals), Looked::of(&self.next));
        let run = move |connection: &Connection| {
            if next.may_have_note(&tasks).is_none() {
                return Ok(false);
            }
            for (chunk, data) in (first..).zip(step.chunks(CHUNK)) {
                rows::put_chunk(connection, &seals, number, chunk, data)?;
            }
            Ok(true)
        };
        let disk = self.ways.disk.clone();
        let pending = Pending::new(self);
        let done = {
            let pending = pending.clone();
            move |written: Result<bool, Unavailable>| {
                let Some(mut change) = pending.take() else { return };
                change.has_pieces |= written == Ok(true);
                match written {
                    Ok(true) if rest.raw.is_empty() => {
                        if let Some(result) = &mut change.result {
                            result.digest = rows::hex(rest.digest);
                        }
                        change.decide(None);
                    }
                    Ok(true) => change.write_step(rest),
                    other => change.finish(other),
                }
            }
        };
        submit(&disk, Operation::new(run, done).of_bytes(bytes).bulk(), &pending);
    }

    /// Writes the change itself, with the result if that was not written in pieces, and makes it once it is on the
    /// disk.
    fn decide(self, whole: Option<Bytes>) {
        let bytes = whole.as_ref().map_or(0, Bytes::len) + self.call_bytes();
        let number = self.result.as_ref().and_then(ResultPlace::pieces);
        let row = match self.next_row(whole.as_deref().filter(|_| number.is_none())) {
            Ok(row) => row,
            Err(error) => return self.finish(Err(Unavailable::from(&error))),
        };
        let piece = number.zip(whole);
        let (looked, ways, place) = (Looked::of(&self.next), self.ways.clone(), self.place);
        let has_ended = self.next.state.is_terminal();
        let run = move |connection: &Connection| {
            let Some(may_have_note) = looked.may_have_note(&ways.tasks) else { return Ok(false) };
            // The row knows of a change in the same batch, which memory has only after it.
            if !row.write(connection)? {
                return Ok(false);
            }
            // Most tasks never have one.
            if has_ended && may_have_note {
                rows::forget_note(connection, place)?;
            }
            if let Some((number, chunk)) = &piece {
                rows::put_chunk(connection, &ways.seals, *number, 0, chunk)?;
            }
            Ok(true)
        };
        let disk = self.ways.disk.clone();
        let pending = Pending::new(self);
        let done = {
            let pending = pending.clone();
            move |written| {
                if let Some(change) = pending.take() {
                    change.finish(written);
                }
            }
        };
        submit(&disk, Operation::new(run, done).of_bytes(bytes), &pending);
    }

    fn next_row(&self, small: Option<&[u8]>) -> rusqlite::Result<NextRow> {
        let Self { next, call, place, result, ways, .. } = self;
        if next.state.is_terminal() {
            return NextRow::ended(&ways.seals, *place, next, result.as_ref(), small);
        }
        let call = if let CallChange::Set(SavedCall(call)) = call { Some(&**call) } else { None };
        NextRow::unfinished(&ways.seals, *place, next, call)
    }

    fn call_bytes(&self) -> usize {
        match &self.call {
            CallChange::Keep => 0,
            CallChange::Set(call) => call.0.len(),
        }
    }

    /// Makes the change in memory, if it is on the disk, and tells whether it was made.
    fn finish(self, written: Result<bool, Unavailable>) {
        let Self { next, end, result, has_pieces, place, ways, answer, .. } = self;
        let (id, tasks) = (next.id, &ways.tasks);
        let is_written = written == Ok(true);
        let is_made = tasks.finish_change(next, result.clone(), end.as_ref().and_then(End::raw).cloned(), is_written);
        if is_made {
            if let Some(result) = &result {
                tasks.observer.emit(events::ResultKept { bytes: result.bytes });
            }
            tasks.tell_change(id);
        } else if is_written {
            // It was removed meanwhile, and its row has the result.
            ways.remove_task(id, place, result.as_ref());
        } else if has_pieces {
            // Only what is there: while the disk takes nothing, each try would leave work of its own behind.
            ways.remove_result(id, result.as_ref());
        }
        // The caller may have left.
        let _ = answer.send(written.map(|_| is_made));
    }
}

impl Ways {
    /// Removes a result from the file, soon, where it does not go with the row of its task.
    pub(super) fn remove_result(&self, task: TaskId, result: Option<&ResultPlace>) {
        if let Some(number) = result.and_then(ResultPlace::pieces) {
            self.remove_pieces(Some(task), number);
        }
    }

    /// Removes the pieces of a result from the file, soon.
    pub(super) fn remove_pieces(&self, task: Option<TaskId>, number: u64) {
        let key = LaterKey { kind: "result", row: number.into(), task };
        let seals = Arc::clone(&self.seals);
        self.disk.later(key, Later::new(move |connection| rows::remove_result(connection, &seals, number)));
    }

    /// Removes a task from the file, soon. Its result goes with it: a task without one would be damage.
    pub(super) fn remove_task(&self, task: TaskId, place: u64, result: Option<&ResultPlace>) {
        let number = result.and_then(ResultPlace::pieces);
        // A removal without a result must not replace one with a result.
        let kind = if number.is_some() { "task with result" } else { "task" };
        let key = LaterKey { kind, row: place.into(), task: Some(task) };
        let seals = Arc::clone(&self.seals);
        let remove = move |connection: &Connection| {
            rows::remove(connection, place)?;
            number.map_or(Ok(()), |number| rows::remove_result(connection, &seals, number))
        };
        self.disk.later(key, Later::new(remove));
    }
}

/// What a task must be in memory for a change to be the next one.
struct Looked {
    id: TaskId,
    before: u32,
}

impl Looked {
    fn of(next: &Task) -> Self {
        Self { id: next.id, before: next.version.wrapping_sub(1) }
    }

    /// Returns whether the file may have a note of the task; `None` where memory does not have the version before the
    /// change.
    fn may_have_note(&self, tasks: &KeptTasks) -> Option<bool> {
        let mut index = tasks.index.lock();
        let kept = &index.get_mut(self.id)?.kept;
        let is_before = kept.stage == Stage::Kept && kept.task.version == self.before;
        is_before.then_some(kept.may_have_note)
    }
}

/// A change, taken by the first of two: its operation, or the refusal of that operation.
#[derive(Clone)]
struct Pending(Arc<parking_lot::Mutex<Option<PendingChange>>>);

impl Pending {
    fn new(change: PendingChange) -> Self {
        Self(Arc::new(parking_lot::Mutex::new(Some(change))))
    }

    fn take(&self) -> Option<PendingChange> {
        self.0.lock().take()
    }
}

/// Submits an operation of a change. Where that is refused the change is not made.
fn submit(disk: &WeakDisk, operation: Operation, pending: &Pending) {
    if let Err(unavailable) = disk.submit(operation)
        && let Some(change) = pending.take()
    {
        change.finish(Err(unavailable));
    }
}
