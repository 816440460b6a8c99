//! The time of tasks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A clock that reads the time since the Unix epoch from the system once, and from then on follows the clock of the
/// process. So a deadline means the same in every process, and no setting of the system's clock moves it while the
/// process runs.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    /// Milliseconds since the epoch at `started`.
    unix: u64,
}

/// One moment, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// By the system's clock, for people.
    pub wall: u64,
    /// By a [`Clock`], for deadlines.
    pub steady: u64,
}

impl Clock {
    /// Reads the system's clock.
    #[must_use]
    pub fn start() -> Self {
        Self { started: Instant::now(), unix: wall() }
    }

    /// Returns a clock that begins now with `unix`, such as the time of a file.
    #[must_use]
    pub fn starting_at(unix: u64) -> Self {
        Self { started: Instant::now(), unix }
    }

    /// Returns the present moment.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { wall: wall(), steady: self.steady() }
    }

    /// Returns [`Now::steady`].
    #[must_use]
    pub fn steady(&self) -> u64 {
        self.unix.saturating_add(millis_down(self.started.elapsed()))
    }

    /// Waits until [`Clock::steady`] is `unix`.
    pub async fn wait_until(&self, unix: u64) {
        match self.started.checked_add(Duration::from_millis(unix.saturating_sub(self.unix))) {
            Some(at) => tokio::time::sleep_until(at).await,
            // Later than the process's clock can tell.
            None => std::future::pending().await,
        }
    }
}

fn wall() -> u64 {
    // A clock before 1970 is a clock that was never set.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis_down)
}

fn millis_down(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns whole milliseconds, rounded up.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_waited_for_by_the_clock_of_the_process() {
        let clock = Clock::start();
        let before = clock.steady();
        clock.wait_until(before + 1500).await;
        assert_eq!(clock.steady(), before + 1500);
        clock.wait_until(0).await;
        assert_eq!(clock.steady(), before + 1500, "a deadline in the past is not waited for");
    }
}
