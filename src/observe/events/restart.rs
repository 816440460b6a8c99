//! What happens to sessions and tasks when the process stops, and when it starts again.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::observe::{Event, Metrics, Who};

/// The process stops, and waits for the running tasks.
#[derive(Debug)]
pub struct Draining {
    /// How many run.
    pub tasks: usize,
    /// How long they may still run.
    pub timeout: Duration,
}

impl Event for Draining {
    fn tell(&self, _metrics: &Metrics) {
        let until = SystemTime::now().checked_add(self.timeout).map(humantime::format_rfc3339_seconds);
        let until = until.map(|until| until.to_string());
        tracing::info!(tasks = self.tasks, until, "draining: running tasks go on; a second signal ends them");
    }
}

/// The process no longer waits for tasks.
#[derive(Debug)]
pub struct Drained {
    /// How many still ran, and have failed now.
    pub failed: usize,
    /// How many ended without their owners being told.
    pub untold: usize,
    /// How many go on in the next process.
    pub left: usize,
    /// How many have ended, or changed otherwise, without the store having taken it so far.
    pub untaken: usize,
    /// Whether tasks outlive the process, so that the next one tells how they have ended.
    pub outlive: bool,
}

impl Event for Drained {
    fn tell(&self, _metrics: &Metrics) {
        let Self { failed, untold, left, untaken, outlive } = self;
        if *untaken > 0 {
            tracing::warn!(
                failed,
                untold,
                left,
                untaken,
                "drained, but the store has not taken the last change of the tasks that \"untaken\" counts"
            );
        } else if *left > 0 {
            tracing::info!(failed, untold, left, "drained: the next process goes on with the tasks that are left");
        } else if *failed == 0 && *untold == 0 {
            tracing::info!("drained: every task has ended, and its owner has been told");
        } else if *failed == 0 && *outlive {
            tracing::info!(
                untold,
                "drained: every task has ended; \"untold\" counts those whose owners hear of it from the next process"
            );
        } else if *outlive {
            tracing::warn!(
                failed,
                untold,
                "drain_timeout is over: \"failed\" counts tasks that still ran, \"untold\" those whose owners hear of the end from the next process"
            );
        } else {
            tracing::warn!(
                failed,
                untold,
                "drain_timeout is over: \"failed\" counts tasks that still ran, \"untold\" those whose owners do not know how they ended"
            );
        }
    }
}

/// The process ends, and the store has not taken what has become of some tasks.
#[derive(Debug)]
pub struct ChangesLost {
    /// How many tasks.
    pub tasks: usize,
}

impl Event for ChangesLost {
    fn tell(&self, _metrics: &Metrics) {
        let tasks = self.tasks;
        tracing::error!(
            tasks,
            "the store has not taken the last change of these tasks in time: the next start may find them as they were before"
        );
    }
}

/// A task goes on that an earlier process has left.
#[derive(Debug)]
pub struct TaskRestored<'a> {
    /// The session that created it, and its owner.
    pub who: &'a Who,
    /// Its id.
    pub task: Uuid,
    /// The tool that it calls.
    pub tool: &'a str,
    /// Whether it waits for its turn.
    pub queued: bool,
}

impl Event for TaskRestored<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.tasks_live.inc();
        if self.queued {
            metrics.tasks_queued.inc();
        }
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::debug!(task = %self.task, session, upstream, tool = self.tool, queued = self.queued, "task restored");
    }
}

/// A session goes on that an earlier process has kept.
#[derive(Debug)]
pub struct SessionRestored<'a> {
    /// The session, and its owner.
    pub who: &'a Who,
}

impl Event for SessionRestored<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.sessions.inc();
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::debug!(session, upstream, "session restored");
    }
}
