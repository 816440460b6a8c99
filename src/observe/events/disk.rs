//! What the file of the store does.

use std::{path::Path, time::Duration};

use uuid::Uuid;

use crate::observe::{Event, Metrics};

/// A batch was written, or it or a part of it failed.
#[derive(Debug)]
pub struct BatchWritten<'a> {
    /// How many operations it had.
    pub operations: usize,
    /// How long it took, with its sync.
    pub took: Duration,
    /// Why it failed, or a part of it that found no room.
    pub failed: Option<&'a str>,
    /// Whether the file took writes before.
    pub was_available: bool,
    /// Whether it takes writes now.
    pub is_available: bool,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// How many writes wait.
    pub backlog: usize,
}

impl Event for BatchWritten<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.disk_backlog.set(i64::try_from(self.backlog).unwrap_or(i64::MAX));
        metrics.disk_unavailable.set(i64::from(!self.is_available));
        match self.failed {
            None => {
                metrics.disk_writes.inc_by(self.operations as u64);
                metrics.disk_batch_seconds.observe(self.took.as_secs_f64());
                metrics.disk_file_bytes.set(self.file_bytes.cast_signed());
                metrics.disk_log_bytes.set(self.log_bytes.cast_signed());
                if self.is_available && !self.was_available {
                    tracing::info!("the store is written again");
                }
            }
            Some(why) => {
                metrics.disk_failures.inc();
                if self.was_available {
                    tracing::error!(
                        why,
                        "the store cannot be written: new tasks are refused, and ends are written when it is possible again"
                    );
                }
            }
        }
    }
}

/// The thread that writes has looked whether space of the file can be given back.
#[derive(Debug)]
pub struct StoreTidied {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
}

impl Event for StoreTidied {
    fn tell(&self, metrics: &Metrics) {
        metrics.disk_file_bytes.set(self.file_bytes.cast_signed());
        metrics.disk_log_bytes.set(self.log_bytes.cast_signed());
    }
}

/// A read or a write has met damage in the file of the store. It has failed alone.
#[derive(Debug)]
pub struct StoreDamaged<'a> {
    /// What it was about.
    pub what: &'static str,
    /// The number of the row, where that is known.
    pub row: Option<u64>,
    /// The task, where that is known.
    pub task: Option<Uuid>,
    /// The file.
    pub file: &'a Path,
    /// What was found.
    pub why: &'a str,
    /// Whether the log does not have it yet.
    pub is_new: bool,
}

impl Event for StoreDamaged<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.disk_damages.inc();
        if self.is_new {
            tracing::error!(
                what = self.what,
                row = self.row,
                task = self.task.map(tracing::field::display),
                file = %self.file.display(),
                why = self.why,
                "the store is damaged at this place, which is left as it is, and all else goes on: `taskgate store check` says \
                 what is lost"
            );
        }
    }
}
