//! The sessions of clients: found, lost and ended here, opened in `open.rs`, evicted in `room.rs`. When the process
//! stops, `stop.rs` ends them all.

mod open;
mod restore;
mod room;
mod stop;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use http::HeaderMap;
use uuid::Uuid;

pub(super) use open::NewClient;
pub(super) use stop::upstreams_ended;

use crate::{
    config::UpstreamId,
    disk::{Disk, SessionRemoval},
    flow::Capacity,
    gate::refuse::Refusal,
    identity::{Identity, Owner, OwnerKind, Principal},
    limit::Accounts,
    observe::Observer,
    session::{Full, Session, SessionGuard, Sessions},
    task::{Engine, LastingWork},
};

/// Opens, finds and ends sessions, so that no acknowledged task is lost with one.
#[derive(Debug)]
pub struct Lifecycle {
    /// The open sessions.
    sessions: Arc<Sessions>,
    /// What a new session gets.
    terms: SessionTerms,
    /// The tasks, which may need their session.
    engine: Arc<Engine>,
    observer: Arc<Observer>,
}

/// What a new session gets.
#[derive(Debug)]
pub struct SessionTerms {
    /// What each owner has left of its rates.
    pub accounts: Accounts,
    /// What may wait for readers.
    pub outbox: Arc<Capacity>,
    /// Where sessions are kept for a later process, if they are.
    pub disk: Option<Disk>,
    /// How many streams of one session may answer requests at once.
    pub max_streams: usize,
}

impl Lifecycle {
    /// Returns what may wait for readers.
    pub(super) fn outbox(&self) -> &Arc<Capacity> {
        &self.terms.outbox
    }

    /// Creates the lifecycle of `sessions`.
    #[must_use]
    pub fn new(
        sessions: Arc<Sessions>,
        terms: SessionTerms,
        engine: Arc<Engine>,
        observer: Arc<Observer>,
    ) -> Arc<Self> {
        Arc::new(Self { sessions, terms, engine, observer })
    }

    /// Returns the session that a request names, in use while the request is. A session of another principal, or behind
    /// another path, is as unknown as one that never was.
    pub(in crate::gate) fn find(
        &self,
        id: Uuid,
        upstream: &UpstreamId,
        principal: Option<&Principal>,
    ) -> Result<SessionGuard, Refusal> {
        let is_theirs = |session: &Session| {
            session.caller.upstream.id == *upstream
                && match session.caller.owner.kind() {
                    OwnerKind::Session(_) | OwnerKind::Anyone { .. } => principal.is_none(),
                    OwnerKind::Principal { name, .. } => principal.is_some_and(|principal| principal.name == *name),
                }
        };
        self.sessions.get(id, is_theirs).ok_or_else(|| self.unknown())
    }

    /// Refuses a request in a session that is not found. Once the process has ended all sessions it does not know which
    /// were there: the next one may.
    fn unknown(&self) -> Refusal {
        if self.sessions.are_closing() { Refusal::full(&Full::Stopping) } else { Refusal::unknown_session() }
    }

    /// Ends and removes the tasks of an owner whose client ends with this process, unless the next one has them.
    pub(in crate::gate) async fn end_tasks_with_process(&self, owner: &Owner) {
        if !self.engine.outlives_process() {
            self.engine.end_owner(owner).await;
        }
    }

    /// Returns what each owner has left of its rates.
    pub(in crate::gate) fn accounts(&self) -> &Accounts {
        &self.terms.accounts
    }

    /// Refuses a request in a session whose upstream has ended. The session is over for the client, which starts anew;
    /// but its tasks can still be asked for until their ttl is over, so it is ended here only if it has none.
    pub(in crate::gate) async fn lost(&self, session: &Session) -> Refusal {
        if self.engine.release(session, || true).await {
            drop(self.end(session, HeaderMap::new(), "upstream lost").await);
        }
        Refusal::unknown_session()
    }

    /// Ends a session, and the tasks that belong to it alone. Returns its removal from the file, if it is kept in one;
    /// only after that no later process finds the session.
    pub(in crate::gate) async fn end(
        &self,
        session: &Session,
        headers: HeaderMap,
        reason: &'static str,
    ) -> Option<SessionRemoval> {
        let session = self.sessions.take(session.id, reason)?;
        self.ending(session, headers).await
    }

    /// Ends a session that was taken out, so that no request finds it. It also ends where nothing waits for that.
    fn ending(&self, session: Arc<Session>, headers: HeaderMap) -> LastingWork<Option<SessionRemoval>> {
        let engine = Arc::clone(&self.engine);
        LastingWork::new(async move {
            // First the calls, so that the upstream is told that they are cancelled.
            engine.end_session(&session).await;
            let removal = session.end(headers);
            engine.session_ended(&session);
            removal
        })
    }

    /// Ends a lost session whose client has a new one. Its calls have failed with it; its tasks are those of the new
    /// one.
    pub(in crate::gate) fn replaced(&self, lost: &Session) {
        self.sessions.take(lost.id, "replaced");
        drop(lost.end(HeaderMap::new()));
        self.engine.session_ended(lost);
    }

    /// Waits until a session has ended upstream, and no task in it is left to be asked for.
    pub(in crate::gate) async fn over(&self, session: &Session) {
        session.upstream_session.lost().await;
        loop {
            self.engine.without_tasks(&session.caller.owner).await;
            if self.engine.release(session, || true).await {
                return;
            }
        }
    }

    /// Waits until all sessions end.
    pub(in crate::gate) async fn closing(&self) {
        self.sessions.closing().await;
    }

    /// Ends the sessions that have been idle for `idle`. A session with tasks stays while they are kept: an
    /// acknowledged task is never lost before its ttl is over.
    pub async fn end_idle(&self, idle: Duration) {
        // Side by side, so that one that waits for the store holds up no other.
        join_all(self.sessions.idle(idle).iter().map(|session| self.end_if_idle(session, idle))).await;
    }

    async fn end_if_idle(&self, session: &Session, idle: Duration) {
        let mut taken = None;
        // Looked at and taken out in one step, so that no request finds it in between.
        let mut take = || {
            taken = self.sessions.take_idle(session.id, idle);
            taken.is_some()
        };
        match session.caller.owner.kind() {
            OwnerKind::Session(_) => self.engine.release(session, take).await,
            // Its tasks do not need it.
            OwnerKind::Principal { .. } | OwnerKind::Anyone { .. } => session.refuse_tasks(async { take() }).await,
        };
        if let Some(session) = taken {
            drop(self.ending(session, HeaderMap::new()));
        }
    }

    /// Gives turns to calls that have waited for room in the store. To be called when it may have some again.
    pub fn give_turns(&self) {
        self.engine.give_turns();
    }

    /// Tells the requests that have waited for long that nothing has come yet, so that heartbeats begin, and drops
    /// streams that no client has resumed. Ends the sessions of tokens that the upstream has refused: a refusal is
    /// remembered for a time, and only a new session asks the upstream again. To be called every few seconds.
    pub fn tick(&self, identity: &Identity) {
        for session in self.sessions.all() {
            match session.caller.owner.kind() {
                OwnerKind::Principal { upstream, name } if identity.has_refused(upstream, name) => {
                    if let Some(session) = self.sessions.take(session.id, "token refused") {
                        // Nothing waits for it: the store may be slow, and the heartbeats of all others must go on.
                        drop(self.ending(session, HeaderMap::new()));
                    }
                }
                _ => session.tick(),
            }
        }
    }
}
