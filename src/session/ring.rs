//! What was sent last on one stream, to be sent again to a client that has lost it.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use uuid::Uuid;

use crate::upstream::{Capacity, shrink};

/// What an event takes besides its bytes, in a queue that has grown and has room for twice as many; and the room that its
/// text may leave.
const SENT: usize = 2 * size_of::<Sent>() + 64;

/// The events that were sent last. The newest always is kept, and so is an open question; of the others as many as there
/// is room for on one stream, and on all of them.
#[derive(Debug)]
pub(super) struct Ring {
    sent: VecDeque<Sent>,
    bytes: usize,
    capacity: Arc<Capacity>,
}

#[derive(Debug)]
struct Sent {
    number: u64,
    question: Option<Uuid>,
    event: Bytes,
}

impl Sent {
    fn cost(&self) -> usize {
        SENT + self.event.len()
    }
}

impl Ring {
    /// Nothing was sent.
    pub(super) fn new(capacity: Arc<Capacity>) -> Self {
        Self { sent: VecDeque::new(), bytes: 0, capacity }
    }

    /// What is kept, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps an event. `asks` says which questions are open.
    pub(super) fn keep(&mut self, number: u64, question: Option<Uuid>, event: Bytes, asks: impl Fn(Uuid) -> bool) {
        let sent = Sent { number, question, event };
        let before = self.bytes;
        self.bytes += sent.cost();
        self.capacity.count_sent(before, self.bytes);
        self.sent.push_back(sent);
        while self.bytes > self.capacity.each_sent() || (self.sent.len() > 1 && self.capacity.sent_is_full()) {
            // An open question is not replaced by anything that comes later.
            let may_go = |sent: &Sent| sent.number != number && !sent.question.is_some_and(&asks);
            let Some(oldest) = self.sent.iter().position(may_go).and_then(|at| self.sent.remove(at)) else { break };
            self.bytes -= oldest.cost();
            self.capacity.count_sent(oldest.cost(), 0);
        }
        shrink(&mut self.sent);
    }

    /// The first event after the one of that number, without the questions that are no longer open.
    pub(super) fn after(&self, number: u64, asks: impl Fn(Uuid) -> bool) -> Option<(u64, Bytes)> {
        let next = self.sent.iter().find(|sent| sent.number > number && sent.question.is_none_or(&asks));
        next.map(|sent| (sent.number, sent.event.clone()))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.capacity.count_sent(self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1024 - SENT;

    fn keep(ring: &mut Ring, number: u64) {
        ring.keep(number, None, vec![b'x'; SIZE].into(), |_| false);
    }

    fn kept(ring: &Ring) -> Vec<u64> {
        ring.sent.iter().map(|sent| sent.number).collect()
    }

    #[test]
    fn a_ring_keeps_what_fits_and_all_rings_together_keep_a_quarter_of_what_may_wait() {
        // Four events on each stream, and eight in all.
        let capacity = Capacity::new(4 * 4096, 4 * 8192);
        let mut rings = [0; 3].map(|_| Ring::new(Arc::clone(&capacity)));
        for ring in &mut rings {
            (1..=6).for_each(|number| keep(ring, number));
        }
        assert_eq!(rings.each_ref().map(kept), [vec![3, 4, 5, 6], vec![3, 4, 5, 6], vec![6]]);
        assert_eq!(capacity.sent(), 9 * 1024);
        let [first, second, mut third] = rings;
        drop(first);
        (7..=9).for_each(|number| keep(&mut third, number));
        assert_eq!(kept(&third), [6, 7, 8, 9]);
        drop((second, third));
        assert_eq!(capacity.sent(), 0);
    }

    #[test]
    fn an_open_question_and_the_newest_event_stay_whatever_their_size() {
        let mut ring = Ring::new(Capacity::new(4096, 1 << 20));
        let (open, closed) = (Uuid::from_u128(1), Uuid::from_u128(2));
        for (number, question) in [(1, Some(open)), (2, Some(closed)), (3, None), (4, None)] {
            ring.keep(number, question, vec![b'x'; 5000].into(), |id| id == open);
        }
        assert_eq!(kept(&ring), [1, 4]);
        assert_eq!(ring.after(0, |_| false).map(|(number, _)| number), Some(4));
    }
}
