//! Deadlines in order, so that what is over is found promptly and the first one can be waited for.

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
