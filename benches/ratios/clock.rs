//! The clock that all processes of a measurement share, and its time in results.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What stands before the time in the text of a result.
const STAMP: &str = "answered at ";

/// The time since some moment before every process here.
pub fn now() -> Duration {
    clock_gettime(ClockId::Monotonic).try_into().unwrap_or_default()
}

/// The text of a result that is made now.
pub fn stamp() -> String {
    format!("{STAMP}{}", now().as_nanos())
}

/// When an answer with such a text was made.
pub fn stamped(answer: &str) -> Option<Duration> {
    let (_, time) = answer.split_once(STAMP)?;
    Some(Duration::from_nanos(time.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()?))
}
