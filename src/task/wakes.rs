//! The requests of this process that wait for a task to change, and how many may.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::TaskId;
use crate::{flow::Tally, identity::Owner};

/// How many requests may wait for tasks at once.
#[derive(Clone, Copy, Debug)]
pub struct MaxWaiters {
    /// For one task.
    pub task: usize,
    /// For the tasks of one owner.
    pub owner: usize,
    /// In all.
    pub all: usize,
}

/// The limit on waiting requests that is reached, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// `max_waiters`
    Task(usize),
    /// `max_waiters_per_owner`
    Owner(usize),
    /// `max_waiters_total`
    All(usize),
}

impl fmt::Display for WaitLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(max) => write!(f, "tasks.max_waiters = {max} requests wait for this task already"),
            Self::Owner(max) => {
                write!(f, "tasks.max_waiters_per_owner = {max} requests of yours wait for tasks already")
            }
            Self::All(max) => write!(f, "tasks.max_waiters_total = {max} requests wait for tasks already"),
        }
    }
}

/// The tasks that requests wait for. Other tasks cost nothing here.
#[derive(Clone, Debug)]
pub(super) struct Wakes {
    max: MaxWaiters,
    watched: Arc<Mutex<Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    tasks: HashMap<TaskId, WatchedTask>,
    /// How many requests wait for tasks of each owner.
    owners: Tally<Owner>,
    /// How many requests wait in all.
    all: usize,
    /// The process stops: what has not ended goes on in the next one.
    stopped: bool,
}

#[derive(Debug, Default)]
struct WatchedTask {
    changes: watch::Sender<()>,
    /// How many requests wait for it.
    requests: usize,
}

/// One request that waits for a task.
#[derive(Debug)]
pub struct Watch {
    owner: Owner,
    id: TaskId,
    changes: watch::Receiver<()>,
    wakes: Wakes,
}

impl Wakes {
    /// Returns an empty table with room for `max` requests.
    pub(super) fn new(max: MaxWaiters) -> Self {
        Self { max, watched: Arc::default() }
    }

    /// Starts to watch a task: [`Watch::changed`] resolves at every change and at the removal from now on.
    ///
    /// # Errors
    /// [`WaitLimit`]
    pub(super) fn watch(&self, owner: &Owner, id: TaskId) -> Result<Watch, WaitLimit> {
        let (mut watched, max) = (self.watched.lock(), self.max);
        if watched.all >= max.all {
            return Err(WaitLimit::All(max.all));
        }
        if watched.owners.of(owner) >= max.owner {
            return Err(WaitLimit::Owner(max.owner));
        }
        let task = watched.tasks.entry(id).or_default();
        if task.requests >= max.task {
            return Err(WaitLimit::Task(max.task));
        }
        task.requests += 1;
        let changes = task.changes.subscribe();
        watched.owners.add(owner, 1);
        watched.all += 1;
        Ok(Watch { owner: owner.clone(), id, changes, wakes: self.clone() })
    }

    /// Wakes all requests, which find that they need not wait any more, as the process stops.
    pub(super) fn stop(&self) {
        self.watched.lock().stopped = true;
        self.wake(None);
    }

    /// Wakes the requests that wait for `id`; for `None`, where any task may have changed, all of them.
    pub(super) fn wake(&self, id: Option<TaskId>) {
        let watched = self.watched.lock();
        let wake = |task: &WatchedTask| {
            task.changes.send_replace(());
        };
        match id {
            Some(id) => watched.tasks.get(&id).into_iter().for_each(wake),
            None => watched.tasks.values().for_each(wake),
        }
    }
}

impl Watch {
    /// Waits for a change since the last call, or since the watch began.
    pub async fn changed(&mut self) {
        // The sender lives as long as this receiver.
        let _ = self.changes.changed().await;
    }

    /// Returns whether nothing more is to be waited for, as the process stops.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.wakes.watched.lock().stopped
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.wakes.watched.lock();
        if let Entry::Occupied(mut task) = watched.tasks.entry(self.id) {
            task.get_mut().requests -= 1;
            if task.get().requests == 0 {
                task.remove();
            }
        }
        watched.all -= 1;
        watched.owners.take(&self.owner, 1);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Barrier, thread};

    use uuid::Uuid;

    use super::*;

    #[test]
    fn watches_are_counted_for_a_task_for_an_owner_and_in_all_and_then_forgotten() {
        let wakes = Wakes::new(MaxWaiters { task: 1, owner: 2, all: 3 });
        let [ann, bob] = ["ann", "bob"].map(|name| Owner::principal("/mcp".into(), name.into()));
        let watch = |owner: &Owner, id| wakes.watch(owner, Uuid::from_u128(id));
        let first = watch(&ann, 1).expect("room");
        assert_eq!(watch(&ann, 1).err(), Some(WaitLimit::Task(1)));
        let second = watch(&ann, 2).expect("room");
        assert_eq!(watch(&ann, 3).err(), Some(WaitLimit::Owner(2)));
        let third = watch(&bob, 4).expect("room");
        assert_eq!(watch(&bob, 5).err(), Some(WaitLimit::All(3)));
        drop(second);
        let fourth = watch(&bob, 5).expect("room again");
        drop((first, third, fourth));
        let watched = wakes.watched.lock();
        assert!(watched.tasks.is_empty() && watched.owners.is_empty() && watched.all == 0);
    }

    #[test]
    fn a_task_whose_last_two_watches_end_at_once_is_forgotten() {
        let wakes = Wakes::new(MaxWaiters { task: 2, owner: 2, all: 2 });
        let (owner, id) = (Owner::anyone("/mcp".into()), Uuid::from_u128(1));
        let both = Barrier::new(2);
        for _ in 0..10_000 {
            let watches = [(); 2].map(|()| wakes.watch(&owner, id).expect("room"));
            thread::scope(|scope| {
                for watch in watches {
                    scope.spawn(|| {
                        both.wait();
                        drop(watch);
                    });
                }
            });
            assert!(wakes.watched.lock().tasks.is_empty());
        }
    }
}
