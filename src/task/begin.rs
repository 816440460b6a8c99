//! How the call of a task begins: it gets its turn and a session, the store notes that it is sent, and only then it is.
//! Where the server refuses it, as it has forgotten the session, it begins once more.

use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use super::{
    runner::{ENVELOPE, MAX_KEPT, Runner, Running},
    status_message,
};
use crate::{
    limit::{Admission, Permit},
    upstream::{CallOptions, Failure, Purpose, UpstreamGuard},
    wire::Message,
};

/// How long after the start of this process a server may come up for the calls that an earlier one has left.
const COMES_UP_WITHIN: Duration = Duration::from_secs(30);
/// How long the first pause between two tries is, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(2);

impl Runner {
    /// Waits for the turn.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn turn(&self, admission: Admission) -> Result<Permit, String> {
        let permit = match admission {
            Admission::Now(permit) => Some(permit),
            Admission::Queued(waiting) => {
                tokio::time::timeout_at(self.created + self.patience, waiting.turn()).await.ok()
            }
        };
        permit.ok_or_else(|| {
            let full = self.engine.ledger.store.full(self.owner());
            status_message::no_turn(self.patience, self.tool.timeout, full)
        })
    }

    /// Sends the call for the first time. `waited`: its client was told that it waits, or an earlier process has left
    /// it.
    ///
    /// # Errors
    /// [`Failure`] where the call was not sent.
    pub(super) async fn begin(&mut self, request: Message, waited: bool) -> Result<Running, Failure> {
        let opens = self.session.open().is_none();
        let session = self.reach().await?;
        if waited || opens || !self.is_noted(&session) {
            self.note(&session).await?;
        }
        self.send(request, session)
    }

    /// Gets the session to begin in. After a restart the server may come up later than this process, so that it is
    /// tried again for a while: the call was not sent, and the store does not say it was.
    async fn reach(&mut self) -> Result<UpstreamGuard, Failure> {
        let Some(restored) = self.restored else { return self.session_now().await };
        // The ttl has to leave the call its timeout.
        let until = (restored + COMES_UP_WITHIN.min(self.tool.timeout)).min(self.created + self.patience);
        let mut pause = FIRST_PAUSE;
        loop {
            match self.session_now().await {
                Err(Failure::Unreachable(why)) if Instant::now() + pause < until => {
                    tracing::info!(task = %self.id, why, "a call of an earlier process waits for its server");
                }
                reached => return reached,
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }

    async fn session_now(&mut self) -> Result<UpstreamGuard, Failure> {
        if self.restored.is_some() {
            self.find_session().await?;
        }
        self.session.begin(&self.caller, &self.headers, self.modern).await
    }

    /// Sends a call once more, in another session: the server has refused it, as it has forgotten the session, and not
    /// run it.
    ///
    /// # Errors
    /// [`Failure`] where the call was not sent again.
    pub(super) async fn begin_again(&self, running: &mut Running) -> Result<(), Failure> {
        let Some(request) = running.request.take() else { return Err(Failure::SessionLost) };
        if !running.call.exchange.was_refused().await {
            return Err(Failure::SessionLost);
        }
        running.session.vacate();
        let session = self.session.another(&self.caller, &self.headers, self.modern).await?;
        if self.engine.outlives_process() {
            // A later process is to find its answer in this session.
            self.note(&session).await?;
        }
        let again = self.send(request, session)?;
        // Not a third time.
        *running = Running { request: None, ..again };
        Ok(())
    }

    /// Has the store note that the call is sent. A task that has ended meanwhile stays as it is, and its call is not
    /// sent.
    async fn note(&self, session: &UpstreamGuard) -> Result<(), Failure> {
        if self.note_sent(session).await { Ok(()) } else { Err(Failure::Cancelled) }
    }

    /// Sends the call to the server. While it runs, only the message that goes there is kept, and the request where it
    /// may have to be sent again.
    fn send(&self, request: Message, session: UpstreamGuard) -> Result<Running, Failure> {
        let options = CallOptions {
            purpose: Purpose::Background,
            max_answer: self.max_answer(),
            relay: false,
            native: false,
            wants_progress: true,
        };
        let call = session.get().call(&request, HeaderMap::clone(&self.headers), options);
        let call = call.map_err(|error| Failure::Limit(error.message))?;
        let kept = self.session.is_replaced() && request.bytes().len() <= MAX_KEPT;
        Ok(Running { call, session, request: kept.then(|| request.compact()) })
    }

    /// Returns the largest answer to take, in bytes.
    pub(super) fn max_answer(&self) -> usize {
        self.tool.max_result.saturating_add(ENVELOPE)
    }
}
