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
    /// In all outboxes together, and in the open questions of tasks, before each outbox is taken to be full.
    all: usize,
    waiting: AtomicUsize,
}

impl Capacity {
    /// Room for `each` bytes in one outbox, and for `all` in all together.
    #[must_use]
    pub fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { each, all, waiting: AtomicUsize::new(0) })
    }

    /// How many bytes may wait in one outbox.
    #[must_use]
    pub fn each(&self) -> usize {
        self.each
    }

    /// How many bytes may wait in all.
    #[must_use]
    pub fn all(&self) -> usize {
        self.all
    }

    /// Takes room for what is kept until the returned value is dropped. `None` where there is none.
    #[must_use]
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reserved> {
        self.take(bytes).then(|| Reserved { capacity: Arc::clone(self), bytes })
    }

    /// Counts `more` bytes if there is room for them in all.
    pub(super) fn take(&self, more: usize) -> bool {
        let with = |waiting: usize| waiting.checked_add(more).filter(|sum| *sum <= self.all);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).is_ok()
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

/// Bytes that are counted while it lives.
#[derive(Debug)]
pub struct Reserved {
    capacity: Arc<Capacity>,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.capacity.count(self.bytes, 0);
    }
}
