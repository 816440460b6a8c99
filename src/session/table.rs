//! The sessions that are open.

use std::{collections::HashMap, fmt, future::Future, sync::Arc, time::Duration};

use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Session;
use crate::observe::{Observer, events};

/// Every open session by its id.
#[derive(Debug)]
pub struct Sessions {
    table: RwLock<Table>,
    max: usize,
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
    /// The process stops, and no more are let in.
    closed: bool,
}

/// No session can be opened.
#[derive(Debug)]
pub enum Full {
    /// As many are open, or being opened, as may be.
    Limit(usize),
    /// The process stops.
    Stopping,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(max) => {
                write!(f, "limit reached: server.max_sessions = {max} sessions are open; try again later")
            }
            Self::Stopping => f.write_str("taskgate is stopping; try again when it is back"),
        }
    }
}

/// Room for one session, given back when dropped.
#[derive(Debug)]
pub struct Room<'a>(&'a Sessions);

impl Room<'_> {
    /// Adds the session that the room was taken for.
    ///
    /// # Errors
    /// [`Full::Stopping`]
    pub fn fill(self, session: Arc<Session>) -> Result<(), Full> {
        let mut table = self.0.table.write();
        if table.closed {
            return Err(Full::Stopping);
        }
        table.open.insert(session.id, session);
        Ok(())
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.table.write().opening -= 1;
    }
}

impl Sessions {
    /// Room for `max` sessions.
    #[must_use]
    pub fn new(max: usize, observer: Arc<Observer>) -> Self {
        let (refusing, closing) = (CancellationToken::new(), CancellationToken::new());
        Self { table: RwLock::default(), max, refusing, closing, observer }
    }

    /// Whether a stream may be opened that is to become a session, where `open` are.
    ///
    /// # Errors
    /// [`Full`]
    pub fn check(&self, open: usize) -> Result<(), Full> {
        if self.table.read().closed {
            return Err(Full::Stopping);
        }
        if open >= self.max { Err(Full::Limit(self.max)) } else { Ok(()) }
    }

    /// Takes room for a session, before anything is done for it.
    ///
    /// # Errors
    /// [`Full`]
    pub fn room(&self) -> Result<Room<'_>, Full> {
        let mut table = self.table.write();
        if table.closed {
            return Err(Full::Stopping);
        }
        if table.open.len() + table.opening >= self.max {
            return Err(Full::Limit(self.max));
        }
        table.opening += 1;
        Ok(Room(self))
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
        let session = self.table.write().open.remove(&id)?;
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
