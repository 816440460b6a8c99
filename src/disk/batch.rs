//! A batch: one transaction for all that waits, with one sync. Where an operation fails the batch is tried again with a
//! savepoint for each, and where one meets damage or finds no room, without it. Also what keeps the log and the file
//! small.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rusqlite::Connection;

use super::{
    Unavailable,
    cut::LogEnd,
    damage::Damage,
    error::{is_damage, is_full, is_of_disk},
    failed::{Culprit, Failed, Fullness, LeftOut, Outcome, Suspects, Tried, Undo},
    mark::Mark,
    open::BUSY,
    queue::{Later, LaterKey, Operation, Taken},
    space::Space,
    standing::Standing,
    time::FileTime,
};

/// The log is brought into the file when it has grown by so many bytes.
const CHECKPOINT: u64 = 4 << 20;
/// The most bytes of the log. It can be longer than a checkpoint only while something reads what it began with.
const MAX_LOG: u64 = 256 << 20;
/// How much of a log that was brought into the file is kept for the next one.
const KEPT_LOG: u64 = 16 << 20;
/// How often the time is noted where nothing else is written.
const NOTE_TIME: Duration = Duration::from_mins(1);
/// How long after a batch that failed an empty one shows whether the disk takes something again.
const RETRY: Duration = Duration::from_secs(1);
/// Why space is not given back now.
const LOG_IS_READ: &str = "something such as a backup reads its log";
/// How long the work that can wait of one batch may take.
const LATER_TIME: Duration = Duration::from_millis(20);

/// The connection that writes.
#[derive(Debug)]
pub(super) struct Batches {
    connection: Connection,
    standing: Standing,
    log_end: LogEnd,
    mark: Mark,
    time: FileTime,
    /// The number of the last batch.
    batch: u64,
    /// The same when the file was opened.
    found: u64,
    /// When the last batch was written.
    written: Instant,
    /// Whether the last batch failed.
    failing: bool,
    fullness: Fullness,
    /// Whether the log has to begin anew first: what a sync that failed had to write may not be on the disk.
    must_reset: bool,
    /// Whether frames that are no commit may stand at the end of the log.
    must_cut: bool,
    /// Pages in the log.
    log: Arc<AtomicU64>,
    /// From how many pages on the log is brought into the file.
    checkpoint_at: u64,
    /// The bytes of a page.
    page: u64,
    space: Space,
    /// What was found to be damaged, and was not told yet.
    damages: Vec<Damage>,
    suspects: Suspects,
}

impl Batches {
    /// Takes over a connection to a file in which all is well.
    pub(super) fn new(
        mut connection: Connection,
        standing: Standing,
        log_end: LogEnd,
        mark: Mark,
        time: FileTime,
    ) -> rusqlite::Result<Self> {
        let log = Arc::new(AtomicU64::default());
        let counting = Arc::clone(&log);
        connection.wal_hook(Some(move |_: &mut _, pages: i32| {
            counting.store(u64::try_from(pages).unwrap_or_default(), Ordering::Relaxed);
            Ok(())
        }))?;
        connection.pragma_update(None, "journal_size_limit", KEPT_LOG.cast_signed())?;
        let batch = connection.query_row("SELECT batch FROM state", (), |row| row.get::<_, i64>(0))?;
        let page = connection.pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0))?.cast_unsigned();
        let space = Space::of(&connection)?;
        Ok(Self {
            connection,
            standing,
            log_end,
            mark,
            time,
            batch: batch.cast_unsigned(),
            found: batch.cast_unsigned(),
            written: Instant::now(),
            failing: false,
            fullness: Fullness::default(),
            must_reset: true,
            must_cut: false,
            log,
            checkpoint_at: CHECKPOINT / page,
            page,
            space,
            damages: Vec::new(),
            suspects: Suspects::default(),
        })
    }

    /// Writes a batch.
    pub(super) fn write(&mut self, taken: Taken) -> Outcome {
        let Taken { mut operations, later } = taken;
        let suspects = self.suspects.among(&later);
        let (mut undo, mut left_out, mut full) = (Undo::All, LeftOut::default(), None);
        let tried = loop {
            match self.try_batch(&mut operations, &later, undo, &left_out) {
                Err(Failed::Operation) if undo == Undo::All => undo = Undo::Each,
                Err(Failed::Damaged(culprit, why)) if left_out.add(culprit) => {
                    let key = if let Culprit::Later(at) = culprit { Some(later[at].0) } else { None };
                    if key.is_some_and(|key| !self.suspects.stay_damaged(key, Instant::now())) {
                        left_out.try_again();
                    } else {
                        self.damages.push(Damage { key, why });
                    }
                }
                Err(Failed::Full(culprit, why)) => {
                    left_out.add_full(culprit);
                    full = Some(why);
                }
                tried => break tried,
            }
        };
        self.failing = tried.is_err();
        let is_full = self.fullness.note(full.is_some(), Instant::now());
        let takes = tried.is_ok() && !is_full && left_out.takes_any_of(operations.len());
        let waiting = if tried.is_ok() { left_out.waiting(&mut operations) } else { Vec::new() };
        let (undone, untried, result) = match tried {
            Ok((undone, untried)) => (undone, untried, Ok(())),
            Err(failed) => (left_out.rest(later), 0, Err(failed.why())),
        };
        self.suspects.forget_done(suspects, &undone);
        Outcome { operations, waiting, undone, untried, result, full, takes }
    }

    /// Writes a batch or nothing of it.
    fn try_batch(
        &mut self,
        operations: &mut [Operation],
        later: &[(LaterKey, Later)],
        undo: Undo,
        left_out: &LeftOut,
    ) -> Tried {
        let tried = self.transaction(operations, later, undo, left_out);
        // Where no sync has failed, there is nothing that may be in memory only.
        self.must_reset |= matches!(tried, Err(Failed::Batch(_)));
        if tried.is_err() && !self.connection.is_autocommit() {
            // Where this fails too, the next BEGIN does.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        // Nothing was synced then. SQLite may have written frames all the same, where it had no memory for them.
        if matches!(tried, Err(Failed::Full(..))) && self.log_end.is_cut(&self.connection, self.page) {
            self.must_cut = false;
        }
        // Before anything is told of the failure. Where the disk does not take even that, the next batch begins with
        // it.
        if let Err(why) = self.cut() {
            tracing::debug!(%why, "what a batch that failed has left still stands in the log of the store");
        }
        tried
    }

    fn transaction(
        &mut self,
        operations: &mut [Operation],
        later: &[(LaterKey, Later)],
        undo: Undo,
        left_out: &LeftOut,
    ) -> Tried {
        self.standing.check().map_err(Failed::Batch)?;
        self.cut().map_err(Failed::Batch)?;
        self.make_room_in_log()?;
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute(())?;
        self.must_cut = true;
        for (at, operation) in left_out.operations_of(operations) {
            // It tells its failure itself.
            let _ = self.run(undo, Culprit::Operation(at), |connection| operation.run(connection))?;
        }
        let (begun, mut put_off, mut failed, mut done) = (Instant::now(), Vec::new(), Vec::new(), Vec::new());
        for (at, (key, work)) in left_out.works_of(later) {
            if begun.elapsed() > LATER_TIME {
                put_off.push((*key, work.clone()));
            } else if let Err(error) = self.run(undo, Culprit::Later(at), |connection| work.run(connection))? {
                tracing::debug!(kind = key.kind, %error, "the store has put off a write");
                failed.push((*key, work.clone()));
            } else {
                done.push(work);
            }
        }
        let (batch, seen) = (self.batch + 1, self.time.seen());
        let update = "UPDATE state SET batch = ?1, seen = ?2, boot = ?3, since_boot = ?4";
        let boot = seen.sealed_boot(batch);
        let values = (batch.cast_signed(), seen.unix.cast_signed(), boot, seen.since_boot.cast_signed());
        self.connection.prepare_cached(update)?.execute(values)?;
        self.space.count(&self.connection)?;
        self.connection.prepare_cached("COMMIT")?.execute(())?;
        self.must_cut = false;
        (self.batch, self.written) = (batch, Instant::now());
        if let Err(error) = self.mark.write(batch) {
            // An older mark says less, and nothing that is wrong.
            tracing::debug!(%error, "the mark of the store could not be written");
        }
        done.into_iter().for_each(Later::tell);
        let [behind, again] = left_out.again(later);
        let untried = put_off.len() + behind.len();
        Ok(([put_off, behind, failed, again].concat(), untried))
    }

    /// Runs one operation. A failure of the disk fails the batch. So does damage, as SQLite writes nothing more in a
    /// transaction that has met some, and a file without room, as it undoes that transaction.
    fn run(
        &self,
        undo: Undo,
        it: Culprit,
        run: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<Result<(), rusqlite::Error>, Failed> {
        if undo == Undo::Each {
            self.connection.prepare_cached("SAVEPOINT operation")?.execute(())?;
        }
        let ran = run(&self.connection);
        match &ran {
            Ok(()) => {}
            Err(error) if is_damage(error) => return Err(Failed::Damaged(it, error.into())),
            Err(error) if is_full(error) => return Err(Failed::Full(it, error.into())),
            Err(error) if self.connection.is_autocommit() || is_of_disk(error) => return Err(error.into()),
            Err(_) if undo == Undo::All => return Err(Failed::Operation),
            Err(_) => drop(self.connection.prepare_cached("ROLLBACK TO operation")?.execute(())?),
        }
        if undo == Undo::Each {
            self.connection.prepare_cached("RELEASE operation")?.execute(())?;
        }
        Ok(ran)
    }

    /// Cuts off what a batch that failed has left in the log.
    fn cut(&mut self) -> Result<(), Unavailable> {
        if self.must_cut {
            self.log.store(self.log_end.cut(&self.connection, self.page)?, Ordering::Relaxed);
            self.must_cut = false;
        }
        Ok(())
    }

    /// Begins the log anew where it has to be, or is too long.
    fn make_room_in_log(&mut self) -> Result<(), Failed> {
        let is_too_long = self.log_bytes() >= MAX_LOG;
        if !self.must_reset && !is_too_long {
            return Ok(());
        }
        // While a backup reads the log, that has to wait, and does not hold up what is written.
        if self.checkpoint("TRUNCATE")? {
            self.must_reset = false;
        } else if is_too_long {
            let why =
                format!("its log has {MAX_LOG} bytes, as something such as a backup has been reading it for long");
            return Err(Failed::Batch(Unavailable(why.into())));
        }
        Ok(())
    }

    /// Brings the log into the file. Returns whether that is all of it, as nothing was in the way.
    fn checkpoint(&mut self, mode: &str) -> rusqlite::Result<bool> {
        let pragma = format!("PRAGMA wal_checkpoint({mode})");
        self.connection.busy_timeout(Duration::ZERO)?;
        let result = self
            .connection
            .query_row(&pragma, (), |row| Ok((row.get::<_, bool>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
        self.connection.busy_timeout(BUSY)?;
        let (busy, log, done) = result?;
        if mode == "TRUNCATE" && !busy {
            self.log.store(0, Ordering::Relaxed);
        }
        // Where something reads the log, it is tried again when the log has grown as much once more.
        self.checkpoint_at = u64::try_from(log).unwrap_or_default() + CHECKPOINT / self.page;
        Ok(!busy && done == log)
    }

    /// Brings the log into the file if it has grown enough.
    pub(super) fn checkpoint_if_long(&mut self) {
        let log = self.log.load(Ordering::Relaxed);
        if log < self.checkpoint_at.min(CHECKPOINT / self.page) {
            self.checkpoint_at = CHECKPOINT / self.page;
        } else if log >= self.checkpoint_at
            && let Err(error) = self.checkpoint("PASSIVE")
        {
            tracing::debug!(%error, "the log of the store could not be brought into the file");
        }
    }

    /// Returns after how much idle time there is something to do: [`Batches::tidy`], or an empty batch.
    pub(super) fn chore_after(&self) -> Duration {
        if self.failing {
            return RETRY;
        }
        let full = self.fullness.lasts(Instant::now());
        full.or_else(|| self.space.due()).unwrap_or_else(|| NOTE_TIME.saturating_sub(self.written.elapsed()))
    }

    /// Returns whether a batch has to be written though nothing waits: to find out whether the disk takes something
    /// again, or to note the time.
    pub(super) fn needs_a_batch(&self) -> bool {
        let is_over = self.fullness.lasts(Instant::now()) == Some(Duration::ZERO);
        self.failing || is_over || self.written.elapsed() >= NOTE_TIME
    }

    /// Gives a little space back, if there is any that is worth it.
    pub(super) fn tidy(&mut self) -> Result<(), Unavailable> {
        if !self.space.is_due() {
            return Ok(());
        }
        let tidied = self.give_back();
        if tidied.is_err() {
            self.space.rest();
        }
        tidied
    }

    /// Makes one step. The file becomes shorter when the log is brought into it.
    fn give_back(&mut self) -> Result<(), Unavailable> {
        self.cut()?;
        // What is left of its room is for batches: while something reads the log, each step makes it longer.
        if self.log_bytes() >= KEPT_LOG && !self.checkpoint("TRUNCATE").map_err(|error| Unavailable::from(&error))? {
            return Err(Unavailable(LOG_IS_READ.into()));
        }
        let made = self.space.step(&self.connection);
        self.must_reset |= made.is_err();
        self.must_cut |= made.is_err();
        if let Err(error) = &made
            && is_damage(error)
        {
            self.space.suspect();
            self.damages.push(Damage { key: Some(Space::KEY), why: error.into() });
        }
        made.map_err(|error| Unavailable::from(&error))?;
        let is_last = !self.space.is_worth_a_step();
        if is_last || self.log.load(Ordering::Relaxed) >= self.checkpoint_at {
            if self.checkpoint("PASSIVE").map_err(|error| Unavailable::from(&error))? {
                self.space.shortened();
            } else if is_last {
                return Err(Unavailable(LOG_IS_READ.into()));
            }
        }
        Ok(())
    }

    /// Takes out what was found to be damaged.
    pub(super) fn take_damages(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.damages)
    }

    /// Returns the bytes of the file that are in use, also those that only the log has so far.
    pub(super) fn used_bytes(&self) -> u64 {
        self.space.used_pages() * self.page
    }

    /// Returns the bytes of the file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.space.pages() * self.page
    }

    /// Returns the bytes of the log.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log.load(Ordering::Relaxed) * self.page
    }

    /// Closes the file, and brings the log into it if any batch was written.
    pub(super) fn close(mut self) {
        // Where it fails too, the next start finds what the log has.
        let _ = self.cut();
        if self.batch > self.found
            && let Err(error) = self.checkpoint("TRUNCATE")
        {
            tracing::debug!(%error, "the log of the store could not be brought into the file");
        }
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "the store could not be closed; its log is read at the next start");
        }
    }
}
