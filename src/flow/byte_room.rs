//! Room for a number of bytes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Room for a number of bytes, which whatever is kept in it takes before it is kept.
#[derive(Clone, Debug)]
pub struct ByteRoom {
    most: usize,
    left: Arc<Semaphore>,
}

/// Bytes of a [`ByteRoom`] that are taken until this is dropped.
pub type TakenBytes = OwnedSemaphorePermit;

impl ByteRoom {
    /// Creates room for `most` bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self { most, left: Arc::new(Semaphore::new(most)) }
    }

    /// Returns how many bytes there is room for.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// Takes so many bytes, less than 4 GiB. Returns `None` if fewer are left.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Option<TakenBytes> {
        Arc::clone(&self.left).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }

    /// Takes so many bytes, or all of the room if that is smaller. Returns `None` if they are not free.
    #[must_use]
    pub fn take_at_any_size(&self, bytes: usize) -> Option<TakenBytes> {
        self.take(bytes.min(self.most))
    }

    /// Waits until so many bytes are free, or all of the room if that is smaller, and takes them.
    pub async fn wait_at_any_size(&self, bytes: usize) -> TakenBytes {
        let bytes = u32::try_from(bytes.min(self.most)).unwrap_or(u32::MAX);
        Arc::clone(&self.left).acquire_many_owned(bytes).await.unwrap_or_else(|_| unreachable!("it is never closed"))
    }

    /// Returns whether nothing but `taken` is taken.
    #[must_use]
    pub fn holds_only(&self, taken: &TakenBytes) -> bool {
        self.left.available_permits() + taken.num_permits() == self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_larger_than_the_room_has_it_alone_and_only_if_it_may() {
        let room = ByteRoom::new(10);
        assert!(room.take(11).is_none());
        let all = room.take_at_any_size(11).expect("nothing else is there");
        assert!(room.take_at_any_size(1).is_none() && room.holds_only(&all));
        drop(all);
        let (some, more) = (room.take(4).expect("room"), room.take(6).expect("room"));
        assert!(room.take(1).is_none() && !room.holds_only(&some));
        drop(more);
        assert!(room.holds_only(&some));
    }
}
