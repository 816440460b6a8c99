//! The store in this process's memory, on moka.
//!
//! moka has no capacity here: with one it would drop acknowledged tasks to make room. Admission is by counting before
//! the acknowledgement. moka's own expiry is lazy, so the store has deadlines that remove expired tasks promptly, and
//! moka's serves as the net under them.
//!
//! The index says which tasks there are, and how each has ended. Every change is made under its lock, in the cache too:
//! moka alone does not keep a removal and a change apart. If moka evicts a task by itself, the task's deadline still
//! releases what the task holds.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use moka::{Expiry, sync::Cache};
use parking_lot::{Mutex, RwLock};

use super::{
    CallChange, ChangeCallback, KeptLimit, MaxKept, NoEnd, NoteWritten, PageOrder, SavedCall, Store, StoreFuture,
    Unfinished,
    compact::CompactBytes,
    deadlines::{AT_ONCE, Deadlines},
    index::Index,
};
use crate::{
    identity::Owner,
    observe::{Observer, events},
    task::{Clock, End, Ending, Task, TaskId, id_map::BuildIdHasher},
};

/// How long after the last deadline that a task can have moka would remove it.
const MOKA_GRACE: Duration = Duration::from_mins(1);

/// Tasks in memory; they are gone when the process ends.
pub struct MemoryStore {
    tasks: Cache<TaskId, Arc<Kept>, BuildIdHasher>,
    /// Which tasks there are, with their ends. Locked before the deadlines, and while the cache changes.
    index: Mutex<Index<KeptEnd>>,
    deadlines: Deadlines,
    /// See [`Store::on_change`].
    on_change: RwLock<Option<ChangeCallback>>,
    max: MaxKept,
    clock: Clock,
    observer: Arc<Observer>,
}

/// How a task has ended, with what its call gave; `None` while it has not.
type KeptEnd = Option<(Ending, CompactBytes)>;

/// A task in the cache. A change is made here, without another entry in the cache.
#[derive(Debug)]
struct Kept {
    /// The newest version, which changes under the lock of the index.
    task: Mutex<Arc<Task>>,
    /// The last deadline that moka allows for.
    until: u64,
}

impl Kept {
    fn new(task: Task) -> Arc<Self> {
        // An end comes no later than the deadline before it, and moves that by no more than this.
        let until = task.expires.saturating_add(task.keep);
        Arc::new(Self { task: Mutex::new(Arc::new(task)), until })
    }

    fn task(&self) -> Arc<Task> {
        Arc::clone(&self.task.lock())
    }
}

#[derive(Debug)]
struct AfterDeadline(Clock);

impl Expiry<TaskId, Arc<Kept>> for AfterDeadline {
    fn expire_after_create(&self, _: &TaskId, kept: &Arc<Kept>, _: Instant) -> Option<Duration> {
        Some(Duration::from_millis(kept.until.saturating_sub(self.0.steady())) + MOKA_GRACE)
    }

    fn expire_after_update(
        &self,
        id: &TaskId,
        kept: &Arc<Kept>,
        now: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.expire_after_create(id, kept, now)
    }
}

impl MemoryStore {
    /// Returns an empty store that admits tasks up to `max` and reads deadlines by `clock`.
    #[must_use]
    pub fn new(max: MaxKept, clock: Clock, observer: Arc<Observer>) -> Self {
        Self {
            tasks: Cache::builder().expire_after(AfterDeadline(clock)).build_with_hasher(BuildIdHasher::default()),
            index: Mutex::default(),
            deadlines: Deadlines::default(),
            on_change: RwLock::default(),
            max,
            clock,
            observer,
        }
    }

    fn owned(&self, owner: &Owner, id: TaskId) -> Option<Arc<Task>> {
        self.tasks.get(&id).map(|kept| kept.task()).filter(|task| task.owner == *owner)
    }

    /// Removes the tasks that `choose` returns, and returns those that were there. Releases what each of them holds,
    /// whether the cache still has the task or not.
    fn remove(&self, choose: impl FnOnce(&Index<KeptEnd>) -> Vec<TaskId>) -> Vec<TaskId> {
        let mut bytes = 0;
        let removed = {
            let mut index = self.index.lock();
            let mut ids = choose(&index);
            ids.retain(|id| {
                let Some(entry) = index.remove(*id) else { return false };
                self.tasks.invalidate(id);
                self.deadlines.remove(entry.expires, *id);
                bytes += entry.bytes;
                true
            });
            ids
        };
        if !removed.is_empty() {
            for id in &removed {
                self.observer.emit(events::TaskRemoved { task: *id });
                self.tell_change(*id);
            }
            self.observer.emit(events::ResultRemoved { bytes });
            // moka frees the memory of what was removed only when it does its housekeeping.
            self.tasks.run_pending_tasks();
        }
        removed
    }

    fn tell_change(&self, id: TaskId) {
        if let Some(callback) = &*self.on_change.read() {
            callback(Some(id));
        }
    }

    /// Returns whether the store holds nothing of any task.
    #[cfg(test)]
    pub(super) fn holds_nothing(&self) -> bool {
        self.tasks.run_pending_tasks();
        self.index.lock().bytes() == 0 && self.deadlines.is_empty() && self.tasks.entry_count() == 0
    }

    /// Evicts a task from the cache, as the cache's own expiry would.
    #[cfg(test)]
    pub(in crate::task) fn evict(&self, id: TaskId) {
        self.tasks.invalidate(&id);
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("max", &self.max).finish_non_exhaustive()
    }
}

/// Returns an answer at once: memory is always available.
fn ready<'a, T: Send + 'a, E: Send + 'a>(answer: T) -> StoreFuture<'a, T, E> {
    Box::pin(std::future::ready(Ok(answer)))
}

impl Store for MemoryStore {
    fn insert(&self, task: Task, _call: Option<SavedCall>) -> StoreFuture<'_, Result<(), KeptLimit>> {
        let kept = Kept::new(task);
        let task = kept.task();
        // The cache may do its housekeeping, for which others must not wait. Nothing knows the id yet.
        self.tasks.insert(task.id, kept);
        let mut index = self.index.lock();
        let admitted = index.admit(&task, &self.max, None).map(drop);
        if admitted.is_ok() {
            self.deadlines.add(task.expires, task.id);
            drop(index);
            self.observer.emit(events::TaskKept);
        } else {
            drop(index);
            self.tasks.invalidate(&task.id);
        }
        ready(admitted)
    }

    fn get<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<Arc<Task>>> {
        ready(self.owned(owner, id))
    }

    fn end<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<End>, NoEnd> {
        let index = self.index.lock();
        let end = index.owned(owner, id).and_then(|entry| entry.kept.as_ref());
        ready(end.map(|(ending, raw)| End::of(*ending, raw.to_bytes())))
    }

    fn replace(&self, next: Task, end: Option<End>, _call: CallChange) -> StoreFuture<'_, bool> {
        let (id, expires) = (next.id, next.expires);
        let bytes = end.as_ref().map_or(0, End::bytes);
        let mut index = self.index.lock();
        let is_next = |kept: &Arc<Kept>| kept.task.lock().version == next.version.wrapping_sub(1);
        let before = self.tasks.get(&id).filter(is_next).and_then(|kept| {
            let (before, kept_end) = index.change(id, bytes, expires)?;
            *kept_end = end.as_ref().map(|end| (end.ending(), end.raw().map(CompactBytes::of).unwrap_or_default()));
            Some((before, kept))
        });
        let changed = before.is_some();
        if let Some((before, kept)) = before {
            if before != expires {
                self.deadlines.remove(before, id);
                self.deadlines.add(expires, id);
            }
            if expires <= kept.until {
                *kept.task.lock() = Arc::new(next);
            } else {
                // It ended after its deadline, before it was removed.
                self.tasks.insert(id, Kept::new(next));
            }
            drop(index);
            if bytes > 0 {
                self.observer.emit(events::ResultKept { bytes });
            }
            self.tell_change(id);
        }
        ready(changed)
    }

    fn page<'a>(&'a self, owner: &'a Owner, order: PageOrder, count: usize) -> StoreFuture<'a, Vec<(u64, Arc<Task>)>> {
        let index = self.index.lock();
        let tasks = index.of(owner, order).filter_map(|(place, id)| Some((place, self.owned(owner, id)?)));
        let page = tasks.take(count).collect();
        ready(page)
    }

    fn has_any<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, bool> {
        ready(self.index.lock().has_any(owner))
    }

    fn remove_all<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, Vec<TaskId>> {
        Box::pin(async move {
            let mut removed = Vec::new();
            loop {
                let part =
                    self.remove(|index| index.of(owner, PageOrder::ALL).take(AT_ONCE).map(|(_, id)| id).collect());
                let is_last = part.len() < AT_ONCE;
                removed.extend(part);
                if is_last {
                    return Ok(removed);
                }
                tokio::task::yield_now().await;
            }
        })
    }

    fn expire(&self, unix: u64) -> StoreFuture<'_, Vec<TaskId>> {
        ready(self.remove(|_| self.deadlines.take_until(unix)))
    }

    fn next_expiry(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            self.deadlines.first(self.clock).await;
            Ok(())
        })
    }

    fn note(&self, _task: TaskId, _note: Bytes, _written: NoteWritten) {}

    fn unfinished(&self) -> StoreFuture<'_, Vec<Unfinished>> {
        ready(Vec::new())
    }

    fn owners(&self) -> StoreFuture<'_, Vec<(Owner, usize)>> {
        ready(self.index.lock().owners())
    }

    fn saves_calls(&self) -> bool {
        false
    }

    fn seals(&self) -> bool {
        false
    }

    fn full(&self, owner: &Owner) -> Option<KeptLimit> {
        self.index.lock().full(owner, &self.max)
    }

    fn on_change(&self, callback: ChangeCallback) {
        *self.on_change.write() = Some(callback);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::task::{
        Change,
        state::tests::{at, result, task},
    };

    fn store() -> MemoryStore {
        MemoryStore::new(MaxKept::of_tasks(usize::MAX, usize::MAX), Clock::starting_at(1000), Arc::default())
    }

    async fn change(store: &MemoryStore, task: &Task, change: Change) {
        let next = task.after(&change, at(1)).expect("not ended");
        // Of several changes to one version only the first is made, and the task may have been removed.
        store.replace(next, change.end().cloned(), CallChange::Keep).await.expect("memory");
    }

    fn owner(name: &str) -> Owner {
        Owner::principal("/mcp".into(), name.into())
    }

    #[tokio::test]
    async fn ten_thousand_tasks_under_polling_are_all_kept() {
        let store = store();
        let tasks: Vec<Task> = (0..10_000).map(|_| task(&owner("ann"))).collect();
        for task in &tasks {
            store.insert(task.clone(), None).await.expect("memory").expect("room");
            for _ in 0..3 {
                store.get(&task.owner, tasks[0].id).await.expect("memory").expect("kept");
            }
        }
        store.tasks.run_pending_tasks();
        for task in &tasks {
            assert!(store.get(&task.owner, task.id).await.expect("memory").is_some());
        }
        assert_eq!(store.page(&owner("ann"), PageOrder::ALL, usize::MAX).await.expect("memory").len(), tasks.len());
    }

    #[tokio::test]
    async fn moka_allows_for_every_deadline_that_an_end_gives_a_task() {
        for late in [0, 60_000] {
            let (store, task) = (store(), task(&owner("ann")));
            store.insert(task.clone(), None).await.expect("memory").expect("room");
            // Nothing has removed it at its deadline.
            let ended = task.after(&result("{}"), at(task.expires + late)).expect("not ended");
            assert_eq!(store.replace(ended, None, CallChange::Keep).await, Ok(true));
            let kept = store.tasks.get(&task.id).expect("kept");
            assert!(kept.task().version == 1 && kept.until >= kept.task().expires, "{late}");
        }
    }

    proptest! {
        #[test]
        fn the_bytes_that_are_counted_are_those_of_the_results_that_are_kept(
            steps in proptest::collection::vec((0u8..8, 0usize..3, 0usize..100), 1..100),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let store = store();
                let owners = ["ann", "bob", "cid"].map(owner);
                let mut all: Vec<Task> = Vec::new();
                for (kind, who, n) in steps {
                    let which = n.checked_rem(all.len()).unwrap_or(0);
                    match (kind, all.get(which)) {
                        (0..=2, _) | (_, None) => {
                            let (expires, keep) = (n as u64, n as u64 / 2);
                            let task = Task { expires, keep, shortens: n.is_multiple_of(2), ..task(&owners[who]) };
                            store.insert(task.clone(), None).await.expect("memory").expect("room");
                            all.push(task);
                        }
                        (3 | 4, Some(task)) => change(&store, task, result(vec![b' '; n])).await,
                        (5, Some(task)) => change(&store, task, Change::cancel()).await,
                        (6, _) => drop(store.remove_all(&owners[who]).await),
                        _ => drop(store.expire(n as u64).await),
                    }
                    let mut sum = 0;
                    for owner in &owners {
                        let mut bytes = 0;
                        for (_, task) in store.page(owner, PageOrder::ALL, usize::MAX).await.expect("memory") {
                            bytes += store.end(owner, task.id).await.expect("memory").map_or(0, |end| end.bytes());
                        }
                        assert_eq!(store.index.lock().bytes_of(owner), bytes);
                        sum += bytes;
                    }
                    assert_eq!(store.index.lock().bytes(), sum);
                    let metrics = store.observer.open_metrics();
                    assert!(metrics.contains(&format!("taskgate_result_bytes {sum}\n")), "{sum} in {metrics}");
                }
            });
        }
    }
}
