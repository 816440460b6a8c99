//! How everything ends when the process stops: first the tasks in their own time, then what is left.

use std::{collections::HashSet, sync::Arc, time::Duration};

use super::Lifecycle;
use crate::{identity::Owner, observe::events, upstream::Upstream};

/// How long clients have to learn of tasks that `drain_timeout` has failed: about one and a half of the usual poll
/// intervals. The store has as long for ends that it is writing.
const LAST_CHANCE: Duration = Duration::from_secs(3);
/// How long upstreams may take to end: more than a child gets.
const END_TIMEOUT: Duration = Duration::from_secs(10);

impl Lifecycle {
    /// Lets no more sessions and tasks in, and leaves what waits to the next process where that finds it. Waits until
    /// the tasks that run have ended and their owners know how, for `limit` at most. What still runs then is left where
    /// its answer can be resumed, and fails elsewhere. Everything else is served meanwhile.
    pub async fn drain(&self, limit: Duration) {
        self.sessions.refuse();
        self.engine.close();
        let mut left = self.engine.leave_waiting().await;
        // Those that are left run no more.
        let running = self.engine.close();
        if running.is_empty() && left == 0 {
            return;
        }
        self.observer.emit(events::Draining { tasks: running.len(), timeout: limit });
        let running: HashSet<Owner> = running.into_iter().collect();
        for session in self.sessions.all() {
            // The others may be asked something by their tasks.
            if !running.contains(&session.caller.owner) {
                session.send_away();
            }
        }
        let mut failed = 0;
        if tokio::time::timeout(limit, self.settled()).await.is_err() {
            let timeout = humantime::format_duration(limit);
            let why = format!("server.drain_timeout = {timeout} is over: taskgate is stopping and has ended the call");
            left += self.engine.leave_resumable().await;
            failed = self.engine.fail_all(&why).await;
            if failed > 0 || self.engine.owners_to_tell().is_none() {
                let _ = tokio::time::timeout(LAST_CHANCE, self.settled()).await;
            }
        }
        let untold = self.engine.owners_to_tell().map_or(0, |owed| owed.len());
        let (untaken, outlive) = (self.engine.untaken(), self.engine.outlives_process());
        self.observer.emit(events::Drained { failed, untold, left, untaken, outlive });
    }

    /// Waits until no task runs, and every owner with a session, or whose client polls without one, knows how its tasks
    /// have ended, unless tasks outlive the process.
    async fn settled(&self) {
        loop {
            if let Some(owed) = self.engine.owners_to_tell() {
                if self.engine.outlives_process() {
                    // The next process tells them.
                    return;
                }
                let polled = owed.iter().any(|owed| owed.polls);
                let owed: HashSet<Owner> = owed.into_iter().map(|owed| owed.owner).collect();
                if !polled && !self.sessions.all().iter().any(|session| owed.contains(&session.caller.owner)) {
                    return;
                }
            }
            self.engine.changed().await;
        }
    }

    /// Ends every call and session. Clients that wait are told why; tasks can be asked for while there is a connection
    /// to ask on.
    pub async fn end_all(&self) {
        let sessions = self.sessions.close();
        self.engine.leave_waiting().await;
        self.engine.leave_resumable().await;
        self.engine.fail_all("taskgate is stopping and has ended the call").await;
        self.engine.report_untaken();
        self.engine.stop_watches();
        for session in sessions {
            self.sessions.take(session.id, "shutdown");
            session.shut_down();
        }
    }
}

/// Waits until the upstreams' sides of the ended sessions have ended too, for [`END_TIMEOUT`] at most.
pub(in crate::gate) async fn upstreams_ended(upstreams: &[Arc<Upstream>]) {
    let ended = async {
        for upstream in upstreams {
            upstream.pool.close();
        }
        for upstream in upstreams {
            upstream.server.ended().await;
        }
    };
    if tokio::time::timeout(END_TIMEOUT, ended).await.is_err() {
        tracing::warn!("some upstreams did not end in time");
    }
}
