//! The end of the audit log.

use std::sync::Arc;

use crate::observe::Observer;

/// Writes the last lines of a start that fails or is stopped: it may have changed tasks of an earlier process.
#[derive(Debug)]
pub(super) struct AuditedStart(Option<Arc<Observer>>);

impl AuditedStart {
    pub(super) fn new(observer: &Arc<Observer>) -> Self {
        Self(Some(Arc::clone(observer)))
    }

    /// Leaves the lines to the process that has started.
    pub(super) fn succeeded(mut self) {
        self.0 = None;
    }
}

impl Drop for AuditedStart {
    fn drop(&mut self) {
        if let Some(observer) = &self.0 {
            finish(observer);
        }
    }
}

/// Writes the last lines. Waits for this for a second at most.
pub(super) fn finish(observer: &Observer) {
    if let Err(error) = observer.finish_audit() {
        tracing::error!(%error, "the last lines of the audit log are lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Audit, AuditOwner, AuditTo, UpstreamId},
        observe::{Who, events},
    };

    #[tokio::test]
    async fn the_lines_of_a_start_that_fails_are_written_when_it_ends() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let config = Audit { to: AuditTo::File(path.clone()), owner: AuditOwner::Hash };
        let observer = Arc::new(Observer::new(config).expect("a thread"));
        observer.audit_opened().await.expect("a file");
        let start = AuditedStart::new(&observer);
        let who = Who::restored("owner", "session", &UpstreamId::from("/mcp"));
        observer.emit(events::CancellationIgnored { who: &who });
        drop(start);
        assert!(std::fs::read_to_string(path).expect("text").contains("cancellation_ignored"));
    }
}
