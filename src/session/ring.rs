//! What was sent last on a stream, to be sent again to a client that has lost it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use bytes::Bytes;
use uuid::Uuid;

/// What an event takes besides its bytes, in a queue that has grown and has room for twice as many.
const SENT: usize = 2 * size_of::<(u64, Bytes)>();
/// What a question takes besides, in two tables.
const ASKED: usize = 2 * SENT;

/// The newest events of one stream by their numbers. Those of open questions are kept apart: nothing that comes later takes
/// their place, and so nobody has to look at them for each event.
#[derive(Debug, Default)]
pub(super) struct Ring {
    sent: VecDeque<(u64, Bytes)>,
    asked: BTreeMap<u64, (Uuid, Bytes)>,
    /// The numbers of the events in `asked`.
    numbers: HashMap<Uuid, u64>,
    /// Bytes in both.
    bytes: usize,
}

impl Ring {
    /// Keeps an event, with as many before it as there is room for in `room` bytes.
    pub(super) fn keep(&mut self, number: u64, question: Option<Uuid>, event: Bytes, room: usize) {
        self.bytes += cost(question.is_some(), &event);
        let newest = question.is_none();
        match question {
            Some(question) => {
                self.asked.insert(number, (question, event));
                self.numbers.insert(question, number);
            }
            None => self.sent.push_back((number, event)),
        }
        while self.bytes > room && self.sent.len() > usize::from(newest) {
            let Some((_, oldest)) = self.sent.pop_front() else { break };
            self.bytes -= cost(false, &oldest);
        }
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

    fn numbers(ring: &Ring) -> Vec<u64> {
        std::iter::successors(ring.after(0), |(number, _)| ring.after(*number)).map(|(number, _)| number).collect()
    }

    #[test]
    fn the_oldest_give_way_but_the_newest_and_open_questions_stay_in_their_order() {
        let (mut ring, question) = (Ring::default(), Uuid::from_u128(1));
        ring.keep(1, None, event(300), ROOM);
        ring.keep(2, Some(question), event(300), ROOM);
        ring.keep(3, None, event(300), ROOM);
        assert_eq!(numbers(&ring), [2, 3]);
        ring.keep(4, None, event(5000), ROOM);
        assert_eq!(numbers(&ring), [2, 4]);
        ring.settle(HashSet::from([question, Uuid::from_u128(2)]));
        assert_eq!(numbers(&ring), [4]);
        ring.keep(5, None, event(1), ROOM);
        assert_eq!((numbers(&ring), ring.bytes(), ring.asks()), (vec![5], SENT + 1, false));
    }

    #[test]
    fn a_question_that_is_sent_again_is_kept_once() {
        let (mut ring, question) = (Ring::default(), Uuid::from_u128(1));
        ring.keep(1, Some(question), event(10), ROOM);
        ring.settle(HashSet::from([question]));
        ring.keep(2, Some(question), event(10), ROOM);
        assert_eq!(numbers(&ring), [2]);
        ring.settle_all();
        assert_eq!((numbers(&ring), ring.bytes()), (vec![], 0));
    }

    #[test]
    fn an_event_costs_the_same_however_many_questions_are_open() {
        const OPEN: u64 = 20_000;
        let mut ring = Ring::default();
        for number in 1..=OPEN {
            ring.keep(number, Some(Uuid::from_u128(number.into())), event(10), ROOM);
        }
        // A walk over the questions for each of these would take minutes.
        for number in OPEN + 1..=OPEN + 200_000 {
            ring.keep(number, None, event(10), ROOM);
        }
        assert_eq!(ring.after(OPEN).map(|(number, _)| number), Some(OPEN + 200_000));
        assert_eq!(numbers(&ring).len() as u64, OPEN + 1);
    }
}
