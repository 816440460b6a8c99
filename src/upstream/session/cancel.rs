//! The cancellation of a request reaches the server: for a client that cancels its own request (`src/session/mod.rs`), for one
//! without a session that leaves (`dialect/modern/run.rs`), and for a task whose call has to stop (`task/runner.rs`).

use std::{sync::Arc, time::Duration};

use ::http::HeaderMap;

use super::UpstreamSession;
use crate::{
    upstream::Failure,
    wire::{Edits, Message, response::cancelled},
};

/// How long a server may still answer a request that was cancelled before its connection is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

impl UpstreamSession {
    /// Passes on a client's `notifications/cancelled` for request `number`, whose raw id in `message` is `id`, and gives the
    /// request up if the server goes on with it. Returns `None`, and does nothing, where it has been cancelled before.
    ///
    /// # Errors
    /// [`Failure`] where the server did not take it.
    pub async fn cancel_request(
        self: &Arc<Self>,
        number: u64,
        message: &Message,
        id: &str,
        headers: HeaderMap,
    ) -> Result<Option<()>, Failure> {
        if !self.inbound.exchanges.cancelling(number) {
            return Ok(None);
        }
        let mut edits = Edits::of(message.bytes());
        edits.replace_raw(id, number.to_string());
        // Spawned before the message is sent: this future may be dropped while the server does not take it.
        let session = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(CANCEL_GRACE).await;
            session.inbound.exchanges.cancel(number);
        });
        self.link.send(edits.apply().into_bytes(), headers).await.map(Some)
    }

    /// Cancels a call that no client waits for, and gives it up.
    pub async fn cancel_call(&self, number: u64, reason: &str, headers: HeaderMap) {
        let message = cancelled(&number.to_string(), reason);
        self.inbound.exchanges.cancelling(number);
        // A server that cannot be told will find out when the connection goes.
        let _ = tokio::time::timeout(CANCEL_GRACE, self.link.send(message, headers)).await;
        self.inbound.exchanges.cancel(number);
    }
}
