//! What the runner of a call has the store keep of it, so that a later process can go on with it.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderMap;

use super::{
    CallSession, Task,
    calls::Stage,
    clock::millis,
    ledger::NotChanged,
    runner::{Runner, Running},
    saved::{CallFacts, CallForm, CallHead, CallNote},
    store::SavedCall,
    ttl,
};
use crate::{
    upstream::{Failure, UpstreamGuard, UpstreamSession},
    wire::Message,
};

impl Runner {
    /// Returns what the store is to keep of a call that waits with this `request`; `None` where the store keeps
    /// nothing.
    pub(super) fn saved_waiting(&self, request: &Message) -> Option<SavedCall> {
        Some(SavedCall(CallForm::write(&self.head()?, Some(request)).into()))
    }

    /// Returns what the store is to keep of a call that was sent so long ago in `session`, or is about to be.
    pub(super) fn saved_sent(&self, ago: Duration, session: Option<&Arc<UpstreamSession>>) -> Option<SavedCall> {
        let mut head = self.head()?;
        head.sent = Some(self.engine.ledger.clock.steady().saturating_sub(millis(ago)));
        head.server = session.map(|session| session.saved());
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
                modern: self.modern,
                seals: store.seals(),
            })
        })
    }

    /// Returns whether the store already has it that a call that has not waited is sent in `session`.
    pub(super) fn is_noted(&self, session: &UpstreamGuard) -> bool {
        let noted = self.session.open();
        !self.engine.outlives_process() || noted.is_some_and(|noted| Arc::ptr_eq(noted.get(), session.get()))
    }

    /// Notes that a call is sent in `session`. Returns whether the task still wants it.
    pub(super) async fn note_sent(&self, session: &UpstreamGuard) -> bool {
        let (engine, owner) = (&self.engine, self.owner());
        // At each try anew, and when it is sent too: the disk may be full for long.
        let sent = |task: &Task| Some(ttl::sent(&self.tool, task, engine.ledger.clock.steady()));
        if !engine.outlives_process() {
            let changed = engine.change(owner, self.id, sent).await;
            return matches!(changed, Ok(Some(_)) | Err(NotChanged::Unavailable(_)));
        }
        if !engine.calls.set_stage(self.id, Stage::Sent) {
            // Left to the next process, which must not find that it was sent, or ended: its runner stops at the next
            // turn.
            return std::future::pending().await;
        }
        let call = || self.saved_sent(Duration::ZERO, Some(session.get()));
        // It waits for the store: sent without that, it could run again in a later process.
        let noted = matches!(engine.change_call(owner, self.id, sent, call).await, Ok(Some(_)));
        if noted && engine.cancelling.lock().contains(&self.id) {
            // Its client has cancelled it, and the runner stops when the store has taken that too.
            return std::future::pending().await;
        }
        noted
    }

    /// Finds out whether a call that an earlier process has not sent can be sent in the session of its client. If that
    /// is gone, the call gets one of the pool.
    ///
    /// # Errors
    /// [`Failure::Unreachable`] where that cannot be found out yet.
    pub(super) async fn find_session(&mut self) -> Result<(), Failure> {
        let CallSession::Own(own) = &self.session else { return Ok(()) };
        if !own.get().is_lost() {
            // The server may have been restarted too, and not know the session any more. The call must not find that
            // out.
            let pinged = own.get().request("ping", "{}", HeaderMap::clone(&self.headers)).await;
            if let Err(unreachable @ Failure::Unreachable(_)) = pinged {
                return Err(unreachable);
            }
        }
        if own.get().is_lost() {
            self.session = CallSession::Later;
        }
        Ok(())
    }

    /// Keeps in the store where the answer to a call can be resumed: at once, and as often as that changes.
    pub(super) fn note_points(&self, running: &Running) -> impl Future<Output = Infallible> + use<> {
        let (store, call) = (Arc::clone(&self.engine.ledger.store), &running.call);
        let saves = store.saves_calls() && running.session.get().outlives_process();
        let mut points = saves.then(|| call.exchange.track(None));
        let (engine, id, number) = (Arc::clone(&self.engine), self.id, call.exchange.number);
        let token = call.progress_token.clone();
        let mut is_noted = false;
        let mut keep = move |point: Option<Bytes>| {
            let note = CallNote::new(number, point.as_ref(), token.as_deref());
            // Most answers never can be resumed.
            is_noted |= note.event.is_some();
            if is_noted {
                engine.calls.set_point(id, note.event.is_some());
                let engine = Arc::downgrade(&engine);
                let written = move || {
                    if let Some(engine) = engine.upgrade() {
                        engine.calls.point_written(id);
                    }
                };
                store.note(id, note.write().into(), Arc::new(written));
            }
        };
        if let Some(points) = &mut points {
            keep(points.borrow_and_update().clone());
        }
        async move {
            if let Some(mut points) = points {
                while points.changed().await.is_ok() {
                    keep(points.borrow_and_update().clone());
                }
            }
            // The exchange has ended.
            std::future::pending().await
        }
    }
}
