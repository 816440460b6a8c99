//! The store in this process's memory, on moka.
//!
//! moka has no capacity here: with one it would drop acknowledged tasks to make room. Admission is by counting before
//! the acknowledgement. moka's own expiry is lazy, so that deadlines of our own remove what is over promptly, and moka's
//! serves as the net under them.
//!
//! The index says which tasks there are. Every change is made under its lock, in the cache too: moka alone does not keep
//! a removal and a change apart. Whatever moka has let go by itself, the task's deadline releases what it holds.

use std::{
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use moka::{Expiry, sync::Cache};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Answer, Limit, MaxKept, MaxWaiters, Store, Watch, deadlines::Deadlines, index::Index, watch::Watchers};
use crate::{
    identity::Owner,
    observe::{Observer, events},
    task::{Outcome, Task, TaskId},
};

/// How long after our own deadline moka would remove a task.
const MOKA_GRACE: Duration = Duration::from_mins(1);

/// Tasks in memory; they are gone when the process ends.
#[derive(Debug)]
pub struct MemoryStore {
    tasks: Cache<TaskId, Arc<Task>>,
    /// Locked before the deadlines, and while the cache changes.
    index: Mutex<Index>,
    deadlines: Deadlines,
    watchers: Watchers,
    max: MaxKept,
    observer: Arc<Observer>,
}

#[derive(Debug)]
struct AtDeadline;

impl Expiry<TaskId, Arc<Task>> for AtDeadline {
    fn expire_after_create(&self, _: &TaskId, task: &Arc<Task>, now: StdInstant) -> Option<Duration> {
        Some((task.expires + MOKA_GRACE).into_std().saturating_duration_since(now))
    }

    fn expire_after_update(
        &self,
        id: &TaskId,
        task: &Arc<Task>,
        now: StdInstant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.expire_after_create(id, task, now)
    }
}

impl MemoryStore {
    /// An empty store that takes in tasks up to `max`.
    #[must_use]
    pub fn new(max: MaxKept, observer: Arc<Observer>) -> Self {
        Self {
            tasks: Cache::builder().expire_after(AtDeadline).build(),
            index: Mutex::default(),
            deadlines: Deadlines::default(),
            watchers: Watchers::default(),
            max,
            observer,
        }
    }

    fn owned(&self, owner: &Owner, id: TaskId) -> Option<Arc<Task>> {
        self.tasks.get(&id).filter(|task| task.owner == *owner)
    }

    /// Removes those of the tasks that `choose` returns, and returns which these were. What each of them holds is released
    /// whether the cache still has it or not.
    fn remove(&self, choose: impl FnOnce(&Index) -> Vec<TaskId>) -> Vec<TaskId> {
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
                self.watchers.wake(*id);
            }
            self.observer.emit(events::ResultRemoved { bytes });
            // moka frees the memory of what was removed only when it does its housekeeping.
            self.tasks.run_pending_tasks();
        }
        removed
    }

    /// Whether no task leaves anything behind.
    #[cfg(test)]
    pub(super) fn holds_nothing(&self) -> bool {
        self.tasks.run_pending_tasks();
        self.index.lock().bytes() == 0 && self.deadlines.is_empty() && self.tasks.entry_count() == 0
    }

    /// Lets the cache lose a task, as its own expiry would.
    #[cfg(test)]
    pub(in crate::task) fn evict(&self, id: TaskId) {
        self.tasks.invalidate(&id);
    }
}

impl Store for MemoryStore {
    fn insert(&self, task: Task) -> Answer<'_, Result<(), Limit>> {
        let mut index = self.index.lock();
        let admitted = index.admit(&task, &self.max);
        if admitted.is_ok() {
            self.deadlines.add(task.expires, task.id);
            self.tasks.insert(task.id, Arc::new(task));
        }
        Box::pin(std::future::ready(admitted))
    }

    fn get<'a>(&'a self, owner: &'a Owner, id: TaskId) -> Answer<'a, Option<Arc<Task>>> {
        Box::pin(std::future::ready(self.owned(owner, id)))
    }

    fn replace(&self, next: Task) -> Answer<'_, bool> {
        let (id, expires) = (next.id, next.expires);
        let bytes = next.state.outcome().map(Outcome::len);
        let mut index = self.index.lock();
        let is_next = |current: &Arc<Task>| current.version == next.version.wrapping_sub(1);
        let before = match self.tasks.get(&id).filter(is_next) {
            Some(_) => index.change(id, bytes.unwrap_or(0), expires),
            None => None,
        };
        if let Some(before) = before {
            if before != expires {
                self.deadlines.remove(before, id);
                self.deadlines.add(expires, id);
            }
            self.tasks.insert(id, Arc::new(next));
            drop(index);
            if let Some(bytes) = bytes {
                self.observer.emit(events::ResultKept { bytes });
            }
            self.watchers.wake(id);
        }
        Box::pin(std::future::ready(before.is_some()))
    }

    fn list<'a>(&'a self, owner: &'a Owner, after: Option<u64>, count: usize) -> Answer<'a, Vec<(u64, Arc<Task>)>> {
        let index = self.index.lock();
        let tasks = index.of(owner, after).filter_map(|(place, id)| Some((place, self.owned(owner, id)?)));
        let page = tasks.take(count).collect();
        Box::pin(std::future::ready(page))
    }

    fn has_any<'a>(&'a self, owner: &'a Owner) -> Answer<'a, bool> {
        Box::pin(std::future::ready(self.index.lock().has_any(owner)))
    }

    fn remove_all<'a>(&'a self, owner: &'a Owner) -> Answer<'a, Vec<TaskId>> {
        let removed = self.remove(|index| index.of(owner, None).map(|(_, id)| id).collect());
        Box::pin(std::future::ready(removed))
    }

    fn expire(&self, now: Instant) -> Answer<'_, Vec<TaskId>> {
        let removed = self.remove(|_| self.deadlines.take_until(now));
        Box::pin(std::future::ready(removed))
    }

    fn next_expiry(&self) -> Answer<'_, ()> {
        Box::pin(self.deadlines.wait())
    }

    fn full(&self, owner: &Owner) -> Option<Limit> {
        self.index.lock().full(owner, &self.max)
    }

    fn watch(&self, owner: &Owner, id: TaskId, max: MaxWaiters) -> Result<Watch, Limit> {
        self.watchers.watch(owner, id, max)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::task::{
        Change,
        state::tests::{at, task},
    };

    fn store(tasks_per_owner: usize, tasks: usize) -> MemoryStore {
        MemoryStore::new(MaxKept::of_tasks(tasks_per_owner, tasks), Arc::default())
    }

    /// The task with a result of so many bytes.
    fn completed(task: &Task, bytes: usize) -> Task {
        task.after(Change::Complete(Outcome::Result(vec![b' '; bytes].into())), at(1)).expect("legal")
    }

    fn owner(name: &str) -> Owner {
        Owner::Principal { upstream: "/mcp".into(), name: name.into() }
    }

    #[tokio::test]
    async fn a_foreign_task_is_as_unknown_as_one_that_never_was() {
        let store = store(10, 10);
        let task = task(&owner("ann"));
        let id = task.id;
        store.insert(task).await.expect("room");
        assert!(store.get(&owner("ann"), id).await.is_some());
        assert!(store.get(&owner("bob"), id).await.is_none());
        assert!(store.list(&owner("bob"), None, 10).await.is_empty());
    }

    #[tokio::test]
    async fn of_two_changes_to_one_version_the_first_wins() {
        let store = store(10, 10);
        let task = task(&owner("ann"));
        let (one, two) = (task.after(Change::Cancel, at(1)), task.after(Change::Message("late".into()), at(2)));
        store.insert(task).await.expect("room");
        assert!(store.replace(one.expect("legal")).await);
        assert!(!store.replace(two.expect("legal")).await);
    }

    #[tokio::test]
    async fn limits_refuse_new_tasks_and_never_drop_old_ones() {
        let store = store(2, 3);
        let tasks = [task(&owner("ann")), task(&owner("ann"))];
        for task in &tasks {
            store.insert(task.clone()).await.expect("room");
        }
        assert_eq!(store.insert(task(&owner("ann"))).await, Err(Limit::TasksPerOwner(2)));
        store.insert(task(&owner("bob"))).await.expect("room");
        assert_eq!(store.insert(task(&owner("cid"))).await, Err(Limit::Tasks(3)));
        for task in &tasks {
            assert!(store.get(&task.owner, task.id).await.is_some());
        }
        assert_eq!(store.remove_all(&owner("ann")).await.len(), 2);
        store.insert(task(&owner("cid"))).await.expect("room again");
    }

    #[tokio::test]
    async fn ten_thousand_tasks_under_polling_are_all_kept() {
        let store = store(usize::MAX, usize::MAX);
        let tasks: Vec<Task> = (0..10_000).map(|_| task(&owner("ann"))).collect();
        for task in &tasks {
            store.insert(task.clone()).await.expect("room");
            for _ in 0..3 {
                store.get(&task.owner, tasks[0].id).await.expect("kept");
            }
        }
        store.tasks.run_pending_tasks();
        for task in &tasks {
            assert!(store.get(&task.owner, task.id).await.is_some());
        }
        assert_eq!(store.list(&owner("ann"), None, usize::MAX).await.len(), tasks.len());
    }

    #[tokio::test]
    async fn where_the_bytes_of_results_are_used_up_new_tasks_are_refused_and_what_was_admitted_is_kept() {
        let max = MaxKept { tasks_per_owner: 10, tasks: 10, bytes_per_owner: 5, bytes: 8 };
        let store = MemoryStore::new(max, Arc::default());
        let [ann, bob] = ["ann", "bob"].map(owner);
        let tasks = [task(&ann), task(&ann), task(&bob)];
        for task in &tasks {
            store.insert(task.clone()).await.expect("room");
        }
        store.replace(completed(&tasks[0], 5)).await;
        assert_eq!(store.insert(task(&ann)).await, Err(Limit::ResultBytesPerOwner(5)));
        store.insert(task(&bob)).await.expect("room for another owner");
        assert!(store.replace(completed(&tasks[1], 5)).await);
        assert_eq!(store.insert(task(&bob)).await, Err(Limit::ResultBytes(8)));
        assert!(store.replace(completed(&tasks[2], 5)).await);
        for task in &tasks {
            let kept = store.get(&task.owner, task.id).await.expect("kept");
            assert_eq!(kept.state.outcome().map(Outcome::len), Some(5));
        }
        store.remove_all(&ann).await;
        store.insert(task(&ann)).await.expect("room again");
    }

    proptest! {
        #[test]
        fn the_bytes_that_are_counted_are_those_of_the_results_that_are_kept(
            steps in proptest::collection::vec((0u8..8, 0usize..3, 0usize..100), 1..100),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let store = store(usize::MAX, usize::MAX);
                let owners = ["ann", "bob", "cid"].map(owner);
                let mut all: Vec<Task> = Vec::new();
                for (kind, who, n) in steps {
                    let which = n.checked_rem(all.len()).unwrap_or(0);
                    match (kind, all.get(which)) {
                        (0..=2, _) | (_, None) => {
                            let expires = Instant::now() + Duration::from_secs(n as u64);
                            let keep = Duration::from_secs(n as u64 / 2);
                            let task = Task { expires, keep, shortens: n.is_multiple_of(2), ..task(&owners[who]) };
                            store.insert(task.clone()).await.expect("room");
                            all.push(task);
                        }
                        // Of several changes to one version the first wins, and a task may be gone.
                        (3 | 4, Some(task)) => drop(store.replace(completed(task, n)).await),
                        (5, Some(task)) => drop(store.replace(task.after(Change::Cancel, at(1)).expect("legal")).await),
                        (6, _) => drop(store.remove_all(&owners[who]).await),
                        _ => drop(store.expire(Instant::now() + Duration::from_secs(n as u64)).await),
                    }
                    let mut sum = 0;
                    for owner in &owners {
                        let kept = store.list(owner, None, usize::MAX).await;
                        let bytes = kept.iter().filter_map(|(_, task)| task.state.outcome()).map(Outcome::len);
                        let bytes = bytes.sum::<usize>();
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

    #[tokio::test(start_paused = true)]
    async fn an_expired_task_wakes_its_watchers_and_is_gone() {
        let store = store(10, 10);
        let task = task(&owner("ann"));
        store.insert(task.clone()).await.expect("room");
        let mut watch = store.watch(&task.owner, task.id, MaxWaiters { task: 1, owner: 1, all: 1 }).expect("room");
        store.next_expiry().await;
        assert_eq!(store.expire(Instant::now()).await, [task.id]);
        watch.changed().await;
        assert!(store.get(&task.owner, task.id).await.is_none());
        assert!(!store.has_any(&task.owner).await);
    }
}
