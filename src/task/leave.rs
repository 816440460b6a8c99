//! How calls end when the process stops: the next one goes on with them where the store keeps them, and others fail.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use tokio_util::task::TaskTracker;

use super::{
    Engine, TaskId,
    calls::{Stage, Stop},
    engine::TakenOut,
    ledger::NotChanged,
    state::HasEnded,
    status_message,
};
use crate::{
    identity::Owner,
    observe::events::{self, Ended},
};

/// How long the store may take to write the ends of all tasks when the process stops.
const FAIL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long calls may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

impl Engine {
    /// Returns of how many tasks the store has not taken an end, or another change, so far.
    #[must_use]
    pub fn untaken(&self) -> usize {
        self.ledger.untaken()
    }

    /// Reports of how many tasks the store has not taken a change, as the process ends now.
    pub fn report_untaken(&self) {
        let tasks = self.untaken();
        if tasks > 0 {
            self.observer.emit(events::ChangesLost { tasks });
        }
    }

    /// Returns whether tasks outlive the process.
    #[must_use]
    pub fn outlives_process(&self) -> bool {
        self.ledger.store.saves_calls()
    }

    /// Leaves the calls that wait for their turns to the next process, and returns how many there were.
    pub async fn leave_waiting(&self) -> usize {
        self.leave(Stage::Waiting).await
    }

    /// Leaves the calls whose answers can be resumed to the next process, and returns how many there were.
    pub async fn leave_resumable(&self) -> usize {
        self.leave(Stage::Resumable).await
    }

    /// Has the requests that watch tasks answered with what is known, as the process stops.
    pub fn stop_watches(&self) {
        self.wakes.stop();
    }

    /// Fails every task that runs, as the process stops, and returns how many it has failed. Each call stops, also where
    /// the store does not take that in time: then nothing tells the end, which the next process may not find.
    pub async fn fail_all(&self, why: &str) -> usize {
        let (mut running, change) = (self.calls.close(), status_message::failed(why));
        running.retain(|(id, _)| !self.calls.has_ended(*id));
        let failed = AtomicUsize::new(0);
        let fails = |(id, owner): &(TaskId, Owner)| {
            let (id, owner, change, failed) = (*id, owner.clone(), &change, &failed);
            async move {
                let ended = self.change(&owner, id, |_| Some(change.clone())).await;
                if self.take_out_ended(id, change, &ended, Some(why)) {
                    failed.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                let status = match ended {
                    Err(NotChanged::HasEnded(HasEnded(ending))) => ending.into(),
                    Err(NotChanged::Unavailable(_)) => return,
                    Ok(_) => Ended::Expired,
                };
                self.take_out(id, TakenOut::stopped(status, "the task has ended"));
            }
        };
        // The process does not wait for a store that is unavailable.
        let _ = tokio::time::timeout(FAIL_TIMEOUT, join_all(running.iter().map(fails))).await;
        for (id, _) in &running {
            let Some(call) = self.calls.take(*id, false) else { continue };
            self.desk.end(*id);
            // It may have ended meanwhile, and hear nothing.
            let _ = call.stop.send(Stop::Cancel("the process stops", self.stopping.token()));
            self.ledger.count_untaken(*id);
        }
        // Their servers are told, whose sessions may go on in the next process, and those of calls cancelled just before.
        stopped(&self.stopping).await;
        failed.into_inner()
    }

    async fn leave(&self, stage: Stage) -> usize {
        if !self.outlives_process() {
            return 0;
        }
        // In one step: a call that is sent meanwhile no longer waits.
        let calls = self.calls.take_at(stage);
        let (count, stopping) = (calls.len(), TaskTracker::new());
        for (id, running) in calls {
            self.desk.end(id);
            // It may have ended meanwhile, and hear nothing.
            let _ = running.stop.send(Stop::Leave(stopping.token()));
        }
        stopped(&stopping).await;
        count
    }
}

/// Waits until the calls have stopped that were told to, for [`STOP_TIMEOUT`] at most.
async fn stopped(stopping: &TaskTracker) {
    stopping.close();
    let _ = tokio::time::timeout(STOP_TIMEOUT, stopping.wait()).await;
}
