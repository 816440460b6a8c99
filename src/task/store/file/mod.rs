//! The store on disk: every task in memory as the disk has it, results on the disk.
//!
//! A change is decided on the writing thread, in the order in which changes came, and made in memory when it is on the
//! disk. So no client is told what a crash could take back. Only the text for a person is changed in memory first.

mod change;
#[cfg(test)]
mod fixture;
mod kept;
mod load;
mod recent;
mod record;
mod removal;
mod rescue;
mod rows;
#[cfg(test)]
pub(in crate::task) mod testing;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

pub use rescue::{Read, check, export};

use bytes::Bytes;
use tokio::sync::oneshot;

use self::{
    change::{PendingChange, Ways},
    kept::{Kept, KeptTasks, Stage},
};
use super::{
    CallChange, ChangeCallback, KeptLimit, MaxKept, NoEnd, NoteWritten, PageOrder, SavedCall, Store, StoreFuture,
    Unavailable, Unfinished, index::Index,
};
use crate::{
    disk::{self, Disk, Later, LaterKey, Operation, is_damage},
    identity::Owner,
    observe::{Observer, events},
    task::{Clock, End, State, Task, TaskId},
};

/// Tasks in a file; they outlive the process.
pub struct FileStore {
    ways: Ways,
    disk: Disk,
    clock: Clock,
    /// The bytes of the file from which on no new tasks are taken, and the limit to name.
    admits_below: u64,
    max_bytes: u64,
}

impl From<disk::Unavailable> for Unavailable {
    fn from(disk::Unavailable(why): disk::Unavailable) -> Self {
        Self(why)
    }
}

impl FileStore {
    /// Reads the tasks of an open file. The store takes new ones up to `max`, and while the file has room below
    /// `max_bytes`.
    ///
    /// # Errors
    /// [`Unavailable`], which says what of the file cannot be read.
    pub async fn open(
        disk: Disk,
        max: MaxKept,
        max_bytes: u64,
        clock: Clock,
        observer: Arc<Observer>,
    ) -> Result<Self, Unavailable> {
        let tasks = Arc::new(KeptTasks::new(max, observer));
        let ways = Ways { tasks, seals: Arc::clone(disk.seals()), disk: disk.downgrade() };
        load::load(&disk, &ways).await?;
        // The rest is for the ends of tasks that run.
        Ok(Self { ways, disk, clock, admits_below: max_bytes - max_bytes / 8, max_bytes })
    }

    fn tasks(&self) -> &Arc<KeptTasks> {
        &self.ways.tasks
    }

    fn full_file(&self) -> Option<KeptLimit> {
        let max = usize::try_from(self.max_bytes).unwrap_or(usize::MAX);
        (self.disk.used_bytes() >= self.admits_below).then_some(KeptLimit::StoreBytes(max))
    }

    /// Admits a task and sends it to the disk. The answer comes from there.
    fn begin_insert(&self, task: &Task, call: Option<SavedCall>) -> Result<Insertion, Inserted> {
        if let Some(limit) = self.full_file() {
            return Err(Ok(Err(limit)));
        }
        let (answer, answered) = oneshot::channel();
        let is_awaited = Arc::new(());
        let awaited = Arc::downgrade(&is_awaited);
        let id = task.id;
        // Locked until the operation is in the queue, so that rows come in the order of their places.
        let mut index = self.tasks().index.lock();
        let place = match index.admit(task, &self.tasks().max, Kept::admitted(Arc::new(task.clone()))) {
            Ok(place) => place,
            Err(limit) => return Err(Ok(Err(limit))),
        };
        let (ways, row, bytes) = (self.ways.clone(), task.clone(), call.as_ref().map_or(0, |call| call.0.len()));
        let run = move |connection: &rusqlite::Connection| {
            if awaited.strong_count() == 0 {
                return Ok(false);
            }
            rows::insert(connection, &ways.seals, place, &row, call.as_ref().map(|SavedCall(call)| &**call))?;
            if let Some(entry) = ways.tasks.index.lock().get_mut(row.id) {
                entry.kept.stage = Stage::Written;
            }
            Ok(true)
        };
        let ways = self.ways.clone();
        let done = move |written: Result<bool, disk::Unavailable>| {
            let is_written = written == Ok(true);
            if is_written {
                ways.tasks.keep(id);
            }
            if answer.send(written.map(|_| Ok(())).map_err(Unavailable::from)).is_ok() && is_written {
                return;
            }
            // The disk did not take it, or its caller was told that it might not.
            if is_written {
                ways.tasks.remove(|| vec![id]);
                ways.remove_task(id, place, None);
            } else {
                ways.tasks.index.lock().remove(id);
            }
        };
        if let Err(unavailable) = self.disk.submit(Operation::new(run, done).of_bytes(bytes)) {
            index.remove(id);
            return Err(Err(unavailable.into()));
        }
        Ok(Insertion { answered, is_awaited })
    }
}

/// An insertion on its way to the disk.
struct Insertion {
    answered: oneshot::Receiver<Inserted>,
    /// Dropped when its caller gives up: then a batch that comes later leaves it out.
    is_awaited: Arc<()>,
}

/// The answer to [`Store::insert`].
type Inserted = Result<Result<(), KeptLimit>, Unavailable>;

/// Returns an answer at once.
fn ready<'a, T: Send + 'a, E: Send + 'a>(answer: Result<T, E>) -> StoreFuture<'a, T, E> {
    Box::pin(std::future::ready(answer))
}

impl Store for FileStore {
    fn insert(&self, task: Task, call: Option<SavedCall>) -> StoreFuture<'_, Result<(), KeptLimit>> {
        match self.begin_insert(&task, call) {
            Ok(Insertion { mut answered, is_awaited }) => Box::pin(async move {
                let slow = match disk::answer(&mut answered).await {
                    Ok(inserted) => return inserted,
                    Err(slow) => slow,
                };
                // From now on the task is left out, or taken back where it comes to be written.
                answered.close();
                drop(is_awaited);
                answered.try_recv().unwrap_or_else(|_| Err(slow.into()))
            }),
            Err(refused) => ready(refused),
        }
    }

    fn get<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<Arc<Task>>> {
        ready(Ok(self.tasks().look(owner, id, |entry| Arc::clone(&entry.kept.task))))
    }

    fn end<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<End>, NoEnd> {
        let found =
            self.tasks().look(owner, id, |entry| (entry.kept.task.state, entry.kept.result.clone(), entry.place));
        let Some((State::Ended(ending), result, place)) = found else { return ready(Ok(None)) };
        let Some(result) = result else { return ready(Ok(Some(End::Cancelled))) };
        if let Some(raw) = self.tasks().cached(result.number) {
            return ready(Ok(Some(End::of(ending, raw))));
        }
        Box::pin(async move {
            let (seals, its_result) = (Arc::clone(&self.ways.seals), result.clone());
            let read =
                move |connection: &rusqlite::Connection| match rows::get_result(connection, &seals, place, &its_result)
                {
                    Err(error) if is_damage(&error) => Ok(Err(disk::Unavailable::from(&error))),
                    read => read.map(Ok),
                };
            let read = self.disk.read(read).await.map_err(Unavailable::from);
            // It may have expired meanwhile, and its result with it; while the index is locked it cannot.
            let kept = self.tasks().look(owner, id, |_| {
                if let Ok(Ok(raw)) = &read {
                    self.tasks().cache(result.number, raw.clone());
                }
            });
            if kept.is_none() {
                return Ok(None);
            }
            read?.map(|raw| Some(End::of(ending, raw))).map_err(|why| {
                self.tell_damaged(id, place, &why);
                NoEnd::Damaged
            })
        })
    }

    fn replace(&self, next: Task, end: Option<End>, call: CallChange) -> StoreFuture<'_, bool> {
        let id = next.id;
        let place = {
            let mut index = self.tasks().index.lock();
            let Some(entry) = index.get_mut(id).filter(|entry| entry.kept.stage == Stage::Kept) else {
                return ready(Ok(false));
            };
            let kept = &mut entry.kept;
            if kept.changing == 0 {
                if kept.task.version != next.version.wrapping_sub(1) {
                    return ready(Ok(false));
                }
                let is_text = next.state == kept.task.state && next.expires == kept.task.expires;
                if end.is_none() && call == CallChange::Keep && is_text {
                    kept.task = Arc::new(next);
                    let place = entry.place;
                    drop(index);
                    self.write_text_later(id, place);
                    self.tasks().tell_change(id);
                    return ready(Ok(true));
                }
            }
            kept.changing += 1;
            entry.place
        };
        // A large result takes its time, and is not to be sent twice.
        let is_large = end.as_ref().is_some_and(|end| end.bytes() > rows::CHUNK);
        let (answer, mut answered) = oneshot::channel();
        PendingChange::new(next, end, call, place, self.ways.clone(), answer).send();
        Box::pin(async move {
            let answer =
                if is_large { disk::answer_at_last(&mut answered).await } else { disk::answer(&mut answered).await };
            Ok(answer??)
        })
    }

    fn page<'a>(&'a self, owner: &'a Owner, order: PageOrder, count: usize) -> StoreFuture<'a, Vec<(u64, Arc<Task>)>> {
        let index = self.tasks().index.lock();
        let page = kept(&index, owner, order).take(count).collect();
        ready(Ok(page))
    }

    fn has_any<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, bool> {
        let index = self.tasks().index.lock();
        let has_any = kept(&index, owner, PageOrder::ALL).next().is_some();
        ready(Ok(has_any))
    }

    fn remove_all<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, Vec<TaskId>> {
        if !self.tasks().index.lock().has_any(owner) {
            return ready(Ok(Vec::new()));
        }
        match removal::begin(self.ways.clone(), owner.clone()) {
            Ok(answered) => Box::pin(removal::removed(answered)),
            Err(unavailable) => ready(Err(unavailable.into())),
        }
    }

    fn expire(&self, unix: u64) -> StoreFuture<'_, Vec<TaskId>> {
        // Memory forgets first: a start forgets again what the disk still has.
        let removed = self.tasks().remove(|| self.tasks().deadlines.take_until(unix));
        let forget = |(id, entry): (TaskId, super::index::Entry<Kept>)| {
            self.ways.remove_task(id, entry.place, entry.kept.result.as_ref());
            id
        };
        ready(Ok(removed.into_iter().map(forget).collect()))
    }

    fn next_expiry(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            self.tasks().deadlines.first(self.clock).await;
            Ok(())
        })
    }

    fn note(&self, task: TaskId, note: Bytes, written: NoteWritten) {
        let (place, is_first) = {
            let mut index = self.tasks().index.lock();
            let Some(entry) = index.get_mut(task).filter(|entry| !entry.kept.task.state.is_terminal()) else { return };
            entry.kept.may_have_note = true;
            (entry.place, entry.kept.note.replace(note).is_none())
        };
        let ways = self.ways.clone();
        // Always the newest: a write that is tried again must not bring back an older one.
        let write = move |connection: &rusqlite::Connection| {
            let newest = ways.tasks.index.lock().get_mut(task).and_then(|entry| entry.kept.note.clone());
            newest.map_or(Ok(()), |note| rows::put_note(connection, &ways.seals, place, &note))
        };
        let key = LaterKey { kind: "note", row: place.into(), task: Some(task) };
        let later = Later::new(write.clone()).then({
            let written = Arc::clone(&written);
            move || written()
        });
        if !is_first {
            return self.disk.later(key, later);
        }
        // Without any the call cannot be resumed; with an older one, some events come once more.
        let (disk, again) = (self.ways.disk.clone(), later.clone());
        let done = move |first: Result<(), disk::Unavailable>| match first {
            Ok(()) => written(),
            Err(_) => disk.later(key, again),
        };
        if self.disk.submit(Operation::new(write, done)).is_err() {
            self.disk.later(key, later);
        }
    }

    fn unfinished(&self) -> StoreFuture<'_, Vec<Unfinished>> {
        let tasks = self.tasks().unfinished();
        Box::pin(async move {
            let seals = Arc::clone(&self.ways.seals);
            let read = self.disk.read_all(move |connection| {
                let read = |(place, task): (u64, Arc<Task>)| {
                    let call = rows::get_call(connection, &seals, place)?.map(SavedCall);
                    Ok(Unfinished { task: (*task).clone(), call, note: rows::get_note(connection, &seals, place)? })
                };
                tasks.into_iter().map(read).collect()
            });
            Ok(read.await?)
        })
    }

    fn owners(&self) -> StoreFuture<'_, Vec<(Owner, usize)>> {
        ready(Ok(self.tasks().index.lock().owners()))
    }

    fn saves_calls(&self) -> bool {
        true
    }

    fn seals(&self) -> bool {
        self.ways.seals.seals()
    }

    fn full(&self, owner: &Owner) -> Option<KeptLimit> {
        self.tasks().index.lock().full(owner, &self.tasks().max).or_else(|| self.full_file())
    }

    fn on_change(&self, callback: ChangeCallback) {
        *self.tasks().on_change.write() = Some(callback);
    }
}

impl FileStore {
    /// Tells that the result of a task is damaged, in the log once.
    fn tell_damaged(&self, id: TaskId, place: u64, why: &disk::Unavailable) {
        let mut index = self.tasks().index.lock();
        let is_new = index.get_mut(id).is_some_and(|entry| !std::mem::replace(&mut entry.kept.is_told_damaged, true));
        drop(index);
        self.tasks().observer.emit(events::StoreDamaged {
            what: "result of a task",
            row: Some(place),
            task: Some(id),
            file: self.disk.path(),
            why: &why.0,
            is_new,
        });
    }

    /// Writes the newest text for a person with a later batch.
    fn write_text_later(&self, id: TaskId, place: u64) {
        let ways = self.ways.clone();
        let write = move |connection: &rusqlite::Connection| {
            let task = ways.tasks.index.lock().get_mut(id).map(|entry| Arc::clone(&entry.kept.task));
            let Some(task) = task.filter(|task| !task.state.is_terminal()) else { return Ok(()) };
            rows::NextRow::unfinished(&ways.seals, place, &task, None)?.write(connection).map(drop)
        };
        let key = LaterKey { kind: "text", row: place.into(), task: Some(id) };
        self.disk.later(key, Later::new(write));
    }
}

/// Returns those tasks of `owner` that are on the disk.
fn kept<'a>(index: &'a Index<Kept>, owner: &'a Owner, order: PageOrder) -> impl Iterator<Item = (u64, Arc<Task>)> + 'a {
    index.of(owner, order).filter_map(move |(place, id)| {
        let kept = &index.owned(owner, id)?.kept;
        (kept.stage == Stage::Kept).then(|| (place, Arc::clone(&kept.task)))
    })
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore").field("path", &self.disk.path()).finish_non_exhaustive()
    }
}
