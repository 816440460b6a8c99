//! The last events of a stream and its open questions, kept to be replayed; bounded in bytes.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use uuid::Uuid;

use crate::flow::{Capacity, shrink};

/// What an event takes besides its text, in bytes: in a queue that has grown and has room for twice as many, and in the
/// buffer of the text, which may be larger.
const EVENT_OVERHEAD: usize = 2 * size_of::<(u64, Bytes)>() + 64;
/// What a question takes besides its text, in bytes: it is in two tables.
const QUESTION_OVERHEAD: usize = 2 * EVENT_OVERHEAD;

/// The newest events of one stream by their numbers. Open questions are kept apart: later events do not displace them,
/// and so a new event costs the same however many there are.
#[derive(Debug)]
pub(super) struct Ring {
    /// The events that are no open questions, oldest first.
    events: VecDeque<(u64, Bytes)>,
    questions: BTreeMap<u64, (Uuid, Bytes)>,
    /// The numbers of the events in `questions`.
    numbers: HashMap<Uuid, u64>,
    /// Bytes in both.
    bytes: usize,
    /// Bounds the bytes of events, on one stream and on all. The desk counts those of open questions.
    capacity: Arc<Capacity>,
}

impl Ring {
    /// Returns an empty ring.
    pub(super) fn new(capacity: Arc<Capacity>) -> Self {
        Self { events: VecDeque::new(), questions: BTreeMap::new(), numbers: HashMap::new(), bytes: 0, capacity }
    }

    /// Keeps an event, and of the events before it the newest that there is room for.
    pub(super) fn keep(&mut self, number: u64, question: Option<Uuid>, event: Bytes) {
        self.bytes += cost(question.is_some(), &event);
        let newest = question.is_none();
        if let Some(question) = question {
            self.questions.insert(number, (question, event));
            self.numbers.insert(question, number);
        } else {
            self.capacity.count_sent(0, cost(false, &event));
            self.events.push_back((number, event));
        }
        let full = |bytes| bytes > self.capacity.each_sent() || self.capacity.sent_is_full();
        while full(self.bytes) && self.events.len() > usize::from(newest) {
            let Some((_, oldest)) = self.events.pop_front() else { break };
            self.bytes -= cost(false, &oldest);
            self.capacity.count_sent(cost(false, &oldest), 0);
        }
        shrink(&mut self.events);
    }

    /// Removes questions that are not to be answered on the stream any more.
    pub(super) fn settle(&mut self, questions: HashSet<Uuid>) {
        for question in questions {
            let asked = self.numbers.remove(&question).and_then(|number| self.questions.remove(&number));
            self.bytes -= asked.map_or(0, |(_, event)| cost(true, &event));
        }
    }

    /// Removes every question, at the stream's end.
    pub(super) fn settle_all(&mut self) {
        self.settle(self.numbers.keys().copied().collect());
    }

    /// Returns the first event after the one with that number, and its own number.
    pub(super) fn after(&self, number: u64) -> Option<(u64, Bytes)> {
        let sent = self.events.get(self.events.partition_point(|(sent, _)| *sent <= number));
        let asked = self.questions.range(number + 1..).next().map(|(number, (_, event))| (*number, event));
        let sent = sent.map(|(number, event)| (*number, event));
        let next = sent.into_iter().chain(asked).min_by_key(|(number, _)| *number);
        next.map(|(number, event)| (number, event.clone()))
    }

    /// Returns whether there are questions.
    pub(super) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Returns the bytes that all events and questions take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let kept = self.events.iter().map(|(_, event)| cost(false, event)).sum();
        self.capacity.count_sent(kept, 0);
    }
}

fn cost(is_question: bool, event: &Bytes) -> usize {
    event.len() + if is_question { QUESTION_OVERHEAD } else { EVENT_OVERHEAD }
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
        assert_eq!((numbers(&ring), ring.bytes(), ring.has_questions()), (vec![5], EVENT_OVERHEAD + 1, false));
    }

    #[test]
    fn a_ring_keeps_what_fits_and_all_rings_together_keep_a_quarter_of_what_may_wait() {
        // Four events on each stream, and eight in all.
        let (size, capacity) = (1024 - EVENT_OVERHEAD, Capacity::new(4 * 4096, 4 * 8192));
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
