//! The time of the file: it counts on from the latest time that the file has seen, as far as the time since then can be
//! measured, and never by the system's clock, which may have been set meanwhile.
//!
//! While the machine has not started again, the time since its start measures how long the process was away. Otherwise
//! the file's time stands still while no process has it: a deadline is then as far away as before. It also stands still
//! while the machine sleeps with the file open.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{Context, SHA256};

use super::Damaged;

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
        Self { unix: 0, boot: boot(), since_boot: since_boot() }
    }

    /// Returns the name of the machine's start as it stands in the file: with a digest of that and of all numbers
    /// beside it, as a wrong one would let tasks expire, or live for ever.
    pub(super) fn sealed_boot(&self, batch: u64) -> String {
        format!("{} {:016x}", self.boot, self.digest(batch))
    }

    /// Reads what the file noted with that batch. An older taskgate wrote no digest.
    pub(super) fn read(batch: u64, unix: u64, sealed_boot: &str, since_boot: u64) -> Result<Self, Damaged> {
        let (boot, digest) =
            sealed_boot.split_once(' ').map_or((sealed_boot, None), |(boot, digest)| (boot, Some(digest)));
        let seen = Self { unix, boot: boot.to_owned(), since_boot };
        let fits = digest.is_none_or(|digest| digest == format!("{:016x}", seen.digest(batch)));
        if fits { Ok(seen) } else { Err(Damaged) }
    }

    /// Returns the beginning of a SHA-256.
    fn digest(&self, batch: u64) -> u64 {
        let mut digest = Context::new(&SHA256);
        for number in [batch, self.unix, self.since_boot] {
            digest.update(&number.to_be_bytes());
        }
        digest.update(self.boot.as_bytes());
        digest.finish().as_ref().first_chunk().map_or(0, |beginning| u64::from_be_bytes(*beginning))
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
        let unix = self.at_open.unix + millis(self.opened.elapsed());
        // Unlike `opened`, it counts on while the machine sleeps. The next start counts from here.
        Seen { unix, boot: self.at_open.boot.clone(), since_boot: since_boot() }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a name of this start of the machine.
#[cfg(target_os = "linux")]
fn boot() -> String {
    // Where the name cannot be read, the time since the start means nothing to a later process.
    let name = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    name.trim().to_owned()
}

/// Returns the milliseconds since the machine has started, asleep or not.
#[cfg(target_os = "linux")]
fn since_boot() -> u64 {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let millis = since.tv_sec.saturating_mul(1000).saturating_add(since.tv_nsec / 1_000_000);
    u64::try_from(millis).unwrap_or_default()
}

/// Returns that no start of the machine is known.
#[cfg(not(target_os = "linux"))]
fn boot() -> String {
    String::new()
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> u64 {
    0
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

    #[cfg(target_os = "linux")]
    #[test]
    fn time_in_which_the_machine_slept_while_the_file_was_open_is_not_counted_by_the_next_start() {
        let day = 86_400_000;
        // It was opened a moment ago, and by the machine's clock long before: it slept meanwhile.
        let now = Seen::of_machine();
        let at_open = Seen { unix: 5 * day, since_boot: 0, ..now.clone() };
        let noted = FileTime { at_open, opened: Instant::now() }.seen();
        assert!(noted.unix < 5 * day + 60_000 && noted.since_boot >= now.since_boot && now.since_boot > 0);
        let later = noted.resumed(&Seen { since_boot: noted.since_boot + 3000, ..now });
        assert_eq!(later, noted.unix + 3000);
    }

    #[test]
    fn a_changed_number_beside_the_time_is_damage() {
        let noted = seen(5, "one", 7);
        let sealed = noted.sealed_boot(9);
        let read = |batch, unix, boot: &str, since_boot| Seen::read(batch, unix, boot, since_boot);
        assert_eq!(read(9, 5, &sealed, 7), Ok(noted.clone()));
        assert_eq!(read(9, 5, "one", 7), Ok(noted), "an older taskgate wrote it");
        for changed in [read(8, 5, &sealed, 7), read(9, 4, &sealed, 7), read(9, 5, &sealed, 6)] {
            assert_eq!(changed, Err(Damaged));
        }
        assert_eq!(read(9, 5, &sealed.replace("one", "onf"), 7), Err(Damaged));
    }
}
