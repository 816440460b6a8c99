//! The calls on a shared child that nobody waits for any more, and that the child has not answered.

use std::collections::BTreeMap;

/// How many of them are known by their numbers.
const MAX_KNOWN: usize = 1 << 16;

/// Calls because of which the child may still ask, by its numbers of them.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    /// Whether the call is of a client without a session.
    calls: BTreeMap<u64, bool>,
    /// Whether there were more than [`MAX_KNOWN`], so that one may be left for ever.
    overflowed: bool,
}

impl GivenUp {
    pub(super) fn add(&mut self, number: u64, pooled: bool) {
        if self.calls.len() < MAX_KNOWN {
            self.calls.insert(number, pooled);
        } else {
            self.overflowed = true;
        }
    }

    /// Forgets a call that the child has answered, or never got.
    pub(super) fn remove(&mut self, number: u64) {
        self.calls.remove(&number);
    }

    /// Returns whether there is one of a client without a session; with `pooled`, whether there is any.
    pub(super) fn concern(&self, pooled: bool) -> bool {
        self.overflowed || self.calls.values().any(|of_pooled| pooled || *of_pooled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_not_known_any_more_counts_for_ever() {
        let mut given_up = GivenUp::default();
        let numbers = || 0..MAX_KNOWN as u64;
        numbers().for_each(|number| given_up.add(number, false));
        assert!(given_up.concern(true) && !given_up.concern(false));
        given_up.add(u64::MAX, false);
        numbers().for_each(|number| given_up.remove(number));
        assert!(given_up.calls.is_empty() && given_up.concern(false));
    }
}
