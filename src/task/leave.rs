//! The calls that a process leaves to the next one when it stops, where the store keeps them.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::{
    Engine, TaskId,
    calls::{RunningCall, Stage, Stop},
};
use crate::observe::events;

/// How long calls may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

impl Engine {
    /// Returns how many ends and other changes of tasks the store has not taken so far.
    #[must_use]
    pub fn untaken(&self) -> usize {
        self.ledger.untaken()
    }

    /// Reports how many changes the store has not taken, as the process ends now.
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

    async fn leave(&self, stage: Stage) -> usize {
        if !self.outlives_process() {
            return 0;
        }
        // In one step: a call that is sent meanwhile no longer waits.
        let stop = |(id, running): (TaskId, RunningCall)| {
            self.desk.end(id);
            let (left, stopped) = oneshot::channel();
            // A call that has ended by itself has dropped the receiver.
            let _ = running.stop.send(Stop::Leave(left));
            stopped
        };
        let stopped: Vec<_> = self.calls.take_at(stage).into_iter().map(stop).collect();
        let count = stopped.len();
        let _ = tokio::time::timeout(STOP_TIMEOUT, join_all(stopped)).await;
        count
    }
}
