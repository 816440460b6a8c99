//! What the store knows of its tasks without asking the disk: always what is on the disk, but for texts for a person,
//! which are newer.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::{recent::RecentResults, record::ResultPlace};
use crate::{
    identity::Owner,
    observe::{Observer, events},
    task::{
        Task, TaskId,
        store::{
            ChangeCallback, MaxKept,
            deadlines::Deadlines,
            index::{Entry, Index},
        },
    },
};

/// The tasks, and what belongs to them.
pub(super) struct KeptTasks {
    /// Locked before the deadlines.
    pub index: Mutex<Index<Kept>>,
    pub deadlines: Deadlines,
    /// See [`crate::task::store::Store::on_change`].
    pub on_change: RwLock<Option<ChangeCallback>>,
    pub max: MaxKept,
    pub observer: Arc<Observer>,
    /// Locked last.
    results: Mutex<RecentResults>,
    /// The number of the next result.
    next_result: AtomicU64,
}

/// A task.
#[derive(Debug)]
pub(super) struct Kept {
    pub task: Arc<Task>,
    pub stage: Stage,
    pub result: Option<ResultPlace>,
    /// Whether it was told that the result is damaged.
    pub is_told_damaged: bool,
    /// The newest note of how its call can be resumed, until it has ended.
    pub note: Option<Bytes>,
    /// Whether the file may have a note of it.
    pub may_have_note: bool,
    /// How many changes of it are on their way to the disk. While there are any, all go that way, in their order.
    pub changing: u32,
}

/// How far a task has got into the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum Stage {
    /// It has its place and takes room. It cannot be found yet.
    Admitted,
    /// The batch that is being written has it.
    Written,
    /// It is on the disk.
    Kept,
}

impl Kept {
    /// Returns a task that is on its way into the file.
    pub(super) fn admitted(task: Arc<Task>) -> Self {
        Self {
            task,
            stage: Stage::Admitted,
            result: None,
            is_told_damaged: false,
            note: None,
            may_have_note: false,
            changing: 0,
        }
    }
}

impl KeptTasks {
    pub(super) fn new(max: MaxKept, observer: Arc<Observer>) -> Self {
        Self {
            index: Mutex::default(),
            deadlines: Deadlines::default(),
            on_change: RwLock::default(),
            max,
            observer,
            results: Mutex::default(),
            next_result: AtomicU64::default(),
        }
    }

    /// Returns a number for a result.
    pub(super) fn number_result(&self) -> u64 {
        self.next_result.fetch_add(1, Ordering::Relaxed)
    }

    /// Says that numbers up to this one are in use.
    pub(super) fn skip_results(&self, number: u64) {
        self.next_result.fetch_max(number + 1, Ordering::Relaxed);
    }

    /// Keeps a result of a task in memory for a while. To be called while the index is locked, so that the task stays.
    pub(super) fn cache(&self, number: u64, raw: Bytes) {
        self.results.lock().insert(number, raw);
    }

    /// Returns a result, if memory has it.
    pub(super) fn cached(&self, number: u64) -> Option<Bytes> {
        self.results.lock().get(number)
    }

    /// Says that a task was changed or removed.
    pub(super) fn tell_change(&self, id: TaskId) {
        if let Some(callback) = &*self.on_change.read() {
            callback(Some(id));
        }
    }

    /// Returns what `look` sees of a task of `owner` that can be found.
    pub(super) fn look<T>(&self, owner: &Owner, id: TaskId, look: impl FnOnce(&Entry<Kept>) -> T) -> Option<T> {
        let index = self.index.lock();
        index.owned(owner, id).filter(|entry| entry.kept.stage == Stage::Kept).map(look)
    }

    /// Says that a task is on the disk.
    pub(super) fn keep(&self, id: TaskId) {
        let mut index = self.index.lock();
        if let Some(entry) = index.get_mut(id) {
            entry.kept.stage = Stage::Kept;
            self.deadlines.add(entry.expires, id);
            drop(index);
            self.observer.emit(events::TaskKept);
        }
    }

    /// Makes a change that was on its way to the disk, if it was written there, and keeps the `raw` result in memory.
    /// Returns whether it did: the task may have been removed.
    pub(super) fn finish_change(
        &self,
        next: Task,
        result: Option<ResultPlace>,
        raw: Option<Bytes>,
        is_written: bool,
    ) -> bool {
        let (id, expires) = (next.id, next.expires);
        let mut index = self.index.lock();
        let Some(entry) = index.get_mut(id) else { return false };
        entry.kept.changing -= 1;
        if !is_written {
            return false;
        }
        let bytes = result.as_ref().map_or(0, |result| result.bytes);
        let Some((before, kept)) = index.change(id, bytes, expires) else { return false };
        if let Some((result, raw)) = result.as_ref().zip(raw) {
            self.cache(result.number, raw);
        }
        kept.note = kept.note.take().filter(|_| !next.state.is_terminal());
        (kept.task, kept.result) = (Arc::new(next), result);
        if before != expires {
            self.deadlines.remove(before, id);
            self.deadlines.add(expires, id);
        }
        true
    }

    /// Returns the tasks that have not ended, with their places, in the order of their creation.
    pub(super) fn unfinished(&self) -> Vec<(u64, Arc<Task>)> {
        let index = self.index.lock();
        let runs = |kept: &Kept| kept.stage == Stage::Kept && !kept.task.state.is_terminal();
        let unfinished = index.all().filter(|entry| runs(&entry.kept));
        let mut unfinished: Vec<_> = unfinished.map(|entry| (entry.place, Arc::clone(&entry.kept.task))).collect();
        unfinished.sort_unstable_by_key(|(place, _)| *place);
        unfinished
    }

    /// Takes out the tasks that `choose` returns, and returns what each of them held. Nothing changes while it chooses,
    /// and nothing is locked when the removals are told.
    pub(super) fn remove(&self, choose: impl FnOnce() -> Vec<TaskId>) -> Vec<(TaskId, Entry<Kept>)> {
        let mut index = self.index.lock();
        let take = |id| {
            let entry = index.remove(id)?;
            self.deadlines.remove(entry.expires, id);
            Some((id, entry))
        };
        let removed: Vec<_> = choose().into_iter().filter_map(take).collect();
        drop(index);
        let mut bytes = 0;
        for (id, entry) in &removed {
            bytes += entry.bytes;
            if let Some(result) = &entry.kept.result {
                self.results.lock().remove(result.number);
            }
            self.observer.emit(events::TaskRemoved { task: *id });
            self.tell_change(*id);
        }
        if !removed.is_empty() {
            self.observer.emit(events::ResultRemoved { bytes });
        }
        removed
    }
}

impl fmt::Debug for KeptTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptTasks").field("max", &self.max).finish_non_exhaustive()
    }
}
