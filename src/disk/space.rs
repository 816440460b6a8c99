//! The free space of the file, and when it is given back.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::LaterKey;

/// How long the disk must have been idle before a step gives space back.
const IDLE: Duration = Duration::from_millis(100);
/// How long no space is given back after a step that the disk, or a reader of the log, did not let pass.
const REST: Duration = Duration::from_secs(10);
/// Pages that one step gives back.
const STEP: u32 = 256;
/// Free pages that are not worth giving back.
const FREE_PAGES: u64 = 1024;

/// The pages of the file.
#[derive(Debug)]
pub(super) struct Space {
    pages: u64,
    free: u64,
    /// Whether a step has freed the end of the file, which goes when the log is brought into it.
    has_free_end: bool,
    /// When space may be given back again.
    from: Instant,
    /// Whether no space is given back any more, as a step has met damage.
    is_left: bool,
    /// How many steps have met damage.
    met_damage: u32,
}

impl Space {
    /// Names the work of giving space back where it meets damage.
    pub(super) const KEY: LaterKey = LaterKey { kind: "free space", row: 0, task: None };

    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let mut space =
            Self { pages: 0, free: 0, has_free_end: false, from: Instant::now(), is_left: false, met_damage: 0 };
        space.count(connection)?;
        Ok(space)
    }

    /// Counts the pages anew.
    pub(super) fn count(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let count = |pragma| connection.prepare_cached(pragma)?.query_row((), |row| row.get::<_, i64>(0));
        let (pages, free) = (count("PRAGMA page_count")?, count("PRAGMA freelist_count")?);
        (self.pages, self.free) = (pages.cast_unsigned(), free.cast_unsigned());
        Ok(())
    }

    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    pub(super) fn used_pages(&self) -> u64 {
        self.pages - self.free
    }

    /// Returns after how much idle time something is to be given back, if anything is.
    pub(super) fn due(&self) -> Option<Duration> {
        let is_due = !self.is_left && (self.has_free_end || self.is_worth_a_step());
        is_due.then(|| self.from.saturating_duration_since(Instant::now()).max(IDLE))
    }

    /// Returns whether a step has to be made now.
    pub(super) fn is_due(&self) -> bool {
        self.due().is_some() && Instant::now() >= self.from
    }

    /// Returns whether there is more free space than batches soon use.
    pub(super) fn is_worth_a_step(&self) -> bool {
        self.free > FREE_PAGES.max(self.pages / 8)
    }

    /// Makes one step.
    pub(super) fn step(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        {
            let mut step = connection.prepare(&format!("PRAGMA incremental_vacuum({STEP})"))?;
            let mut rows = step.query(())?;
            while rows.next()?.is_some() {}
        }
        (self.has_free_end, self.met_damage) = (true, 0);
        self.count(connection)
    }

    /// Notes that the log was brought into the file.
    pub(super) fn shortened(&mut self) {
        self.has_free_end = false;
    }

    /// Notes that a step has met damage. The third leaves the space as it is until the next start: the others may have
    /// been passing failures of reads, which SQLite calls damage too.
    pub(super) fn suspect(&mut self) {
        self.met_damage += 1;
        self.is_left = self.met_damage >= 3;
    }

    /// Leaves the space as it is for a while.
    pub(super) fn rest(&mut self) {
        self.from = Instant::now() + REST;
    }
}
