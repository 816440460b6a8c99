//! How much may wait in one outbox, and in all of them together; the same for what was sent last.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The part of what may wait that what was sent last may have besides.
const SENT_PART: usize = 4;
/// Up to which length a queue keeps its room.
const SMALL_QUEUE: usize = 16;

/// How many bytes may wait for readers, and how many do; and how many of those that were sent last are kept.
#[derive(Debug)]
pub struct Capacity {
    /// In one outbox before messages are dropped.
    each: usize,
    /// In all outboxes together, and in the open questions of tasks, before each outbox is taken to be full.
    all: usize,
    waiting: AtomicUsize,
    sent: AtomicUsize,
}

impl Capacity {
    /// Room for `each` bytes in one outbox, and for `all` in all together.
    #[must_use]
    pub fn new(each: usize, all: usize) -> Arc<Self> {
        Arc::new(Self { each, all, waiting: AtomicUsize::new(0), sent: AtomicUsize::new(0) })
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
        add(&self.waiting, before, after);
    }

    /// How many bytes of what was sent last are kept for one stream.
    #[must_use]
    pub fn each_sent(&self) -> usize {
        self.each / SENT_PART
    }

    /// Whether more of what was sent last is kept than may be, for all streams together.
    #[must_use]
    pub fn sent_is_full(&self) -> bool {
        self.sent.load(Ordering::Relaxed) > self.all / SENT_PART
    }

    /// Counts the change of what was sent last on one stream.
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

/// Gives back the room of a queue that has been much longer: a queue is counted by what is in it.
pub fn shrink<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > SMALL_QUEUE && queue.len() <= queue.capacity() / 4 {
        queue.shrink_to(2 * queue.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_was_long_gives_its_room_back_and_not_one_step_after_the_other() {
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
