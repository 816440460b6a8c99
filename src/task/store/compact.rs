//! What the memory store keeps of an outcome, in as few bytes as its size allows.

use bytes::Bytes;

/// The largest outcome that is copied each time it is asked for, in bytes.
const MAX_COPIED: usize = 4096;

/// Bytes that are kept for long. `Bytes` takes 32 bytes, and 32 more once it is cloned; a box takes 16.
#[derive(Debug)]
pub(super) enum CompactBytes {
    /// Few, perhaps none: they are copied.
    Few(Box<[u8]>),
    /// Many: they are shared.
    Many(Box<Bytes>),
}

impl Default for CompactBytes {
    fn default() -> Self {
        Self::Few(Box::default())
    }
}

impl CompactBytes {
    /// Keeps bytes. Many of them must have memory of their own.
    pub(super) fn of(bytes: &Bytes) -> Self {
        if bytes.len() <= MAX_COPIED { Self::Few((**bytes).into()) } else { Self::Many(Box::new(bytes.clone())) }
    }

    /// Returns the bytes.
    pub(super) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Few(bytes) => Bytes::copy_from_slice(bytes),
            Self::Many(bytes) => Bytes::clone(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_are_copied_and_many_are_shared() {
        for (length, is_shared) in [(1, false), (MAX_COPIED, false), (MAX_COPIED + 1, true)] {
            let bytes = Bytes::from(vec![7; length]);
            let again = CompactBytes::of(&bytes).to_bytes();
            assert_eq!((again.as_ptr() == bytes.as_ptr(), &again), (is_shared, &bytes), "{length}");
        }
        assert_eq!(CompactBytes::default().to_bytes(), Bytes::new());
        assert!(size_of::<CompactBytes>() < size_of::<Bytes>());
    }
}
