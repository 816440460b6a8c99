//! What passes between taskgate and stdio children.

use crate::observe::{Event, Metrics, metrics::ReasonLabels};

/// More or fewer bytes wait for a stdio child to read them.
#[derive(Debug)]
pub struct WaitsForChild {
    /// How many more bytes wait; negative if fewer do.
    bytes: i64,
}

impl WaitsForChild {
    /// Says that so many more bytes wait.
    #[must_use]
    pub fn more(bytes: usize) -> Self {
        Self { bytes: i64::try_from(bytes).unwrap_or(i64::MAX) }
    }

    /// Says that so many fewer bytes wait.
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

/// A stdio child wrote a line to its stdout that is not a message.
#[derive(Debug)]
pub struct NotAMessage<'a> {
    /// The path of the upstream.
    pub upstream: &'a str,
    /// The child's process id.
    pub pid: u32,
    /// What is wrong with the line, without a word of it: it may be a result.
    pub why: &'a str,
    /// The length of the line.
    pub bytes: usize,
    /// Whether it is the first such line of this child.
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
                "the server wrote a line that is not a message; further ones are only counted"
            );
        }
    }
}

/// A shared stdio child sent a notification that may be for one session only, and does not say for which.
#[derive(Debug)]
pub struct UnattributedNotification;

impl Event for UnattributedNotification {
    fn tell(&self, metrics: &Metrics) {
        metrics.unattributed_notifications.inc();
        tracing::debug!("a notification of a shared child process was dropped: it may be for any session");
    }
}

/// taskgate refused a question of a shared stdio child, which does not say whose call has caused it.
#[derive(Debug)]
pub struct UnattributedQuestion<'a> {
    /// The path of the upstream.
    pub upstream: &'a str,
    /// The reason.
    pub why: &'a str,
}

impl Event for UnattributedQuestion<'_> {
    fn tell(&self, metrics: &Metrics) {
        let Self { upstream, why } = self;
        metrics.questions_refused.get_or_create(&ReasonLabels { reason: "unattributed" }).inc();
        tracing::info!(upstream, why, "a question of a shared child process was refused");
    }
}
