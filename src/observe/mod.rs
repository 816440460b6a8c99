//! What happens, told once: emitting an event writes the log line, moves the metric and writes the audit line, so that
//! they cannot disagree.

mod audit;
mod audit_file;
pub mod events;
mod metrics;

use std::{io, sync::Arc};

use uuid::Uuid;

pub use audit::{Line, Who};
pub use metrics::{Metrics, log_lines_lost};

use crate::config::{self, UpstreamId};

/// One thing that happens.
pub trait Event {
    /// Writes the log line and moves the metrics.
    fn tell(&self, metrics: &Metrics);

    /// The line for the audit log, if it belongs there.
    fn audit(&self) -> Option<Line<'_>> {
        None
    }
}

/// Takes in events; one a process.
#[derive(Debug, Default)]
pub struct Observer {
    metrics: Metrics,
    audit: audit::Audit,
}

impl Observer {
    /// An observer that writes the audit log that is configured.
    ///
    /// # Errors
    /// If its file cannot be opened.
    pub fn new(audit: config::Audit) -> io::Result<Self> {
        Ok(Self { metrics: Metrics::default(), audit: audit::Audit::new(audit)? })
    }

    /// Tells everyone concerned that `event` has happened.
    #[expect(clippy::needless_pass_by_value, reason = "an event is made to be told once")]
    pub fn emit(&self, event: impl Event) {
        event.tell(&self.metrics);
        if self.audit.is_on()
            && let Some(line) = event.audit()
        {
            self.audit.take(&line, &self.metrics.audit_lines_lost);
        }
    }

    /// How lines name a session with `upstream`, and its principal, if it has one.
    #[must_use]
    pub fn who(&self, principal: Option<&str>, session: Uuid, upstream: &UpstreamId) -> Arc<Who> {
        self.audit.who(principal, session, upstream)
    }

    /// Writes the audit lines that wait for their file, at the end of the process. Waits for that, for a second at most.
    ///
    /// # Errors
    /// If they could not be written.
    pub fn finish_audit(&self) -> io::Result<()> {
        self.audit.finish()
    }

    /// The metrics in the `OpenMetrics` text format.
    #[must_use]
    pub fn open_metrics(&self) -> String {
        self.metrics.encode()
    }
}
