//! The open sessions: how many there may be, and which one gives way to a new one.

use std::{cmp::Reverse, collections::HashMap, fmt, future::Future, sync::Arc, time::Duration};

use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Session, SessionGuard};
use crate::{
    flow::Tally,
    identity::{Owner, OwnerKind},
    observe::{Observer, events},
};

/// Every open session by its id.
#[derive(Debug)]
pub struct Sessions {
    table: RwLock<SessionTable>,
    max: usize,
    max_per_owner: usize,
    /// Cancelled when no more sessions are admitted.
    refusing: CancellationToken,
    /// Cancelled when all sessions end.
    closing: CancellationToken,
    observer: Arc<Observer>,
}

#[derive(Debug, Default)]
struct SessionTable {
    open: HashMap<Uuid, Arc<Session>>,
    /// How many handshakes are under way, each of which may become a session.
    opening: usize,
    /// How many open sessions and handshakes each principal has.
    owners: Tally<Owner>,
    /// Whether the process stops and no more sessions are admitted.
    closed: bool,
}

/// Why no session, or no stream of one, can be opened.
#[derive(Debug)]
pub enum Full {
    /// This many sessions are open, or being opened.
    Limit(usize),
    /// This many sessions of the principal are open, or being opened.
    OfOwner(usize),
    /// This many requests of the session are being answered, each of which may need a stream.
    OfStreams(usize),
    /// The process stops.
    Stopping,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(max) => {
                write!(f, "limit reached: server.max_sessions = {max} sessions are open; try again later")
            }
            Self::OfOwner(max) => {
                let what = "sessions of yours are open; end one, or try again later";
                write!(f, "limit reached: server.max_sessions_per_owner = {max} {what}")
            }
            Self::OfStreams(max) => {
                let what = "requests of this session are being answered; try again when one of them has been";
                write!(f, "limit reached: server.max_streams = {max} {what}")
            }
            Self::Stopping => f.write_str("taskgate is stopping; try again when it is back"),
        }
    }
}

impl Full {
    /// Returns the limit in a word, for metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Limit(_) => "max_sessions",
            Self::OfOwner(_) => "max_sessions_per_owner",
            Self::OfStreams(_) => "max_streams",
            Self::Stopping => "stopping",
        }
    }
}

/// A session that was not in use when it was looked at, and may give way to a new one.
#[derive(Debug)]
pub struct UnusedSession {
    /// The session.
    pub session: Arc<Session>,
    /// How long it has not been used.
    pub silent: Duration,
    last_used: u64,
}

/// Room for one session, given back when dropped.
#[derive(Debug)]
pub struct SessionRoom<'a> {
    sessions: &'a Sessions,
    /// The principal that it counts for, until a session fills it.
    owner: Option<Owner>,
}

impl SessionRoom<'_> {
    /// Adds the session that the room was taken for.
    ///
    /// # Errors
    /// [`Full::Stopping`]
    pub fn fill(mut self, session: Arc<Session>) -> Result<(), Full> {
        let mut table = self.sessions.table.write();
        if table.closed {
            return Err(Full::Stopping);
        }
        self.owner = None;
        table.open.insert(session.id, session);
        Ok(())
    }
}

impl Drop for SessionRoom<'_> {
    fn drop(&mut self) {
        let mut table = self.sessions.table.write();
        table.opening -= 1;
        if let Some(owner) = &self.owner {
            table.owners.take(owner, 1);
        }
    }
}

impl SessionTable {
    /// Takes out a session, unless it was used after it was found unused. Requests find their session, and mark it as
    /// in use, under the same lock.
    fn take_unused(&mut self, unused: &UnusedSession) -> Option<Arc<Session>> {
        let open = self.open.get(&unused.session.id)?;
        if open.upstream_session.unused_since() != Some(unused.last_used) {
            return None;
        }
        self.remove(unused.session.id)
    }

    fn remove(&mut self, id: Uuid) -> Option<Arc<Session>> {
        let session = self.open.remove(&id)?;
        self.owners.take(&session.caller.owner, 1);
        Some(session)
    }

    /// Adds a session without regard to limits.
    fn put_back(&mut self, session: Arc<Session>) {
        if matches!(session.caller.owner.kind(), OwnerKind::Principal { .. }) {
            self.owners.add(&session.caller.owner, 1);
        }
        self.open.insert(session.id, session);
    }
}

impl Sessions {
    /// Returns a table with room for `max` sessions, `max_per_owner` of one principal.
    #[must_use]
    pub fn new(max: usize, max_per_owner: usize, observer: Arc<Observer>) -> Self {
        let (refusing, closing) = (CancellationToken::new(), CancellationToken::new());
        Self { table: RwLock::default(), max, max_per_owner, refusing, closing, observer }
    }

    /// Adds a session that an earlier process has opened, whatever the limits are now.
    pub fn restore(&self, session: Arc<Session>) {
        self.table.write().put_back(session);
    }

    /// Checks that a client on one channel may open a session; `open` are open, `own` of them its principal's.
    ///
    /// # Errors
    /// [`Full`]
    pub fn check(&self, open: usize, own: usize) -> Result<(), Full> {
        if self.table.read().closed {
            return Err(Full::Stopping);
        }
        self.has_room(open, own)
    }

    fn has_room(&self, open: usize, own: usize) -> Result<(), Full> {
        if own >= self.max_per_owner {
            return Err(Full::OfOwner(self.max_per_owner));
        }
        if open >= self.max { Err(Full::Limit(self.max)) } else { Ok(()) }
    }

    /// Takes room for a session, before its handshake. `owner` is `None` for a client without a principal.
    ///
    /// # Errors
    /// [`Full`]
    pub fn room(&self, owner: Option<&Owner>) -> Result<SessionRoom<'_>, Full> {
        self.admit(&mut self.table.write(), owner)
    }

    fn admit(&self, table: &mut SessionTable, owner: Option<&Owner>) -> Result<SessionRoom<'_>, Full> {
        if table.closed {
            return Err(Full::Stopping);
        }
        let own = owner.map_or(0, |owner| table.owners.of(owner));
        self.has_room(table.open.len() + table.opening, own)?;
        table.opening += 1;
        if let Some(owner) = owner {
            table.owners.add(owner, 1);
        }
        Ok(SessionRoom { sessions: self, owner: owner.cloned() })
    }

    /// Returns the sessions that fit and are not in use, the longest silent first.
    #[must_use]
    pub fn unused(&self, fits: impl Fn(&Session) -> bool) -> Vec<UnusedSession> {
        let fitting: Vec<_> = self.table.read().open.values().filter(|session| fits(session)).cloned().collect();
        let unused = fitting.into_iter().filter_map(|session| {
            let (last_used, silent) = (session.upstream_session.unused_since()?, session.idle());
            Some(UnusedSession { session, silent, last_used })
        });
        let mut unused: Vec<_> = unused.collect();
        unused.sort_by_key(|unused| Reverse(unused.silent));
        unused
    }

    /// Evicts an unused session, which the caller has to end. Returns whether it did: the session may be in use again.
    #[must_use]
    pub fn evict(&self, unused: &UnusedSession, limit: &'static str) -> bool {
        let evicted = self.table.write().take_unused(unused).is_some();
        if evicted {
            self.report_evicted(unused, limit);
        }
        evicted
    }

    /// Evicts an unused session as [`Sessions::evict`] does, and takes its room for a new one in the same step.
    #[must_use]
    pub fn replace(
        &self,
        unused: &UnusedSession,
        limit: &'static str,
        owner: Option<&Owner>,
    ) -> Option<SessionRoom<'_>> {
        let mut table = self.table.write();
        let session = table.take_unused(unused)?;
        let Ok(room) = self.admit(&mut table, owner) else {
            table.put_back(session);
            return None;
        };
        drop(table);
        self.report_evicted(unused, limit);
        Some(room)
    }

    fn report_evicted(&self, unused: &UnusedSession, limit: &'static str) {
        self.observer.emit(events::SessionEvicted { limit, silent: unused.silent });
        self.observer.emit(events::SessionEnded { who: &unused.session.caller.who, reason: "gave way" });
    }

    /// Returns whether all sessions end, as the process stops.
    #[must_use]
    pub fn are_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Admits no more sessions, and gives up the handshakes under way.
    pub fn refuse(&self) {
        self.table.write().closed = true;
        self.refusing.cancel();
    }

    /// Admits no more sessions, and returns those that are open, which the caller has to end.
    pub fn close(&self) -> Vec<Arc<Session>> {
        self.refuse();
        self.closing.cancel();
        self.all()
    }

    /// Waits until all sessions end.
    pub async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// Runs a handshake, unless the process stops first.
    pub async fn unless_refused<F: Future>(&self, handshake: F) -> Option<F::Output> {
        self.refusing.run_until_cancelled(handshake).await
    }

    /// Returns the session of that id, in use from here on, if it fits.
    #[must_use]
    pub fn get(&self, id: Uuid, fits: impl Fn(&Session) -> bool) -> Option<SessionGuard> {
        self.table.read().open.get(&id).filter(|session| fits(session)).map(Session::hold)
    }

    /// Takes out a session, which the caller has to end. Returns `None` if it was taken out before.
    pub fn take(&self, id: Uuid, reason: &'static str) -> Option<Arc<Session>> {
        let session = self.table.write().remove(id)?;
        self.observer.emit(events::SessionEnded { who: &session.caller.who, reason });
        Some(session)
    }

    /// Takes out a session that has not been used for `idle` or more, which the caller has to end. Requests find their
    /// session, and mark it as in use, under the same lock.
    pub fn take_idle(&self, id: Uuid, idle: Duration) -> Option<Arc<Session>> {
        let session = {
            let mut table = self.table.write();
            table.open.get(&id).filter(|session| session.idle() >= idle)?;
            table.remove(id)?
        };
        self.observer.emit(events::SessionEnded { who: &session.caller.who, reason: "idle" });
        Some(session)
    }

    /// Returns the sessions that have not been used for `idle` or more.
    #[must_use]
    pub fn idle(&self, idle: Duration) -> Vec<Arc<Session>> {
        self.table.read().open.values().filter(|session| session.idle() >= idle).cloned().collect()
    }

    /// Returns every open session.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.table.read().open.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::alone;

    #[tokio::test(start_paused = true)]
    async fn a_session_that_a_request_has_found_since_it_was_idle_is_not_taken_as_idle() {
        const IDLE: Duration = Duration::from_millis(5);
        let (sessions, session) = (Sessions::new(10, 10, Arc::default()), alone());
        sessions.restore(Arc::clone(&session));
        tokio::time::advance(IDLE).await;
        assert_eq!(sessions.idle(IDLE).len(), 1);
        let request = sessions.get(session.id, |_| true).expect("open");
        assert!(sessions.take_idle(session.id, IDLE).is_none(), "in use");
        drop(request);
        assert!(sessions.take_idle(session.id, IDLE).is_none(), "just used");
        tokio::time::advance(IDLE).await;
        assert!(sessions.take_idle(session.id, IDLE).is_some());
        assert!(sessions.get(session.id, |_| true).is_none());
    }
}
