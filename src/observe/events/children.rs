//! What passes between taskgate and stdio children.

use crate::observe::{Event, Metrics};

/// Messages came to wait for a stdio child to read them, or do not any more.
#[derive(Debug)]
pub struct WaitsForChild {
    /// By how many bytes more wait, or fewer.
    bytes: i64,
}

impl WaitsForChild {
    /// So many bytes more.
    #[must_use]
    pub fn more(bytes: usize) -> Self {
        Self { bytes: i64::try_from(bytes).unwrap_or(i64::MAX) }
    }

    /// So many bytes fewer.
    #[must_use]
    pub fn less(bytes: usize) -> Self {
        Self { bytes: -Self::more(bytes).bytes }
    }
}

impl Event for WaitsForChild {
    fn tell(&self, metrics: &Metrics) {
        metrics.child_stdin_bytes.inc_by(self.bytes);
    }
}

/// A stdio child wrote something to its stdout that is no message.
#[derive(Debug)]
pub struct NotAMessage<'a> {
    /// The path of the upstream.
    pub upstream: &'a str,
    /// The child's process id.
    pub pid: u32,
    /// What is wrong with it, without a word of it: it may be a result.
    pub why: &'a str,
    /// The length of the line.
    pub bytes: usize,
    /// Whether it is the first one of this child.
    pub first: bool,
}

impl Event for NotAMessage<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.child_junk_lines.inc();
        if self.first {
            let Self { upstream, pid, why, bytes, .. } = self;
            tracing::warn!(
                upstream,
                pid,
                why,
                bytes,
                "the server wrote a line that is no message; others are only counted"
            );
        }
    }
}

/// A shared stdio child sent a notification that may be the business of one session, and does not say of which.
#[derive(Debug)]
pub struct UnattributedNotification;

impl Event for UnattributedNotification {
    fn tell(&self, metrics: &Metrics) {
        metrics.unattributed_notifications.inc();
        tracing::debug!("a notification of a shared child process that may be any session's was dropped");
    }
}
