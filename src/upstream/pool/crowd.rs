//! The calls that wait for the place of a process, and the places that sessions leave for them.

use std::{collections::VecDeque, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

/// How long a process that ends is counted on: few take longer, and another party may take its place.
const COUNTED_ON: Duration = Duration::from_secs(3);
/// How often it is looked whether more calls wait than places are left.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// The calls that wait.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    counts: Mutex<Counts>,
    /// Notified when a call comes.
    came: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    waiting: usize,
    /// When the sessions ended whose places none has got yet.
    leaving: VecDeque<Instant>,
}

/// A call that waits.
#[derive(Debug)]
pub(super) struct InCrowd<'a>(&'a Crowd);

impl Crowd {
    /// Adds a call, which waits until the returned value is dropped.
    pub(super) fn join(&self) -> InCrowd<'_> {
        self.counts.lock().waiting += 1;
        self.came.notify_one();
        InCrowd(self)
    }

    /// Waits until more calls wait than places are left.
    pub(super) async fn needs_place(&self) {
        loop {
            let came = self.came.notified();
            let waiting = {
                let mut counts = self.counts.lock();
                counts.leaving.retain(|since| since.elapsed() < COUNTED_ON);
                if counts.waiting > counts.leaving.len() {
                    return;
                }
                counts.waiting
            };
            if waiting == 0 {
                came.await;
            } else {
                let _ = timeout(LOOK_AGAIN, came).await;
            }
        }
    }

    /// Notes that a session has ended, whose process leaves its place.
    pub(super) fn leaves(&self) {
        self.counts.lock().leaving.push_back(Instant::now());
    }
}

impl InCrowd<'_> {
    /// Ends the wait of a call that has got a place.
    pub(super) fn got_place(self) {
        self.0.counts.lock().leaving.pop_front();
    }
}

impl Drop for InCrowd<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn needs_place(crowd: &Crowd) -> bool {
        timeout(Duration::ZERO, crowd.needs_place()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_places_are_left_as_calls_wait_and_none_for_a_call_that_has_gone() {
        let crowd = Crowd::default();
        assert!(!needs_place(&crowd).await);
        let (first, second) = (crowd.join(), crowd.join());
        drop(crowd.join());
        for _ in 0..2 {
            assert!(needs_place(&crowd).await);
            crowd.leaves();
        }
        assert!(!needs_place(&crowd).await);
        first.got_place();
        assert!(!needs_place(&crowd).await, "the place of the other one is on its way");
        tokio::time::advance(COUNTED_ON).await;
        assert!(needs_place(&crowd).await, "another party has taken it");
        drop(second);
        assert!(!needs_place(&crowd).await);
    }
}
