//! The children of one command that run, and what is known of those that have ended.

use std::{collections::HashMap, process::ExitStatus, sync::Arc};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::task::TaskTracker;

use super::{backoff::Backoff, strays};
use crate::config::UpstreamId;

/// What the children of one command have in common.
#[derive(Debug)]
pub(super) struct Roster {
    /// The upstream, for the log.
    pub(super) upstream: UpstreamId,
    /// The marks of the children that run, by their groups.
    running: Mutex<HashMap<Group, String>>,
    /// When the next child may start.
    pub(super) backoff: Backoff,
    /// How the last child to end ended; `None` if only a signal ended it.
    pub(super) last_status: Mutex<Option<ExitStatus>>,
    /// The tasks that run while a child does.
    pub(super) tasks: TaskTracker,
}

/// A process group, named by the process that leads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group(pub(super) Pid);

/// A child's entry among those that run, removed when the child has been reaped.
#[derive(Debug)]
pub(super) struct Slot {
    roster: Arc<Roster>,
    /// The group that the child leads.
    pub(super) group: Group,
    /// See [`strays`].
    pub(super) mark: String,
    _permit: OwnedSemaphorePermit,
}

impl Group {
    /// Returns the process id of its leader.
    pub(super) fn pid(self) -> u32 {
        self.0.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal to every process of the group.
    pub(super) fn signal(self, signal: Signal) {
        // The group may have ended by itself.
        let _ = kill_process_group(self.0, signal);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.roster.running.lock().remove(&self.group);
    }
}

impl Roster {
    /// Creates the roster of the command of `upstream`, of which no child runs yet.
    pub(super) fn new(upstream: UpstreamId) -> Arc<Self> {
        let backoff = Backoff::of(upstream.clone());
        let (running, last_status, tasks) = (Mutex::default(), Mutex::default(), TaskTracker::new());
        Arc::new(Self { upstream, running, backoff, last_status, tasks })
    }

    /// Enters a child that has just been started.
    pub(super) fn enter(self: &Arc<Self>, group: Group, mark: String, permit: OwnedSemaphorePermit) -> Slot {
        self.running.lock().insert(group, mark.clone());
        Slot { roster: Arc::clone(self), group, mark, _permit: permit }
    }

    /// Waits until every child is gone.
    pub(super) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Kills every child and all that it has started, without waiting for anything.
    pub(super) fn kill(&self) {
        let (groups, marks): (Vec<_>, Vec<_>) = std::mem::take(&mut *self.running.lock()).into_iter().unzip();
        for group in &groups {
            group.signal(Signal::KILL);
        }
        if !marks.is_empty() {
            strays::kill(&marks);
        }
    }
}
