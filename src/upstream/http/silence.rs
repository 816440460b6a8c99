//! How long a resumed answer may be silent before it is asked for again.

use std::time::Duration;

/// How long a resumed answer may be silent at first.
const SHORTEST: Duration = Duration::from_secs(15);
/// How long it may be silent at most, when asking again has brought nothing.
const LONGEST: Duration = Duration::from_mins(1);

/// The silence after which a resumed answer is asked for again.
///
/// Some servers send on a resumed stream only what they had stored, and store what comes later without sending it
/// there: they know the new stream under a wrong name. A call that still runs looks the same. So only asking again
/// tells whether there is more.
#[derive(Debug)]
pub(super) struct Silence(Duration);

impl Default for Silence {
    fn default() -> Self {
        Self(SHORTEST)
    }
}

impl Silence {
    /// Returns how long the answer may be silent now.
    pub(super) fn limit(&self) -> Duration {
        self.0
    }

    /// Notes that the server has sent something new.
    pub(super) fn broken(&mut self) {
        *self = Self::default();
    }

    /// Notes that the answer was silent for so long.
    pub(super) fn lasted(&mut self) {
        self.0 = (2 * self.0).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_asked_ever_less_often_until_it_sends_something() {
        let mut silence = Silence::default();
        let mut limits = Vec::new();
        for _ in 0..4 {
            limits.push(silence.limit().as_secs());
            silence.lasted();
        }
        assert_eq!(limits, [15, 30, 60, 60]);
        silence.broken();
        assert_eq!(silence.limit().as_secs(), 15);
    }
}
