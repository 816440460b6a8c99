//! Tables by ids that taskgate has chosen at random. No client can choose ones that collide, so that a fast hash will
//! do.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use uuid::Uuid;

/// A table by random ids. No key may come from a client before it was found elsewhere.
pub(super) type IdMap<V> = HashMap<Uuid, V, BuildIdHasher>;

/// Makes hashers of random ids.
pub(super) type BuildIdHasher = BuildHasherDefault<IdHasher>;

/// Folds the bits of a random id, which are its hash.
#[derive(Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        // The two halves of an id have their fixed bits at different places, so that each bit of the fold is random.
        for part in bytes.chunks(size_of::<u64>()) {
            let mut half = [0; size_of::<u64>()];
            half[..part.len()].copy_from_slice(part);
            self.0 ^= u64::from_le_bytes(half);
        }
    }

    /// An id writes its length, which is always the same.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, hash::BuildHasher};

    use super::*;

    #[test]
    fn random_ids_spread_over_the_lowest_and_the_highest_bits() {
        let hashes = || (0..4096).map(|_| BuildIdHasher::default().hash_one(Uuid::new_v4()));
        let lowest: HashSet<u64> = hashes().map(|hash| hash & 0xff).collect();
        let highest: HashSet<u64> = hashes().map(|hash| hash >> 57).collect();
        assert_eq!((lowest.len(), highest.len()), (256, 128));
    }
}
