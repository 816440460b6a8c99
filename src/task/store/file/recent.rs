//! The results that memory has, so that most polls after an end read no disk: those that came last, from a call or from
//! the disk.

use bytes::Bytes;
use hashlink::LinkedHashMap;

/// The most bytes that they take.
const MAX_BYTES: usize = 16 << 20;
/// The largest result that is kept in memory, in bytes.
const MAX_RESULT: usize = 512 << 10;
/// What a result takes beside its bytes, about.
const BESIDE: usize = 96;

/// Results by their numbers. The oldest give way; one that had to be read from the disk counts as new.
#[derive(Debug)]
pub(super) struct RecentResults {
    max_bytes: usize,
    /// In the order in which they came.
    results: LinkedHashMap<u64, Bytes>,
    /// What all of them take.
    bytes: usize,
}

impl Default for RecentResults {
    fn default() -> Self {
        Self::with_room(MAX_BYTES)
    }
}

impl RecentResults {
    fn with_room(max_bytes: usize) -> Self {
        Self { max_bytes, results: LinkedHashMap::new(), bytes: 0 }
    }

    /// Keeps a result, unless it is too large.
    pub(super) fn insert(&mut self, number: u64, raw: Bytes) {
        if raw.len() > MAX_RESULT {
            return;
        }
        self.bytes += room(&raw);
        self.bytes -= self.results.insert(number, raw).as_ref().map_or(0, room);
        while self.bytes > self.max_bytes
            && let Some((_, oldest)) = self.results.pop_front()
        {
            self.bytes -= room(&oldest);
        }
        self.shrink();
    }

    /// Gives memory back, which the list keeps otherwise for as many results as it has had.
    fn shrink(&mut self) {
        if self.results.len() * 4 < self.results.capacity() {
            self.results.shrink_to_fit();
        }
    }

    /// Returns a result, if it is here.
    pub(super) fn get(&self, number: u64) -> Option<Bytes> {
        self.results.get(&number).cloned()
    }

    /// Drops a result.
    pub(super) fn remove(&mut self, number: u64) {
        self.bytes -= self.results.remove(&number).as_ref().map_or(0, room);
        self.shrink();
    }
}

/// Returns what a result takes.
fn room(raw: &Bytes) -> usize {
    raw.len() + BESIDE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn result(bytes: usize) -> Bytes {
        vec![0; bytes].into()
    }

    #[test]
    fn the_oldest_results_give_way_and_one_that_comes_again_counts_as_new() {
        let mut recent = RecentResults::with_room(3 * (10 + BESIDE));
        (1..=3).for_each(|number| recent.insert(number, result(10)));
        recent.remove(1);
        recent.insert(1, result(10));
        recent.insert(4, result(10));
        let kept: Vec<_> = (1..=4).filter(|number| recent.get(*number).is_some()).collect();
        assert_eq!(kept, [1, 3, 4]);
    }

    #[test]
    fn a_result_that_is_too_large_pushes_no_other_out() {
        let mut recent = RecentResults::default();
        recent.insert(1, result(5));
        recent.insert(2, result(MAX_RESULT + 1));
        recent.insert(3, result(MAX_RESULT));
        assert!(recent.get(1).is_some() && recent.get(2).is_none() && recent.get(3).is_some());
    }

    proptest! {
        #[test]
        fn the_last_results_are_kept_as_far_as_there_is_room(
            steps in proptest::collection::vec((0u64..40, 0usize..200, any::<bool>()), 0..500),
        ) {
            const ROOM: usize = 2000;
            let mut recent = RecentResults::with_room(ROOM);
            // The last first.
            let mut expected: Vec<(u64, usize)> = Vec::new();
            for (number, bytes, inserts) in steps {
                expected.retain(|(other, _)| *other != number);
                if inserts {
                    recent.insert(number, result(bytes));
                    expected.insert(0, (number, bytes));
                    let mut sum = 0;
                    expected.retain(|(_, bytes)| { sum += bytes + BESIDE; sum <= ROOM });
                } else {
                    recent.remove(number);
                }
                let kept: Vec<_> = recent.results.iter().rev().map(|(number, raw)| (*number, raw.len())).collect();
                prop_assert_eq!(&kept, &expected);
                prop_assert_eq!(recent.bytes, expected.iter().map(|(_, bytes)| bytes + BESIDE).sum::<usize>());
            }
        }
    }
}
