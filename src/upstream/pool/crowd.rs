//! Calls that wait for the place of a process, which something outside of the pool may leave.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

/// The calls that wait.
#[derive(Debug)]
pub(super) struct Crowd {
    waiting: AtomicUsize,
    /// One permit for each of them, until a place is asked for.
    wishes: Semaphore,
}

/// A call that waits.
#[derive(Debug)]
pub(super) struct InCrowd<'a>(&'a Crowd);

impl Default for Crowd {
    fn default() -> Self {
        Self { waiting: AtomicUsize::new(0), wishes: Semaphore::new(0) }
    }
}

impl Crowd {
    /// Adds a call, which waits until the returned value is dropped.
    pub(super) fn join(&self) -> InCrowd<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.wishes.add_permits(1);
        InCrowd(self)
    }

    /// Waits for a call for which no place was asked for yet.
    pub(super) async fn wish(&self) {
        if let Ok(wish) = self.wishes.acquire().await {
            wish.forget();
        }
    }

    /// Returns whether any call waits.
    pub(super) fn is_there(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Drop for InCrowd<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
