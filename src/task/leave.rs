//! The calls that a process leaves to the next one when it stops, where the store keeps them.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::{
    Engine,
    calls::{Stage, Stop},
};

/// How long calls may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

impl Engine {
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

    async fn leave(&self, stage: Stage) -> usize {
        if !self.outlives_process() {
            return 0;
        }
        let calls = self.calls.at(stage);
        let stop = |id| {
            let running = self.calls.take(id, false)?;
            self.desk.end(id);
            let (left, stopped) = oneshot::channel();
            // A call that has ended by itself has dropped the receiver.
            let _ = running.stop.send(Stop::Leave(left));
            Some(stopped)
        };
        let stopped: Vec<_> = calls.into_iter().filter_map(stop).collect();
        let count = stopped.len();
        let _ = tokio::time::timeout(STOP_TIMEOUT, join_all(stopped)).await;
        count
    }
}
