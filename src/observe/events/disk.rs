//! What the file of the store does.

use std::time::Duration;

use crate::observe::{Event, Metrics};

/// A batch was written, or failed.
#[derive(Debug)]
pub struct BatchWritten<'a> {
    /// How many operations it had.
    pub operations: usize,
    /// How long it took, with its sync.
    pub took: Duration,
    /// Why it failed, if it did.
    pub failed: Option<&'a str>,
    /// Whether the one before it could be written.
    pub was_available: bool,
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
        match self.failed {
            None => {
                metrics.disk_writes.inc_by(self.operations as u64);
                metrics.disk_batch_seconds.observe(self.took.as_secs_f64());
                metrics.disk_file_bytes.set(self.file_bytes.cast_signed());
                metrics.disk_log_bytes.set(self.log_bytes.cast_signed());
                metrics.disk_unavailable.set(0);
                if !self.was_available {
                    tracing::info!("the store is written again");
                }
            }
            Some(why) => {
                metrics.disk_failures.inc();
                metrics.disk_unavailable.set(1);
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
