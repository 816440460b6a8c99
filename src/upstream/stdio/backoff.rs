//! Backs off from starting children after one has ended too soon.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::{config::UpstreamId, upstream::Failure};

/// A child that ends by itself within this time of its start has failed.
pub(super) const SETTLED: Duration = Duration::from_secs(10);
/// The wait after the first failure; each further one doubles it.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest time that a client waits for a start.
const PATIENCE: Duration = Duration::from_secs(30);

/// The waits before the starts of one command.
#[derive(Debug)]
pub(super) struct Backoff {
    /// The upstream, for the log.
    upstream: UpstreamId,
    wait: Mutex<Option<Wait>>,
}

#[derive(Debug)]
struct Wait {
    /// How long the last failure makes the next start wait.
    delay: Duration,
    /// When the next start may happen.
    until: Instant,
    /// How the failed child ended.
    fate: String,
}

impl Backoff {
    /// Creates the backoff of the command of `upstream`, whose first start does not wait.
    pub(super) fn of(upstream: UpstreamId) -> Self {
        Self { upstream, wait: Mutex::default() }
    }

    /// Waits until a child may be started.
    ///
    /// # Errors
    /// [`Failure::Limit`] if that is not within [`PATIENCE`].
    pub(super) async fn turn(&self) -> Result<(), Failure> {
        let patient_until = Instant::now() + PATIENCE;
        // Another failure in the meantime makes the wait longer.
        while let Some((until, fate)) = self.wait() {
            if until > patient_until {
                let wait = humantime::format_duration(LONGEST);
                return Err(Failure::Limit(format!(
                    "the MCP server behind taskgate keeps ending soon after its start and is started every {wait} \
                     at most; try again later; the last time it ended with {fate}"
                )));
            }
            let (upstream, wait) = (self.upstream.as_str(), until - Instant::now());
            tracing::info!(upstream, ?wait, "a child process waits for its start");
            sleep_until(until).await;
        }
        Ok(())
    }

    /// Notes that the child that was started at `started` has failed. Children that were started side by side count
    /// once.
    pub(super) fn failed(&self, started: Instant, fate: &str) {
        let mut wait = self.wait.lock();
        let delay = match &*wait {
            Some(wait) if started < wait.until => return,
            Some(wait) => (wait.delay * 2).min(LONGEST),
            None => FIRST,
        };
        tracing::warn!(
            upstream = self.upstream.as_str(),
            ?delay,
            fate,
            "the server ended soon after its start; the next start has to wait"
        );
        *wait = Some(Wait { delay, until: Instant::now() + delay, fate: fate.to_owned() });
    }

    /// Notes that a child has lived for long enough.
    pub(super) fn settled(&self) {
        *self.wait.lock() = None;
    }

    /// Returns when the wait ends and how the last child failed, if the wait is not over.
    fn wait(&self) -> Option<(Instant, String)> {
        let wait = self.wait.lock();
        wait.as_ref().filter(|wait| wait.until > Instant::now()).map(|wait| (wait.until, wait.fate.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how long the next start waits.
    async fn wait(backoff: &Backoff) -> Duration {
        let since = Instant::now();
        backoff.turn().await.expect("in time");
        since.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_start_does_not_wait() {
        assert_eq!(wait(&Backoff::of("/mcp".into())).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn each_failure_doubles_the_wait_up_to_half_a_minute() {
        let backoff = Backoff::of("/mcp".into());
        let mut waits = Vec::new();
        for _ in 0..11 {
            backoff.failed(Instant::now(), "exit status: 1");
            waits.push(wait(&backoff).await.as_millis());
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_that_settles_ends_the_waits() {
        let backoff = Backoff::of("/mcp".into());
        for _ in 0..5 {
            backoff.failed(Instant::now(), "exit status: 1");
            wait(&backoff).await;
        }
        backoff.settled();
        assert_eq!(wait(&backoff).await, Duration::ZERO);
        backoff.failed(Instant::now(), "exit status: 1");
        assert_eq!(wait(&backoff).await, FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn children_that_were_started_side_by_side_count_as_one_failure() {
        let backoff = Backoff::of("/mcp".into());
        let started = Instant::now();
        for _ in 0..10 {
            backoff.failed(started, "exit status: 1");
        }
        assert_eq!(wait(&backoff).await, FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_would_wait_for_more_than_half_a_minute_is_refused() {
        let backoff = Backoff::of("/mcp".into());
        for _ in 0..11 {
            wait(&backoff).await;
            backoff.failed(Instant::now(), "exit status: 1");
        }
        let since = Instant::now();
        let overtaking = async {
            sleep_until(since + Duration::from_secs(1)).await;
            // As if a child that was started at the end of the wait had failed before this one went on.
            backoff.failed(since + LONGEST, "exit status: 7");
        };
        let (refused, ()) = tokio::join!(backoff.turn(), overtaking);
        let refused = refused.expect_err("too late").to_string();
        assert_eq!(since.elapsed(), PATIENCE);
        assert!(refused.contains("started every 30s at most; try again later"), "{refused}");
        assert!(refused.ends_with("exit status: 7"), "{refused}");
    }
}
