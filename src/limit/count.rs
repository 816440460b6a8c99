//! How many requests are in flight, and how many bytes are kept of them.

use std::sync::atomic::{AtomicU64, Ordering};

/// What some requests take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) requests: u32,
    pub(super) bytes: u32,
}

/// What many threads count at once, in one number: under a lock, each request would take it twice.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

/// Which part of a count is over its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Requests,
    Bytes,
}

impl Count {
    /// Returns the count of requests that take so many bytes. More than can be counted are as many as can, which is over
    /// any limit.
    pub(super) fn new(requests: u32, bytes: usize) -> Self {
        Self { requests, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
    }

    fn of(bits: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "each half of the bits is a part")]
        Self { requests: (bits >> 32) as u32, bytes: bits as u32 }
    }

    fn bits(self) -> u64 {
        u64::from(self.requests) << 32 | u64::from(self.bytes)
    }

    /// Returns the count with `more` in the place of `less`, which is a part of it.
    fn exchange(self, less: Self, more: Self) -> Self {
        Self {
            requests: (self.requests - less.requests).saturating_add(more.requests),
            bytes: (self.bytes - less.bytes).saturating_add(more.bytes),
        }
    }

    fn within(self, most: Self) -> Result<Self, Over> {
        if self.requests > most.requests {
            return Err(Over::Requests);
        }
        if self.bytes > most.bytes { Err(Over::Bytes) } else { Ok(self) }
    }
}

impl Counter {
    /// Counts `more` in the place of `less`, if there is `most` then.
    ///
    /// # Errors
    /// What there would be too much of.
    pub(super) fn try_exchange(&self, less: Count, more: Count, most: Count) -> Result<(), Over> {
        let with = |bits| Count::of(bits).exchange(less, more).within(most);
        let counted =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| with(bits).ok().map(Count::bits));
        counted.map_or_else(|bits| with(bits).map(drop), |_| Ok(()))
    }

    /// Counts `more` in the place of `less` whatever there is then: the caller knows that it is within the limits.
    pub(super) fn exchange(&self, less: Count, more: Count) {
        self.0.fetch_add(more.bits().wrapping_sub(less.bits()), Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Counter {
    pub(super) fn get(&self) -> Count {
        Count::of(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_counter_counts_both_parts_each_by_itself_and_nothing_that_is_over_a_limit(
            counts in prop::collection::vec(
                (0..4_u32, prop_oneof![4 => 0..10_usize, 1 => prop::sample::select(vec![1 << 32, usize::MAX])]),
                1..20,
            ),
            requests in 0..20_u32,
            bytes in 0..50_u32,
        ) {
            let (counter, most) = (Counter::default(), Count { requests, bytes });
            let (mut taken, mut sum) = (Vec::new(), (0_u128, 0_u128));
            for (requests, bytes) in counts {
                let more = Count::new(requests, bytes);
                let with = (sum.0 + u128::from(requests), sum.1 + bytes as u128);
                let expected = if with.0 > u128::from(most.requests) {
                    Err(Over::Requests)
                } else if with.1 > u128::from(most.bytes) {
                    Err(Over::Bytes)
                } else {
                    taken.push(more);
                    sum = with;
                    Ok(())
                };
                prop_assert_eq!(counter.try_exchange(Count::default(), more, most), expected);
                let counted = counter.get();
                prop_assert_eq!((u128::from(counted.requests), u128::from(counted.bytes)), sum);
            }
            for count in taken {
                counter.exchange(count, Count::default());
            }
            prop_assert_eq!(counter.get(), Count::default());
        }
    }
}
