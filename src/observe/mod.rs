//! Events: emitting one writes the log line, moves the metric and writes the audit line, so that they cannot disagree.

mod audit;
mod audit_file;
pub mod events;
mod label_values;
mod metrics;

use std::{io, sync::Arc};

use uuid::Uuid;

pub use audit::{AuditLine, Who};
pub use metrics::{Metrics, log_lines_lost};

use crate::config::{self, UpstreamId};

/// One thing that happens.
pub trait Event {
    /// Writes the log line and moves the metrics.
    fn tell(&self, metrics: &Metrics);

    /// Returns the line for the audit log, if the event belongs there.
    fn audit(&self) -> Option<AuditLine<'_>> {
        None
    }
}

/// Writes events to the log, the metrics and the audit log. A process has one.
#[derive(Debug, Default)]
pub struct Observer {
    metrics: Metrics,
    audit: audit::AuditLog,
}

impl Observer {
    /// Makes an observer with the configured audit log, whose file then opens in the background.
    ///
    /// # Errors
    /// If the system gives no thread for that file. The error names the path.
    pub fn new(audit: config::Audit) -> io::Result<Self> {
        Ok(Self { metrics: Metrics::default(), audit: audit::AuditLog::new(audit)? })
    }

    /// Waits until the file of the audit log is open, if it goes to one.
    ///
    /// # Errors
    /// If it cannot be opened, or not within 5 s. The error names the path.
    pub async fn audit_opened(&self) -> io::Result<()> {
        self.audit.opened().await
    }

    /// Writes an event to the log and the metrics and, where it belongs there, to the audit log.
    #[expect(clippy::needless_pass_by_value, reason = "an event is made to be told once")]
    pub fn emit(&self, event: impl Event) {
        event.tell(&self.metrics);
        if self.audit.is_on()
            && let Some(line) = event.audit()
        {
            self.audit.write(&line, &self.metrics.audit_lines_lost);
        }
    }

    /// Returns how lines name a session with `upstream`, and its principal, if it has one.
    #[must_use]
    pub fn who(&self, principal: Option<&str>, session: Uuid, upstream: &UpstreamId) -> Arc<Who> {
        self.audit.who(principal, session, upstream)
    }

    /// Writes the audit lines that wait for their file, at the end of the process. Waits for this for a second at most.
    ///
    /// # Errors
    /// If they could not be written.
    pub fn finish_audit(&self) -> io::Result<()> {
        self.audit.finish()
    }

    /// Returns the metrics in the `OpenMetrics` text format.
    #[must_use]
    pub fn open_metrics(&self) -> String {
        self.metrics.encode()
    }
}
