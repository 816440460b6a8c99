//! Which sessions are kept beyond the process, and when each is written.

use std::time::{Duration, Instant};

use super::Session;
use crate::disk::{self, SessionRemoval, Unavailable};

/// What the file has of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenForm {
    /// The first request number that the written form leaves to a later process.
    next: u64,
    /// When its last use was noted.
    touched: Instant,
}

impl Session {
    /// Writes the session, unless it ends with the process anyway. `now` is the time of the file.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn save(&self, now: u64) -> Result<(), Unavailable> {
        let Some(disk) = self.disk.as_ref().filter(|_| !self.has_ended()) else { return Ok(()) };
        let (form, next) = self.form();
        let row = disk::SavedSession { id: self.id, used_at: self.used_at(now), value: form.into() };
        let put = disk.put_session(row, self.writes.clone()).await;
        if put.is_ok() {
            *self.written.lock() = Some(WrittenForm { next, touched: Instant::now() });
        }
        if self.has_ended() {
            // Its removal may have come first, and a write that took too long may still come.
            drop(self.forget());
        }
        put
    }

    /// Writes the session if that was not done yet.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn save_first(&self, now: u64) -> Result<(), Unavailable> {
        if self.written.lock().is_some() { Ok(()) } else { self.save(now).await }
    }

    /// Returns whether the session has to be written: it never was, or more than half of the numbers are used that
    /// the written form reserves.
    #[must_use]
    pub fn needs_saving(&self) -> bool {
        if self.disk.is_none() || self.has_ended() {
            return false;
        }
        self.written.lock().is_none_or(|written| self.upstream_session.needs_saving(written.next))
    }

    /// Notes in the file when the session was used last, if that is new. To be called from time to time.
    pub fn note_use(&self, now: u64) {
        let (Some(disk), Some(written)) = (&self.disk, &mut *self.written.lock()) else { return };
        if self.idle() < written.touched.elapsed() {
            written.touched = Instant::now();
            disk.touch_session(self.id, self.used_at(now));
        }
    }

    /// Returns whether a later process finds the session.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.written.lock().is_some()
    }

    /// Removes the session from the file, if that may have it.
    pub(super) fn forget(&self) -> Option<SessionRemoval> {
        // Locked, so that no use is noted after the removal.
        let mut written = self.written.lock();
        *written = None;
        // If nothing was written there is nothing to remove; a needless removal would wait in memory while the disk
        // takes nothing.
        self.disk.as_ref().filter(|_| self.writes.any()).map(|disk| disk.remove_session(self.id))
    }

    fn used_at(&self, now: u64) -> u64 {
        now.saturating_sub(millis(self.idle()))
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
