//! The store in this process's memory, on moka.
//!
//! moka has no capacity here: with one it would drop acknowledged tasks to make room. Admission is by counting before
//! the acknowledgement. moka's own expiry is lazy and on its own clock, so that deadlines of our own remove what is over
//! promptly, and moka's serves as the net under them.

use std::{
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use moka::{
    Expiry,
    ops::compute::{CompResult, Op},
    sync::Cache,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Answer, Limit, Store, Watch, deadlines::Deadlines, index::Index, watch::Watchers};
use crate::{
    identity::Owner,
    task::{Task, TaskId},
};

/// How long after our own deadline moka would remove a task.
const MOKA_GRACE: Duration = Duration::from_mins(1);

/// Tasks in memory; they are gone when the process ends.
#[derive(Debug)]
pub struct MemoryStore {
    tasks: Cache<TaskId, Arc<Task>>,
    index: Mutex<Index>,
    deadlines: Deadlines,
    watchers: Watchers,
    max_per_owner: usize,
    max: usize,
}

#[derive(Debug)]
struct FromCreation;

impl Expiry<TaskId, Arc<Task>> for FromCreation {
    fn expire_after_create(&self, _: &TaskId, task: &Arc<Task>, _: StdInstant) -> Option<Duration> {
        Some(Duration::from_millis(task.ttl) + MOKA_GRACE)
    }

    fn expire_after_update(
        &self,
        _: &TaskId,
        _: &Arc<Task>,
        _: StdInstant,
        remaining: Option<Duration>,
    ) -> Option<Duration> {
        remaining
    }
}

impl MemoryStore {
    /// An empty store for at most `max` tasks, `max_per_owner` of one owner, finished ones included.
    #[must_use]
    pub fn new(max_per_owner: usize, max: usize) -> Self {
        Self {
            tasks: Cache::builder().expire_after(FromCreation).build(),
            index: Mutex::default(),
            deadlines: Deadlines::default(),
            watchers: Watchers::default(),
            max_per_owner,
            max,
        }
    }

    fn owned(&self, owner: &Owner, id: TaskId) -> Option<Arc<Task>> {
        self.tasks.get(&id).filter(|task| task.owner == *owner)
    }

    /// Removes tasks, and returns those that nobody else has removed meanwhile.
    fn forget_all(&self, mut ids: Vec<TaskId>) -> Vec<TaskId> {
        ids.retain(|id| self.forget(*id));
        if !ids.is_empty() {
            // moka frees the memory of what was removed only when it does its housekeeping.
            self.tasks.run_pending_tasks();
        }
        ids
    }

    fn forget(&self, id: TaskId) -> bool {
        let Some(task) = self.tasks.remove(&id) else { return false };
        self.index.lock().remove(&task.owner, id);
        self.deadlines.remove(task.expires, id);
        self.watchers.wake(id);
        true
    }
}

impl Store for MemoryStore {
    fn insert(&self, task: Task) -> Answer<'_, Result<(), Limit>> {
        let admitted = self.index.lock().admit(&task.owner, task.id, self.max_per_owner, self.max);
        if admitted.is_ok() {
            let (expires, id) = (task.expires, task.id);
            self.tasks.insert(id, Arc::new(task));
            self.deadlines.add(expires, id);
        }
        Box::pin(std::future::ready(admitted))
    }

    fn get<'a>(&'a self, owner: &'a Owner, id: TaskId) -> Answer<'a, Option<Arc<Task>>> {
        Box::pin(std::future::ready(self.owned(owner, id)))
    }

    fn replace(&self, next: Task) -> Answer<'_, bool> {
        let id = next.id;
        let replaced = self.tasks.entry(id).and_compute_with(|current| {
            let before = next.version.wrapping_sub(1);
            match current {
                Some(current) if current.value().version == before => Op::Put(Arc::new(next)),
                _ => Op::Nop,
            }
        });
        let replaced = matches!(replaced, CompResult::ReplacedWith(_));
        if replaced {
            self.watchers.wake(id);
        }
        Box::pin(std::future::ready(replaced))
    }

    fn list<'a>(&'a self, owner: &'a Owner, after: Option<u64>, count: usize) -> Answer<'a, Vec<(u64, Arc<Task>)>> {
        let page = self.index.lock().page(owner, after, count);
        let tasks = page.into_iter().filter_map(|(place, id)| Some((place, self.owned(owner, id)?))).collect();
        Box::pin(std::future::ready(tasks))
    }

    fn has_any<'a>(&'a self, owner: &'a Owner) -> Answer<'a, bool> {
        Box::pin(std::future::ready(self.index.lock().has_any(owner)))
    }

    fn remove_all<'a>(&'a self, owner: &'a Owner) -> Answer<'a, Vec<TaskId>> {
        let page = self.index.lock().page(owner, None, usize::MAX);
        let removed = self.forget_all(page.into_iter().map(|(_, id)| id).collect());
        Box::pin(std::future::ready(removed))
    }

    fn expire(&self, now: Instant) -> Answer<'_, Vec<TaskId>> {
        let removed = self.forget_all(self.deadlines.take_until(now));
        Box::pin(std::future::ready(removed))
    }

    fn next_expiry(&self) -> Answer<'_, ()> {
        Box::pin(self.deadlines.wait())
    }

    fn watch(&self, id: TaskId, max: usize) -> Result<Watch, Limit> {
        self.watchers.watch(id, max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{Change, state::tests::task};

    fn owner(name: &str) -> Owner {
        Owner::Principal { upstream: 0, name: name.into() }
    }

    #[tokio::test]
    async fn a_foreign_task_is_as_unknown_as_one_that_never_was() {
        let store = MemoryStore::new(10, 10);
        let task = task(&owner("ann"));
        let id = task.id;
        store.insert(task).await.expect("room");
        assert!(store.get(&owner("ann"), id).await.is_some());
        assert!(store.get(&owner("bob"), id).await.is_none());
        assert!(store.list(&owner("bob"), None, 10).await.is_empty());
    }

    #[tokio::test]
    async fn of_two_changes_to_one_version_the_first_wins() {
        let store = MemoryStore::new(10, 10);
        let task = task(&owner("ann"));
        let (one, two) = (task.after(Change::Cancel, 1), task.after(Change::Message("late".into()), 2));
        store.insert(task).await.expect("room");
        assert!(store.replace(one.expect("legal")).await);
        assert!(!store.replace(two.expect("legal")).await);
    }

    #[tokio::test]
    async fn limits_refuse_new_tasks_and_never_drop_old_ones() {
        let store = MemoryStore::new(2, 3);
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
        let store = MemoryStore::new(usize::MAX, usize::MAX);
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

    #[tokio::test(start_paused = true)]
    async fn an_expired_task_wakes_its_watchers_and_is_gone() {
        let store = MemoryStore::new(10, 10);
        let task = task(&owner("ann"));
        store.insert(task.clone()).await.expect("room");
        let mut watch = store.watch(task.id, 1).expect("room");
        assert_eq!(store.watch(task.id, 1).err(), Some(Limit::Waiters(1)));
        store.next_expiry().await;
        assert_eq!(store.expire(Instant::now()).await, [task.id]);
        watch.changed().await;
        assert!(store.get(&task.owner, task.id).await.is_none());
        assert!(!store.has_any(&task.owner).await);
    }
}
