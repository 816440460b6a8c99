//! The ends of ttls in order, so that what is over is found promptly and the first one can be waited for.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::task::TaskId;

/// The ttl's end of every task.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    set: Mutex<BTreeSet<(Instant, TaskId)>>,
    /// Told when the first deadline is another one.
    earlier: Notify,
}

impl Deadlines {
    /// Adds a deadline.
    pub(super) fn add(&self, at: Instant, id: TaskId) {
        let mut set = self.set.lock();
        if set.first().is_none_or(|(first, _)| at < *first) {
            self.earlier.notify_one();
        }
        set.insert((at, id));
    }

    /// Takes a deadline out.
    pub(super) fn remove(&self, at: Instant, id: TaskId) {
        self.set.lock().remove(&(at, id));
    }

    /// Takes out what is over by `now`.
    pub(super) fn take_until(&self, now: Instant) -> Vec<TaskId> {
        let mut set = self.set.lock();
        let mut over = Vec::new();
        while let Some(first) = set.first().copied().filter(|(at, _)| *at <= now) {
            set.remove(&first);
            over.push(first.1);
        }
        over
    }

    /// Whether there are none.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.set.lock().is_empty()
    }

    /// Waits until the first deadline is over.
    pub(super) async fn wait(&self) {
        loop {
            let first = self.set.lock().first().map(|(at, _)| *at);
            let over = async {
                match first {
                    Some(at) => tokio::time::sleep_until(at).await,
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
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        identity::Owner,
        task::{
            Change, Now, Outcome, Task,
            state::tests::task,
            store::{Limit, MaxKept, MaxWaiters, MemoryStore, Store as _},
        },
    };

    const OWNER: Owner = Owner::Session(TaskId::nil());

    #[tokio::test(start_paused = true)]
    async fn what_the_cache_has_let_go_by_itself_is_released_at_its_deadline() {
        let store = MemoryStore::new(MaxKept::of_tasks(1, 1), Arc::default());
        let lost = task(&OWNER);
        store.insert(lost.clone()).await.expect("room");
        let result = Outcome::Result("{}".into());
        let ended = lost.after(Change::Complete(result), Now::read()).expect("legal");
        assert!(store.replace(ended).await);
        let mut watch = store.watch(&lost.owner, lost.id, MaxWaiters { task: 1, owner: 1, all: 1 }).expect("room");
        store.evict(lost.id);
        assert!(store.get(&lost.owner, lost.id).await.is_none());
        assert_eq!(store.insert(task(&OWNER)).await, Err(Limit::Tasks(1)));
        store.next_expiry().await;
        assert_eq!(store.expire(Instant::now()).await, [lost.id]);
        watch.changed().await;
        assert!(store.holds_nothing());
        store.insert(task(&OWNER)).await.expect("room again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_moves_at_the_end_of_its_task_is_the_one_that_counts() {
        let store = MemoryStore::new(MaxKept::of_tasks(10, 10), Arc::default());
        let minutes = Duration::from_mins;
        let ends = async |keep, shortens| {
            let task = Task { keep, shortens, ..task(&OWNER) };
            store.insert(task.clone()).await.expect("room");
            assert!(store.replace(task.after(Change::Cancel, Now::read()).expect("legal")).await);
            task.id
        };
        let (later, sooner) = (ends(minutes(3), false).await, ends(Duration::from_secs(5), true).await);
        let kept = async |id| store.get(&OWNER, id).await.is_some();
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(store.expire(Instant::now()).await.is_empty());
        store.next_expiry().await;
        assert_eq!(store.expire(Instant::now()).await, [sooner]);
        assert!(!kept(sooner).await && kept(later).await);
        tokio::time::advance(minutes(2)).await;
        assert!(store.expire(Instant::now()).await.is_empty() && kept(later).await);
        store.next_expiry().await;
        assert_eq!(store.expire(Instant::now()).await, [later]);
        assert!(store.holds_nothing());
    }
}
