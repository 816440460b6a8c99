//! What was sent last on a stream, and its open questions, to be sent again; bounded in bytes.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use uuid::Uuid;

use crate::flow::{Capacity, shrink};

/// What an event takes besides its bytes, in a queue that has grown and has room for twice as many; and the room that its
/// text may leave.
const SENT: usize = 2 * size_of::<(u64, Bytes)>() + 64;
/// What a question takes besides, in two tables.
const ASKED: usize = 2 * SENT;

/// The newest events of one stream by their numbers. Those of open questions are kept apart: nothing that comes later takes
/// their place, and so nobody has to look at them for each event.
#[derive(Debug)]
pub(super) struct Ring {
    sent: VecDeque<(u64, Bytes)>,
    asked: BTreeMap<u64, (Uuid, Bytes)>,
    /// The numbers of the events in `asked`.
    numbers: HashMap<Uuid, u64>,
    /// Bytes in both.
    bytes: usize,
    /// How many there may be, on one stream and on all. Open questions are counted where they are open.
    capacity: Arc<Capacity>,
}

impl Ring {
    /// Nothing was sent.
    pub(super) fn new(capacity: Arc<Capacity>) -> Self {
        Self { sent: VecDeque::new(), asked: BTreeMap::new(), numbers: HashMap::new(), bytes: 0, capacity }
    }

    /// Keeps an event, with as many before it as there is room for.
    pub(super) fn keep(&mut self, number: u64, question: Option<Uuid>, event: Bytes) {
        self.bytes += cost(question.is_some(), &event);
        let newest = question.is_none();
        if let Some(question) = question {
            self.asked.insert(number, (question, event));
            self.numbers.insert(question, number);
        } else {
            self.capacity.count_sent(0, cost(false, &event));
            self.sent.push_back((number, event));
        }
        let full = |bytes| bytes > self.capacity.each_sent() || self.capacity.sent_is_full();
        while full(self.bytes) && self.sent.len() > usize::from(newest) {
            let Some((_, oldest)) = self.sent.pop_front() else { break };
            self.bytes -= cost(false, &oldest);
            self.capacity.count_sent(cost(false, &oldest), 0);
        }
        shrink(&mut self.sent);
    }

    /// Forgets questions that are not to be answered on the stream any more.
    pub(super) fn settle(&mut self, questions: HashSet<Uuid>) {
        for question in questions {
            let asked = self.numbers.remove(&question).and_then(|number| self.asked.remove(&number));
            self.bytes -= asked.map_or(0, |(_, event)| cost(true, &event));
        }
    }

    /// Forgets every question: the stream has ended.
    pub(super) fn settle_all(&mut self) {
        self.settle(self.numbers.keys().copied().collect());
    }

    /// The first event after the one with that number, and its own number.
    pub(super) fn after(&self, number: u64) -> Option<(u64, Bytes)> {
        let sent = self.sent.get(self.sent.partition_point(|(sent, _)| *sent <= number));
        let asked = self.asked.range(number + 1..).next().map(|(number, (_, event))| (*number, event));
        let sent = sent.map(|(number, event)| (*number, event));
        let next = sent.into_iter().chain(asked).min_by_key(|(number, _)| *number);
        next.map(|(number, event)| (number, event.clone()))
    }

    /// Whether there are questions.
    pub(super) fn asks(&self) -> bool {
        !self.asked.is_empty()
    }

    /// What all events take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let kept = self.sent.iter().map(|(_, event)| cost(false, event)).sum();
        self.capacity.count_sent(kept, 0);
    }
}

fn cost(asks: bool, event: &Bytes) -> usize {
    event.len() + if asks { ASKED } else { SENT }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1000;

    fn event(size: usize) -> Bytes {
        vec![b'x'; size].into()
    }

    fn ring() -> Ring {
        Ring::new(Capacity::new(4 * ROOM, usize::MAX))
    }

    fn numbers(ring: &Ring) -> Vec<u64> {
        std::iter::successors(ring.after(0), |(number, _)| ring.after(*number)).map(|(number, _)| number).collect()
    }

    #[test]
    fn the_oldest_give_way_but_the_newest_and_open_questions_stay_in_their_order() {
        let (mut ring, question) = (ring(), Uuid::from_u128(1));
        ring.keep(1, None, event(300));
        ring.keep(2, Some(question), event(300));
        ring.keep(3, None, event(300));
        assert_eq!(numbers(&ring), [2, 3]);
        ring.keep(4, None, event(5000));
        assert_eq!(numbers(&ring), [2, 4]);
        ring.settle(HashSet::from([question, Uuid::from_u128(2)]));
        assert_eq!(numbers(&ring), [4]);
        ring.keep(5, None, event(1));
        assert_eq!((numbers(&ring), ring.bytes(), ring.asks()), (vec![5], SENT + 1, false));
    }

    #[test]
    fn a_ring_keeps_what_fits_and_all_rings_together_keep_a_quarter_of_what_may_wait() {
        // Four events on each stream, and eight in all.
        let (size, capacity) = (1024 - SENT, Capacity::new(4 * 4096, 4 * 8192));
        let mut rings = [0; 3].map(|_| Ring::new(Arc::clone(&capacity)));
        for ring in &mut rings {
            (1..=6).for_each(|number| ring.keep(number, None, event(size)));
        }
        assert_eq!(rings.each_ref().map(numbers), [vec![3, 4, 5, 6], vec![3, 4, 5, 6], vec![6]]);
        assert_eq!(capacity.sent(), 9 * 1024);
        let [first, second, mut third] = rings;
        drop(first);
        (7..=9).for_each(|number| third.keep(number, None, event(size)));
        assert_eq!(numbers(&third), [6, 7, 8, 9]);
        drop((second, third));
        assert_eq!(capacity.sent(), 0);
    }

    #[test]
    fn a_question_that_is_sent_again_is_kept_once() {
        let (mut ring, question) = (ring(), Uuid::from_u128(1));
        ring.keep(1, Some(question), event(10));
        ring.settle(HashSet::from([question]));
        ring.keep(2, Some(question), event(10));
        assert_eq!(numbers(&ring), [2]);
        ring.settle_all();
        assert_eq!((numbers(&ring), ring.bytes()), (vec![], 0));
    }

    #[test]
    fn an_event_costs_the_same_however_many_questions_are_open() {
        const OPEN: u64 = 20_000;
        let mut ring = ring();
        for number in 1..=OPEN {
            ring.keep(number, Some(Uuid::from_u128(number.into())), event(10));
        }
        // A walk over the questions for each of these would take minutes.
        for number in OPEN + 1..=OPEN + 200_000 {
            ring.keep(number, None, event(10));
        }
        assert_eq!(ring.after(OPEN).map(|(number, _)| number), Some(OPEN + 200_000));
        assert_eq!(numbers(&ring).len() as u64, OPEN + 1);
    }
}
