//! How many polls all clients want to make, and how much longer each should wait if these are too many.

use std::time::Duration;

use tokio::time::Instant;

/// So many polls a second are no burden: a few hundredths of one processor.
const COMFORTABLE: f64 = 2000.0;
/// For how long a poll counts, on average.
const MEMORY: Duration = Duration::from_secs(2);
/// Forgetting follows a line to this power, which is nearly the exponential function and needs no library.
const POWER: i32 = 16;

/// How many polls a second all clients would make if each were told the interval that fits its own call.
#[derive(Debug)]
pub(super) struct PollDemand {
    wanted: f64,
    at: Instant,
}

impl PollDemand {
    pub(super) fn new(now: Instant) -> Self {
        Self { wanted: 0.0, at: now }
    }

    /// Notes that a client would have made so many polls in the time that it waited for this one.
    pub(super) fn note(&mut self, polls: f64, now: Instant) {
        self.wanted = self.wanted(now) + polls / MEMORY.as_secs_f64();
        self.at = now;
    }

    /// Returns the factor by which clients should stretch the time between polls; 1 while there are not too many.
    pub(super) fn crowding(&self, now: Instant) -> f64 {
        (self.wanted(now) / COMFORTABLE).max(1.0)
    }

    fn wanted(&self, now: Instant) -> f64 {
        let gone = now.duration_since(self.at).div_duration_f64(MEMORY) / f64::from(POWER);
        self.wanted * (1.0 - gone).max(0.0).powi(POWER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_crowd_each_other_only_if_there_are_too_many_and_are_forgotten() {
        let (mut demand, mut now) = (PollDemand::new(Instant::now()), Instant::now());
        for _ in 0..10_000 {
            demand.note(1.0, now);
            now += Duration::from_millis(1);
        }
        assert!(demand.crowding(now) <= 1.0, "a thousand a second");
        for _ in 0..100_000 {
            demand.note(1.0, now);
            now += Duration::from_micros(100);
        }
        let crowding = demand.crowding(now);
        assert!((4.5..5.5).contains(&crowding), "ten thousand a second: {crowding}");
        assert!(demand.crowding(now + Duration::from_secs(10)) <= 1.0);
    }
}
