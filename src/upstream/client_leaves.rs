//! A client with a session leaves in mid-call: its request goes on to its end, in a task of its own. Without a session
//! the client cannot come back, so its request is cancelled (`dialect/modern/run.rs`).
//!
//! Two other files have the rest. `session/resume.rs` keeps the stream that the client has left, for its return.
//! `task/lasting.rs` finishes what a handler has begun, such as the creation of a task.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use super::{Exchange, Exchanges, exchange::Carried};

/// How often a task that carries an exchange checks whether the exchange has ended. An answer that ends soon after its
/// response frees its connection; one that goes on is given up.
const LINGER: Duration = Duration::from_secs(5);

impl Exchange {
    /// Leaves the work to a task of its own, so that a slow listener does not slow it down.
    pub fn detach(&mut self) {
        let Some(carrier) = self.carrier.take() else { return };
        if let (true, Ok(runtime)) = (self.all.is_open(self.number), Handle::try_current()) {
            let (all, number) = (Arc::clone(&self.all), self.number);
            let detached = runtime.spawn(async move {
                let _carried = Carried { all: &all, number };
                tokio::select! {
                    biased;
                    () = carrier => {}
                    () = all.outlived(number) => {}
                }
            });
            self.all.carried_by(self.number, detached.abort_handle());
            self.detached = Some(detached);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.detach();
    }
}

impl Exchanges {
    /// Resolves some time after an exchange has ended. An answer that came elsewhere, or that goes on after its
    /// response, must not be carried for ever.
    async fn outlived(&self, number: u64) {
        loop {
            tokio::time::sleep(LINGER).await;
            if !self.is_open(number) {
                return;
            }
        }
    }
}
