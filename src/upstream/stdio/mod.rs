//! Servers that are child processes: JSON-RPC lines on stdin and stdout (revision 2025-11-25, "stdio").

mod backoff;
mod child;
mod children;
pub(crate) mod lines;
mod link;
mod queue;
mod roster;
mod share;
mod shared;
#[cfg(target_os = "linux")]
mod strays;
#[cfg(not(target_os = "linux"))]
mod strays {
    pub(super) const MARK: &str = "TASKGATE_CHILD";
    pub(super) fn kill(_marks: &[String]) {}
}
mod vacancy;
mod words;

use std::{process::ExitStatus, sync::Arc};

pub(crate) use self::child::TIME_TO_END;
pub use self::vacancy::{MAKING_ROOM, Vacancy};
use self::{children::Children, link::OwnLink, shared::SharedChild};
use super::{Failure, Inbound, Link};
use crate::config::{Process, UpstreamId};

/// One configured command.
#[derive(Debug)]
pub struct Server {
    children: Arc<Children>,
    /// The one child of all sessions; `None` if each session has a child of its own.
    shared: Option<SharedChild>,
}

impl Server {
    /// Creates the server of an upstream. When the first session needs it, `program` is started with `args` as
    /// `process` says.
    #[must_use]
    pub fn new(id: UpstreamId, program: String, args: Vec<String>, process: Process) -> Self {
        let shared = process.shared;
        let children = Children::new(id, program, args, process);
        let shared = shared.then(|| SharedChild::new(Arc::clone(&children), shared::LINGER));
        Self { children, shared }
    }

    /// Waits until a session's own child may be started, and returns its place.
    pub(super) async fn vacancy(&self) -> Result<Vacancy, Failure> {
        if self.shared.is_some() { Ok(Vacancy::default()) } else { self.children.vacancy().await }
    }

    /// Links a session to a child, which is started if there is none yet.
    pub(super) async fn connect(&self, inbound: Inbound, vacancy: Vacancy) -> Result<Arc<dyn Link>, Failure> {
        if let Some(shared) = &self.shared {
            return Ok(Arc::new(shared.connect(inbound).await?));
        }
        let (handler, observer) = (Arc::new(inbound.clone()), Arc::clone(&inbound.observer));
        let child = self.children.start(vacancy, handler, observer).await?;
        Ok(Arc::new(OwnLink::new(inbound, child)))
    }

    /// Ends the shared child, if there is one, and waits until every child is gone.
    pub(super) async fn ended(&self) {
        if let Some(shared) = &self.shared {
            shared.stop();
        }
        self.children.roster.ended().await;
    }

    /// Returns how the last child to end has ended.
    pub(super) fn exit_status(&self) -> Option<ExitStatus> {
        *self.children.roster.last_status.lock()
    }

    /// Kills every child and all that it has started, at once.
    pub(super) fn kill(&self) {
        self.children.roster.kill();
    }
}
