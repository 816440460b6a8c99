//! What each owner has of something that is limited for each.

use std::{collections::HashMap, hash::Hash};

/// Counts for each key, which is remembered while its count is not zero.
#[derive(Debug)]
pub struct Tally<K>(HashMap<K, usize>);

impl<K: Eq + Hash + Clone> Tally<K> {
    /// Returns the count of `key`.
    #[must_use]
    pub fn of(&self, key: &K) -> usize {
        self.0.get(key).copied().unwrap_or(0)
    }

    /// Adds to the count of `key`.
    pub fn add(&mut self, key: &K, more: usize) {
        match self.0.get_mut(key) {
            Some(count) => *count += more,
            None => drop(self.0.insert(key.clone(), more)),
        }
    }

    /// Takes off what was added before.
    pub fn take(&mut self, key: &K, less: usize) {
        let Some(count) = self.0.get_mut(key) else { return };
        debug_assert!(*count >= less, "more is taken off than was added");
        *count = count.saturating_sub(less);
        if *count == 0 {
            self.0.remove(key);
        }
    }

    /// Returns whether every count is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_for_each_key_and_a_key_without_a_count_is_forgotten() {
        let mut tally = Tally::default();
        tally.add(&"ann", 2);
        tally.add(&"ann", 1);
        tally.add(&"bob", 1);
        tally.take(&"ann", 2);
        assert_eq!((tally.of(&"ann"), tally.of(&"bob"), tally.of(&"eve")), (1, 1, 0));
        tally.take(&"ann", 1);
        tally.take(&"bob", 1);
        assert!(tally.is_empty());
    }
}
