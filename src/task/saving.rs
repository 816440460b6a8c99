//! What the runner of a call has the store keep of it, so that a later process can go on with it.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    Change,
    calls::Stage,
    clock::millis,
    ledger::NotChanged,
    runner::Runner,
    saved::{CallFacts, CallForm, CallHead, CallNote},
    status_message,
    store::SavedCall,
};
use crate::{upstream::Call, wire::Message};

impl Runner {
    /// Returns what the store is to keep of a call that waits with this `request`; `None` where the store keeps nothing.
    pub(super) fn saved_waiting(&self, request: &Message) -> Option<SavedCall> {
        Some(SavedCall(CallForm::write(&self.head()?, Some(request)).into()))
    }

    /// Returns what the store is to keep of a call that was sent so long ago, or is about to be.
    pub(super) fn saved_sent(&self, ago: Duration) -> Option<SavedCall> {
        let mut head = self.head()?;
        head.sent = Some(self.engine.ledger.clock.steady().saturating_sub(millis(ago)));
        head.server = Some(self.upstream_session.get().saved());
        Some(SavedCall(CallForm::write(&head, None).into()))
    }

    fn head(&self) -> Option<CallHead> {
        let store = &self.engine.ledger.store;
        store.saves_calls().then(|| {
            CallHead::of(&CallFacts {
                upstream: self.caller.upstream.id.as_str(),
                dialect: self.writer.name(),
                announced: self.announced,
                session: self.caller.session,
                who: &self.caller.who,
                client: self.caller.client,
                headers: &self.headers,
                seals: store.seals(),
            })
        })
    }

    /// Notes that a call that has waited is sent. Returns whether the task still wants it.
    pub(super) async fn note_sent(&self) -> bool {
        let (engine, owner) = (&self.engine, self.owner());
        let running = Change::Message(status_message::RUNNING.into());
        let Some(call) = self.saved_sent(Duration::ZERO) else {
            let changed = engine.change(owner, self.id, |_| Some(running.clone())).await;
            return matches!(changed, Ok(Some(_)) | Err(NotChanged::Unavailable(_)));
        };
        engine.calls.set_stage(self.id, Stage::Sent);
        // It waits for the store: sent without that, it could run again in a later process.
        matches!(engine.change_call(owner, self.id, &running, call).await, Ok(Some(_)))
    }

    /// Finds the session for a call that an earlier process has not sent. If the session of its client is gone, that is one
    /// of the pool.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn find_session(&mut self) -> Result<(), String> {
        if !self.upstream_session.get().is_lost() {
            return Ok(());
        }
        let caller = &self.caller;
        let leased = caller.upstream.lease(&caller.owner, caller.client, &self.headers, true).await;
        let leased = leased.map_err(|why| status_message::not_sent(&why.to_string()))?;
        self.upstream_session = leased.guard;
        Ok(())
    }

    /// Keeps in the store where the answer to a call can be resumed, as often as that changes.
    pub(super) fn note_points(&self, call: &Call) -> impl Future<Output = Infallible> + use<> {
        let store = Arc::clone(&self.engine.ledger.store);
        let points = store.saves_calls().then(|| call.exchange.track(None));
        let (engine, id, number) = (Arc::clone(&self.engine), self.id, call.exchange.number);
        let token = call.progress_token.clone();
        async move {
            let Some(mut points) = points else { return std::future::pending().await };
            let (mut resumable, mut is_noted) = (false, false);
            loop {
                let point: Option<Bytes> = points.borrow_and_update().clone();
                let note = CallNote::new(number, point.as_ref(), token.as_deref());
                if note.event.is_some() != resumable {
                    resumable = note.event.is_some();
                    engine.calls.set_stage(id, if resumable { Stage::Resumable } else { Stage::Sent });
                    is_noted |= resumable;
                }
                // Most answers never can be resumed.
                if is_noted {
                    store.note(id, note.write().into());
                }
                if points.changed().await.is_err() {
                    // The exchange has ended.
                    return std::future::pending().await;
                }
            }
        }
    }
}
