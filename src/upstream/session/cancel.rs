//! The cancellation of a request reaches the server: for a client that cancels its own request (`session/mod.rs`),
//! for one without a session that leaves (`dialect/modern/run.rs`), for a task whose call has to stop
//! (`task/runner.rs`), and for a call that taskgate gives up (both).

use std::{sync::Arc, time::Duration};

use super::{Call, UpstreamSession};
use crate::{
    upstream::Failure,
    wire::{Edits, Message, response::cancelled},
};
use ::http::HeaderMap;

/// How long after a call its cancellation is sent at the earliest. On two connections it could overtake the call, and a
/// server ignores the cancellation of a request that it does not know.
const HEAD_START: Duration = Duration::from_millis(100);
/// How long a server may still answer a request that was cancelled before its connection is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// How long the connection of a call that was cancelled may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

impl UpstreamSession {
    /// Passes on a client's `notifications/cancelled` for request `number`, whose raw id in `message` is `id`, and
    /// gives the request up if the server goes on with it. A request that still waits to be written is taken back, and the
    /// server is told nothing. Returns `None`, and does nothing, where it has been cancelled before.
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
        if self.link.withdraw(number) {
            self.inbound.exchanges.cancel(number);
            return Ok(Some(()));
        }
        if self.inbound.exchanges.cancelling(number) != Some(false) {
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

    /// Cancels a call that no client waits for, and gives it up. The server is told once, and not where it has answered,
    /// with whatever: only what is in progress may be cancelled. A call that still waits to be written is taken back, and
    /// the server is told nothing.
    ///
    /// Returns once nothing carries the call any more, or after a second: the next one, which may have its turn then, must
    /// not meet it.
    pub async fn cancel_call(&self, call: &mut Call, reason: &str, headers: HeaderMap) {
        self.give_up(call, reason, headers).await;
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, call.exchange.gone()).await;
    }

    async fn give_up(&self, call: &mut Call, reason: &str, headers: HeaderMap) {
        let number = call.exchange.number;
        if self.link.withdraw(number) {
            self.inbound.exchanges.cancel(number);
            return call.exchange.set_over();
        }
        // It may still have to be sent.
        call.exchange.detach();
        if call.exchange.is_over() {
            return;
        }
        // Where it is not open, taskgate has given it up, and the server knows nothing of that.
        let was_cancelled = self.inbound.exchanges.cancelling(number).unwrap_or(false);
        // A modern server is told by the end of the stream, or on the same channel.
        if !self.is_modern() {
            tokio::time::sleep_until(call.begun + HEAD_START).await;
        }
        if !was_cancelled && !call.exchange.is_over() {
            let message = cancelled(&number.to_string(), reason);
            // A server that cannot be told will find out when the connection goes.
            let _ = tokio::time::timeout(CANCEL_GRACE, self.link.send(message, headers)).await;
        }
        self.inbound.exchanges.cancel(number);
        call.exchange.set_over();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tokio::time::Instant;

    use super::*;
    use crate::upstream::{CallOptions, MAX_MESSAGE, Purpose};

    fn call(session: &UpstreamSession) -> Call {
        let options = CallOptions {
            purpose: Purpose::Background,
            max_answer: MAX_MESSAGE,
            relay: false,
            native: false,
            wants_progress: false,
        };
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#;
        let request = Message::parse(request.into()).expect("valid");
        session.call(&request, HeaderMap::new(), options).expect("room")
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancellation_is_sent_once_and_some_time_after_its_call_at_the_earliest() {
        let (session, sent) = UpstreamSession::nowhere_counting("/mcp");
        let mut call = call(&session);
        for waits in [HEAD_START, Duration::ZERO] {
            let before = Instant::now();
            session.cancel_call(&mut call, "the client has left", HeaderMap::new()).await;
            assert_eq!((before.elapsed(), sent.load(Ordering::Relaxed)), (waits, 1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_cancelled_only_when_nothing_carries_it_any_more() {
        let session = UpstreamSession::nowhere("/mcp");
        let (mut call, connection) = (call(&session), Arc::new(()));
        let carried = Arc::clone(&connection);
        call.exchange.carry(Some(Box::pin(async move {
            std::future::pending::<()>().await;
            drop(carried);
        })));
        session.cancel_call(&mut call, "its timeout is over", HeaderMap::new()).await;
        assert_eq!(Arc::strong_count(&connection), 1, "its connection is still open");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_cancelled_where_taskgate_gave_it_up_and_not_where_the_server_ended_it() {
        for (failure, told) in [
            (Failure::OwnFault, 1),
            (Failure::ClientTooSlow, 1),
            (Failure::BadAnswer("no JSON".to_owned()), 0),
            (Failure::TooLarge(1), 0),
            (Failure::SessionLost, 0),
        ] {
            let (session, sent) = UpstreamSession::nowhere_counting("/mcp");
            let mut call = call(&session);
            session.inbound.exchanges.end(call.exchange.number, Err(failure.clone()));
            session.cancel_call(&mut call, "the client has left", HeaderMap::new()).await;
            assert_eq!(sent.load(Ordering::Relaxed), told, "{failure}");
        }
    }
}
