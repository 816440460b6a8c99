//! The clock that all processes of a measurement share, and its time in the texts of results.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What stands before the time in the text of a result.
const STAMP: &str = "answered at ";

/// Returns the time since a moment before all processes here began.
pub fn now() -> Duration {
    clock_gettime(ClockId::Monotonic).try_into().unwrap_or_default()
}

/// Returns the text of a result that is made now.
pub fn stamp() -> String {
    format!("{STAMP}{}", now().as_nanos())
}

/// Returns when the text in an answer was made.
pub fn stamped(answer: &str) -> Option<Duration> {
    let (_, time) = answer.split_once(STAMP)?;
    Some(Duration::from_nanos(time.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()?))
}
