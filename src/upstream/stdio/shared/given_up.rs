//! The calls on a shared child that were given up: nobody waits for them, and the child has not answered them by their
//! numbers.

use std::collections::BTreeSet;

/// How many calls of each kind of client are known by their numbers.
const MAX_KNOWN: usize = 1 << 16;

/// The calls in whose course the child may still ask, by the child's numbers of them.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    of_sessions: Unanswered,
    /// Those of clients without a session.
    of_pooled: Unanswered,
}

#[derive(Debug, Default)]
struct Unanswered {
    known: BTreeSet<u64>,
    /// Whether there were more than [`MAX_KNOWN`], so that one may be left for ever.
    overflowed: bool,
}

impl Unanswered {
    fn are_left(&self) -> bool {
        self.overflowed || !self.known.is_empty()
    }
}

impl GivenUp {
    pub(super) fn add(&mut self, number: u64, pooled: bool) {
        let calls = if pooled { &mut self.of_pooled } else { &mut self.of_sessions };
        if calls.known.len() < MAX_KNOWN {
            calls.known.insert(number);
        } else {
            calls.overflowed = true;
        }
    }

    /// Forgets a call that the child has answered, or never got.
    pub(super) fn remove(&mut self, number: u64) {
        self.of_sessions.known.remove(&number);
        self.of_pooled.known.remove(&number);
    }

    /// Returns whether there is one of a client without a session; with `pooled`, whether there is any.
    pub(super) fn concern(&self, pooled: bool) -> bool {
        self.of_pooled.are_left() || pooled && self.of_sessions.are_left()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_not_known_any_more_counts_for_ever_and_only_for_those_whom_it_concerns() {
        let mut given_up = GivenUp::default();
        for pooled in [false, true] {
            let numbers = || 0..=MAX_KNOWN as u64;
            numbers().for_each(|number| given_up.add(number, pooled));
            numbers().for_each(|number| given_up.remove(number));
            assert_eq!((given_up.concern(true), given_up.concern(false)), (true, pooled));
        }
    }
}
