//! The results that memory has, so that most polls after an end read no disk: the newest ones, and those that were read since.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

/// The most bytes that they take.
const MAX_BYTES: usize = 16 << 20;
/// The largest result that is kept in memory, in bytes.
const MAX_RESULT: usize = 512 << 10;
/// What a result takes beside its bytes, about.
const BESIDE: usize = 96;

/// Results by their numbers. The oldest give way; one that is read from the disk again counts as new.
#[derive(Debug, Default)]
pub(super) struct HotResults {
    results: HashMap<u64, Bytes>,
    /// The numbers in the order in which they came, with some of results that are gone.
    order: VecDeque<u64>,
    /// What all of them take.
    bytes: usize,
}

impl HotResults {
    /// Keeps a result, unless it is too large.
    pub(super) fn insert(&mut self, number: u64, raw: Bytes) {
        let bytes = raw.len() + BESIDE;
        if raw.len() > MAX_RESULT || self.results.contains_key(&number) {
            return;
        }
        self.results.insert(number, raw);
        self.order.push_back(number);
        self.bytes += bytes;
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.remove(oldest);
        }
        if self.order.len() > 2 * self.results.len() + 64 {
            self.order.retain(|number| self.results.contains_key(number));
        }
    }

    /// Returns a result, if it is here.
    pub(super) fn get(&self, number: u64) -> Option<Bytes> {
        self.results.get(&number).cloned()
    }

    /// Drops a result.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(raw) = self.results.remove(&number) {
            self.bytes -= raw.len() + BESIDE;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn result(bytes: usize) -> Bytes {
        vec![0; bytes].into()
    }

    #[test]
    fn the_oldest_results_give_way_and_one_that_is_read_again_counts_as_new() {
        let mut hot = HotResults::default();
        let most = u64::try_from(MAX_BYTES / (MAX_RESULT + BESIDE)).expect("few");
        for number in 0..=most {
            hot.insert(number, result(MAX_RESULT));
        }
        assert!(hot.get(0).is_none() && hot.get(1).is_some() && hot.get(most).is_some());
        hot.insert(0, result(MAX_RESULT));
        assert!(hot.get(0).is_some() && hot.get(1).is_none());
    }

    #[test]
    fn a_result_that_is_too_large_pushes_no_other_out() {
        let mut hot = HotResults::default();
        hot.insert(1, result(5));
        hot.insert(2, result(MAX_RESULT + 1));
        assert!(hot.get(1).is_some() && hot.get(2).is_none());
    }

    proptest! {
        #[test]
        fn what_is_kept_is_counted_and_bounded(steps in proptest::collection::vec((0u64..40, 0..MAX_RESULT, any::<bool>()), 0..200)) {
            let mut hot = HotResults::default();
            for (number, bytes, inserts) in steps {
                if inserts { hot.insert(number, result(bytes)) } else { hot.remove(number) }
                let bytes: usize = hot.results.values().map(|raw| raw.len() + BESIDE).sum();
                prop_assert!(hot.bytes == bytes && bytes <= MAX_BYTES);
                prop_assert!(hot.order.len() <= 2 * hot.results.len() + 64 || !inserts);
                prop_assert!(hot.results.keys().all(|number| hot.order.contains(number)));
            }
        }
    }
}
