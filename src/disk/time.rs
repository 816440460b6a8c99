//! The time of the file: it counts on from the latest time that the file has seen, as far as the time since then can be
//! measured, and never by the system's clock, which may have been set meanwhile.
//!
//! While the machine has not started again, the time since its start measures how long the process was away. Otherwise the
//! file's time stands still while no process has it: a deadline is then as far away as before.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the file notes of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The file's time, in milliseconds since the Unix epoch by the clock with which it was created.
    pub unix: u64,
    /// The start of the machine that counts `since_boot`; empty where that is not known.
    pub boot: String,
    /// Milliseconds since the machine has started.
    pub since_boot: u64,
}

/// The time of an open file.
#[derive(Clone, Debug)]
pub(super) struct FileTime {
    at_open: Seen,
    opened: Instant,
}

impl Seen {
    /// Returns what a file that is created now notes.
    pub(super) fn now() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis);
        Self { unix, ..Self::of_machine() }
    }

    /// Returns how long the machine runs, with the file's time unset.
    fn of_machine() -> Self {
        let (boot, since_boot) = boot();
        Self { unix: 0, boot, since_boot }
    }

    /// Returns the file's time `now`, which is measured by the machine alone.
    fn resumed(&self, now: &Self) -> u64 {
        let measured = !self.boot.is_empty() && self.boot == now.boot;
        let away = if measured { now.since_boot.saturating_sub(self.since_boot) } else { 0 };
        self.unix.saturating_add(away)
    }
}

impl FileTime {
    /// Goes on after what the file has seen.
    pub(super) fn resume(seen: &Seen) -> Self {
        let now = Seen::of_machine();
        Self { at_open: Seen { unix: seen.resumed(&now), ..now }, opened: Instant::now() }
    }

    /// Returns what the file is to note now.
    pub(super) fn seen(&self) -> Seen {
        let passed = millis(self.opened.elapsed());
        let Seen { unix, boot, since_boot } = &self.at_open;
        Seen { unix: unix + passed, boot: boot.clone(), since_boot: since_boot + passed }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a name of this start of the machine, and the milliseconds since then.
#[cfg(target_os = "linux")]
fn boot() -> (String, u64) {
    // Where the name cannot be read, the time since the start means nothing to a later process.
    let name = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let millis = since.tv_sec.saturating_mul(1000).saturating_add(since.tv_nsec / 1_000_000);
    (name.trim().to_owned(), u64::try_from(millis).unwrap_or_default())
}

/// Returns that no start of the machine is known.
#[cfg(not(target_os = "linux"))]
fn boot() -> (String, u64) {
    (String::new(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(unix: u64, boot: &str, since_boot: u64) -> Seen {
        Seen { unix, boot: boot.to_owned(), since_boot }
    }

    #[test]
    fn time_away_is_measured_by_the_machine_and_stands_still_where_it_has_started_again() {
        let day = 86_400_000;
        let before = seen(5 * day, "one", 1000);
        // Whatever the system's clock says now.
        assert_eq!(before.resumed(&seen(0, "one", 4000)), 5 * day + 3000);
        assert_eq!(before.resumed(&seen(0, "one", 1000 + 2 * day)), 7 * day);
        assert_eq!(before.resumed(&seen(0, "two", 4000)), 5 * day);
        assert_eq!(seen(5 * day, "", 1000).resumed(&seen(0, "", 4000)), 5 * day, "no name is no proof");
        assert_eq!(before.resumed(&seen(0, "one", 0)), 5 * day, "time does not go back");
    }
}
