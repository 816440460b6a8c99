//! How many bytes may wait in one outbox and in all of them together, and how many sent bytes are kept for resumption.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Sent bytes may take this part of what may wait, besides it.
const SENT_PART: usize = 4;
/// A queue with room for up to this many items keeps it.
const SMALL_QUEUE: usize = 16;

/// Counts the bytes that wait for readers and the sent bytes that are kept, against their limits.
#[derive(Debug)]
pub struct Capacity {
    /// How many bytes may wait in one outbox before messages are dropped.
    each: usize,
    /// How many bytes may wait in all outboxes and in the open questions of tasks together. Beyond, every outbox is
    /// full.
    all: usize,
    waiting: AtomicUsize,
    sent: AtomicUsize,
}

impl Capacity {
    /// Creates room for `each` bytes in one outbox, and for `all` in all outboxes together.
    #[must_use]
    pub fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { each, all, waiting: AtomicUsize::new(0), sent: AtomicUsize::new(0) })
    }

    /// Returns how many bytes may wait in one outbox.
    #[must_use]
    pub fn each(&self) -> usize {
        self.each
    }

    /// Returns how many bytes may wait in all outboxes together.
    #[must_use]
    pub fn all(&self) -> usize {
        self.all
    }

    /// Reserves room until the returned value is dropped. Returns `None` if there is too little.
    #[must_use]
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reserved> {
        self.take(bytes).then(|| Reserved { capacity: Arc::clone(self), bytes })
    }

    /// Counts `more` bytes if there is room for them.
    pub(super) fn take(&self, more: usize) -> bool {
        let with = |waiting: usize| waiting.checked_add(more).filter(|sum| *sum <= self.all);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).is_ok()
    }

    /// Returns how many bytes an outbox that holds `bytes` may hold once `more` have been added.
    pub(super) fn with(&self, bytes: usize, more: usize) -> usize {
        let room = self.waiting.load(Ordering::Relaxed).saturating_add(more) <= self.all;
        if room { self.each } else { self.each.min(bytes) }
    }

    /// Counts a change in the size of one outbox.
    pub(super) fn count(&self, before: usize, after: usize) {
        add(&self.waiting, before, after);
    }

    /// Returns how many sent bytes may be kept for one stream.
    #[must_use]
    pub fn each_sent(&self) -> usize {
        self.each / SENT_PART
    }

    /// Returns whether all streams together keep more sent bytes than they may.
    #[must_use]
    pub fn sent_is_full(&self) -> bool {
        self.sent.load(Ordering::Relaxed) > self.all / SENT_PART
    }

    /// Counts a change in what is kept of what was sent on one stream.
    pub fn count_sent(&self, before: usize, after: usize) {
        add(&self.sent, before, after);
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

fn add(total: &AtomicUsize, before: usize, after: usize) {
    if after > before {
        total.fetch_add(after - before, Ordering::Relaxed);
    } else if after < before {
        total.fetch_sub(before - after, Ordering::Relaxed);
    }
}

/// Releases spare room of a queue that has been much longer: only what is in a queue is counted.
pub fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > SMALL_QUEUE && queue.len() <= queue.capacity() / 4 {
        queue.shrink_to(2 * queue.len());
    }
}

/// Room that is taken until this is dropped.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_was_long_releases_its_room_in_few_steps() {
        let mut queue: VecDeque<usize> = (0..1000).collect();
        let mut rooms = vec![queue.capacity()];
        while queue.pop_front().is_some() {
            shrink(&mut queue);
            assert!(queue.capacity() <= 4 * queue.len().max(SMALL_QUEUE));
            if rooms.last() != Some(&queue.capacity()) {
                rooms.push(queue.capacity());
            }
        }
        assert!(queue.capacity() <= SMALL_QUEUE && rooms.len() < 12, "{rooms:?}");
    }
}
