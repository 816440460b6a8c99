//! Servers that are child processes: JSON-RPC lines on stdin and stdout (revision 2025-11-25, "stdio").

mod backoff;
mod child;
mod children;
pub(crate) mod lines;
mod link;
mod shared;
#[cfg(target_os = "linux")]
mod strays;
#[cfg(not(target_os = "linux"))]
mod strays {
    pub(super) const MARK: &str = "TASKGATE_CHILD";
    pub(super) fn kill(_marks: &[String]) {}
}

use std::{process::ExitStatus, sync::Arc, time::Duration};

use self::{children::Children, link::OwnLink, shared::Shared};
use super::{Failure, Inbound, Link};
use crate::config::Process;

/// One configured command.
#[derive(Debug)]
pub struct Server {
    children: Arc<Children>,
    /// The one child of all sessions; without it each session has its own.
    shared: Option<Shared>,
}

impl Server {
    /// A server behind `path` that is started by `program` with `args` as `process` says, when the first session needs it. It may take
    /// `grace` to end when its stdin was closed, and again after SIGTERM.
    #[must_use]
    pub fn new(path: String, program: String, args: Vec<String>, process: Process, grace: Duration) -> Self {
        let shared = process.shared;
        let children = Children::new(path, program, args, process, grace);
        let shared = shared.then(|| Shared::new(Arc::clone(&children), shared::LINGER));
        Self { children, shared }
    }

    /// A link to a child, which is started if there is none yet.
    pub(super) async fn connect(&self, inbound: Inbound) -> Result<Arc<dyn Link>, Failure> {
        if let Some(shared) = &self.shared {
            return Ok(Arc::new(shared.connect(inbound).await?));
        }
        let (ears, observer) = (Arc::new(inbound.clone()), Arc::clone(&inbound.observer));
        let child = self.children.start(ears, observer).await?;
        Ok(Arc::new(OwnLink::new(inbound, child)))
    }

    /// Ends the shared child, if there is one, and waits until every child is gone.
    pub(super) async fn ended(&self) {
        if let Some(shared) = &self.shared {
            shared.stop();
        }
        self.children.ended().await;
    }

    /// How the last child to end ended.
    pub(super) fn exit_status(&self) -> Option<ExitStatus> {
        *self.children.last_status.lock()
    }

    /// Kills every child and all that it has started, at once.
    pub(super) fn kill(&self) {
        self.children.kill();
    }
}
