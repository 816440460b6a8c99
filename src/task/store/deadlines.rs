//! The ends of ttls in order: finds expired tasks promptly, and waits for the first one.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::task::{Clock, TaskId};

/// How many tasks are removed at once: every other use of the store waits meanwhile.
pub(super) const AT_ONCE: usize = 1024;

/// When each task expires, as [`crate::task::Task::expires`] counts.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    set: Mutex<BTreeSet<(u64, TaskId)>>,
    /// Notified when a deadline is added before all others.
    earlier: Notify,
}

impl Deadlines {
    /// Adds a deadline.
    pub(super) fn add(&self, at: u64, id: TaskId) {
        let mut set = self.set.lock();
        if set.first().is_none_or(|(first, _)| at < *first) {
            self.earlier.notify_one();
        }
        set.insert((at, id));
    }

    /// Takes a deadline out.
    pub(super) fn remove(&self, at: u64, id: TaskId) {
        self.set.lock().remove(&(at, id));
    }

    /// Takes out the first deadlines until `now`, at most [`AT_ONCE`], and returns their tasks.
    pub(super) fn take_until(&self, now: u64) -> Vec<TaskId> {
        let mut set = self.set.lock();
        let mut over = Vec::new();
        while over.len() < AT_ONCE
            && let Some(first) = set.first().copied().filter(|(at, _)| *at <= now)
        {
            set.remove(&first);
            over.push(first.1);
        }
        over
    }

    /// Returns whether there are no deadlines.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.set.lock().is_empty()
    }

    /// Waits until the first deadline.
    pub(super) async fn first(&self, clock: Clock) {
        loop {
            let first = self.set.lock().first().map(|(at, _)| *at);
            let over = async {
                match first {
                    Some(at) => clock.wait_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => return,
                () = self.earlier.notified() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::{
            Arc, LazyLock,
            atomic::{AtomicBool, Ordering},
        },
    };

    use super::*;
    use crate::{
        identity::Owner,
        task::{
            Change, Task,
            state::tests::{at, result, task},
            store::{CallChange, KeptLimit, MaxKept, MemoryStore, PageOrder, Store as _},
        },
    };

    static OWNER: LazyLock<Owner> = LazyLock::new(|| Owner::session(TaskId::nil()));

    async fn added(store: &MemoryStore, task: &Task) {
        store.insert(task.clone(), None).await.expect("memory").expect("room");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_task_holds_that_the_cache_has_evicted_is_released_at_its_deadline() {
        let clock = Clock::starting_at(1000);
        let store = MemoryStore::new(MaxKept::of_tasks(1, 1), clock, Arc::default());
        let lost = task(&OWNER);
        added(&store, &lost).await;
        let change = result("{}");
        let ended = lost.after(&change, clock.now()).expect("not ended");
        assert_eq!(store.replace(ended, change.end().cloned(), CallChange::Keep).await, Ok(true));
        store.evict(lost.id);
        assert!(store.get(&OWNER, lost.id).await.expect("memory").is_none());
        assert_eq!(store.end(&OWNER, lost.id).await, Ok(change.end().cloned()), "it is held until then");
        assert_eq!(store.insert(task(&OWNER), None).await, Ok(Err(KeptLimit::Tasks(1))));
        let told = Arc::new(AtomicBool::default());
        let noting = Arc::clone(&told);
        store.on_change(Box::new(move |id| noting.store(id == Some(lost.id), Ordering::Relaxed)));
        store.next_expiry().await.expect("memory");
        assert_eq!(store.expire(clock.steady()).await, Ok(vec![lost.id]));
        assert!(told.load(Ordering::Relaxed) && store.holds_nothing());
        added(&store, &task(&OWNER)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn many_tasks_that_expire_together_are_removed_in_parts() {
        let clock = Clock::starting_at(1000);
        let store = MemoryStore::new(MaxKept::of_tasks(usize::MAX, usize::MAX), clock, Arc::default());
        for _ in 0..=2 * AT_ONCE {
            added(&store, &task(&OWNER)).await;
        }
        for part in [AT_ONCE, AT_ONCE, 1] {
            store.next_expiry().await.expect("memory");
            assert_eq!(store.expire(clock.steady()).await.expect("memory").len(), part);
        }
        assert!(store.holds_nothing());
    }

    #[tokio::test]
    async fn many_tasks_of_an_owner_that_goes_are_removed_in_parts() {
        let clock = Clock::starting_at(1000);
        let store = MemoryStore::new(MaxKept::of_tasks(usize::MAX, usize::MAX), clock, Arc::default());
        for _ in 0..=2 * AT_ONCE {
            added(&store, &task(&OWNER)).await;
        }
        let mut left = Vec::new();
        let looks = async {
            while store.has_any(&OWNER).await.expect("memory") {
                left.push(store.page(&OWNER, PageOrder::ALL, usize::MAX).await.expect("memory").len());
                tokio::task::yield_now().await;
            }
        };
        let (removed, ()) = tokio::join!(biased; store.remove_all(&OWNER), looks);
        let removed: BTreeSet<_> = removed.expect("memory").into_iter().collect();
        assert_eq!((removed.len(), left), (2 * AT_ONCE + 1, vec![AT_ONCE + 1, 1]));
        assert!(store.holds_nothing());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_moves_at_the_end_of_its_task_is_the_one_that_counts() {
        let clock = Clock::starting_at(1000);
        let store = MemoryStore::new(MaxKept::of_tasks(10, 10), clock, Arc::default());
        let ends = async |keep, shortens| {
            let task = Task { keep, shortens, ..task(&OWNER) };
            added(&store, &task).await;
            let change = Change::cancel();
            let next = task.after(&change, at(1000)).expect("not ended");
            assert_eq!(store.replace(next, change.end().cloned(), CallChange::Keep).await, Ok(true));
            task.id
        };
        // Kept until 181 s instead of 61 s, and until 6 s.
        let (later, sooner) = (ends(180_000, false).await, ends(5_000, true).await);
        let kept = async |id| store.get(&OWNER, id).await.expect("memory").is_some();
        assert_eq!(store.expire(5_999).await, Ok(Vec::new()));
        store.next_expiry().await.expect("memory");
        assert_eq!((clock.steady(), store.expire(6_000).await), (6_000, Ok(vec![sooner])));
        assert!(!kept(sooner).await && kept(later).await);
        assert!(store.expire(180_999).await == Ok(Vec::new()) && kept(later).await);
        store.next_expiry().await.expect("memory");
        assert_eq!((clock.steady(), store.expire(181_000).await), (181_000, Ok(vec![later])));
        assert!(store.holds_nothing());
    }
}
