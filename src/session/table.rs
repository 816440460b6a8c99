//! The sessions that are open.

use std::{collections::HashMap, fmt, future::Future, sync::Arc, time::Duration};

use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Session;
use crate::{
    identity::Owner,
    observe::{Observer, events},
};

/// Every open session by its id.
#[derive(Debug)]
pub struct Sessions {
    table: RwLock<Table>,
    max: usize,
    max_per_owner: usize,
    /// No more are let in.
    refusing: CancellationToken,
    /// All of them end.
    closing: CancellationToken,
    observer: Arc<Observer>,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<Uuid, Arc<Session>>,
    /// Handshakes under way, each of which may become a session.
    opening: usize,
    /// How many of both each principal has.
    owners: HashMap<Owner, usize>,
    /// The process stops, and no more are let in.
    closed: bool,
}

/// No session, or no stream of one, can be opened.
#[derive(Debug)]
pub enum Full {
    /// As many are open, or being opened, as may be.
    Limit(usize),
    /// As many of this principal are.
    OfOwner(usize),
    /// As many requests of this session are being answered as may, each of which may need a stream.
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
    /// The limit in a word, for metrics.
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

/// Room for one session, given back when dropped.
#[derive(Debug)]
pub struct Room<'a> {
    sessions: &'a Sessions,
    /// The principal that it is counted for, until a session is.
    owner: Option<Owner>,
}

impl Room<'_> {
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

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut table = self.sessions.table.write();
        table.opening -= 1;
        if let Some(owner) = &self.owner {
            table.one_less(owner);
        }
    }
}

impl Table {
    fn one_less(&mut self, owner: &Owner) {
        if let Some(count) = self.owners.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(owner);
            }
        }
    }
}

impl Sessions {
    /// Room for `max` sessions, `max_per_owner` of one principal.
    #[must_use]
    pub fn new(max: usize, max_per_owner: usize, observer: Arc<Observer>) -> Self {
        let (refusing, closing) = (CancellationToken::new(), CancellationToken::new());
        Self { table: RwLock::default(), max, max_per_owner, refusing, closing, observer }
    }

    /// Whether a stream may be opened that is to become a session, where `open` are, `own` of them of one principal.
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
        if open >= self.max {
            return Err(Full::Limit(self.max));
        }
        if own >= self.max_per_owner { Err(Full::OfOwner(self.max_per_owner)) } else { Ok(()) }
    }

    /// Takes room for a session of a principal, or of nobody, before anything is done for it.
    ///
    /// # Errors
    /// [`Full`]
    pub fn room(&self, upstream: usize, principal: Option<&Arc<str>>) -> Result<Room<'_>, Full> {
        let owner = principal.map(|name| Owner::Principal { upstream, name: Arc::clone(name) });
        let mut table = self.table.write();
        if table.closed {
            return Err(Full::Stopping);
        }
        let own = owner.as_ref().and_then(|owner| table.owners.get(owner)).copied().unwrap_or(0);
        self.has_room(table.open.len() + table.opening, own)?;
        table.opening += 1;
        if let Some(owner) = &owner {
            table.owners.insert(owner.clone(), own + 1);
        }
        Ok(Room { sessions: self, owner })
    }

    /// Lets no more sessions in, and gives up the handshakes under way.
    pub fn refuse(&self) {
        self.table.write().closed = true;
        self.refusing.cancel();
    }

    /// Lets no more sessions in, and returns those that are open, to be ended.
    pub fn close(&self) -> Vec<Arc<Session>> {
        self.refuse();
        self.closing.cancel();
        self.all()
    }

    /// Resolves when all sessions end.
    pub async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// Runs a handshake, unless the process stops first.
    pub async fn unless_refused<F: Future>(&self, handshake: F) -> Option<F::Output> {
        self.refusing.run_until_cancelled(handshake).await
    }

    /// The session of that id.
    #[must_use]
    pub fn get(&self, id: Uuid) -> Option<Arc<Session>> {
        self.table.read().open.get(&id).cloned()
    }

    /// Takes a session out, to be ended. `None` if somebody else did so before.
    pub fn take(&self, id: Uuid, reason: &'static str) -> Option<Arc<Session>> {
        let session = {
            let mut table = self.table.write();
            let session = table.open.remove(&id)?;
            table.one_less(&session.owner);
            session
        };
        self.observer.emit(events::SessionEnded { reason });
        Some(session)
    }

    /// The sessions that have not been used for `idle` or more.
    #[must_use]
    pub fn idle(&self, idle: Duration) -> Vec<Arc<Session>> {
        self.table.read().open.values().filter(|session| session.idle() >= idle).cloned().collect()
    }

    /// Every open session.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.table.read().open.values().cloned().collect()
    }
}
