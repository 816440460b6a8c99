//! How much may wait in one outbox, and in all of them together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How many bytes may wait for readers, and how many do.
#[derive(Debug)]
pub struct Capacity {
    /// In one outbox before messages are dropped.
    each: usize,
    /// In all outboxes together, before each of them is taken to be full.
    all: usize,
    waiting: AtomicUsize,
}

impl Capacity {
    /// Room for `each` bytes in one outbox, and for `all` in all together. Several threads may see the last room at once,
    /// so each of them may go over it by a message.
    #[must_use]
    pub fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { each, all, waiting: AtomicUsize::new(0) })
    }

    /// How many bytes may wait in one outbox.
    #[must_use]
    pub fn each(&self) -> usize {
        self.each
    }

    /// What an outbox with so many bytes in it may have when `more` have come.
    pub(super) fn with(&self, bytes: usize, more: usize) -> usize {
        let room = self.waiting.load(Ordering::Relaxed).saturating_add(more) <= self.all;
        if room { self.each } else { self.each.min(bytes) }
    }

    /// Counts the change of one outbox.
    pub(super) fn count(&self, before: usize, after: usize) {
        if after > before {
            self.waiting.fetch_add(after - before, Ordering::Relaxed);
        } else if after < before {
            self.waiting.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}
