//! The sessions that are open.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use http::HeaderMap;
use parking_lot::RwLock;
use uuid::Uuid;

use super::Session;
use crate::observe::{Observer, events};

/// Every open session by its id.
#[derive(Debug)]
pub struct Sessions {
    open: RwLock<HashMap<Uuid, Arc<Session>>>,
    max: usize,
    observer: Arc<Observer>,
}

/// As many sessions are open as may be.
#[derive(Debug)]
pub struct Full(pub usize);

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit reached: server.max_sessions = {} sessions are open; try again later", self.0)
    }
}

impl Sessions {
    /// Room for `max` sessions.
    #[must_use]
    pub fn new(max: usize, observer: Arc<Observer>) -> Self {
        Self { open: RwLock::default(), max, observer }
    }

    /// Whether there is room for another session.
    ///
    /// # Errors
    /// [`Full`]
    pub fn room(&self) -> Result<(), Full> {
        if self.open.read().len() < self.max { Ok(()) } else { Err(Full(self.max)) }
    }

    /// Adds a session.
    ///
    /// # Errors
    /// [`Full`]
    pub fn insert(&self, session: Arc<Session>) -> Result<(), Full> {
        let mut open = self.open.write();
        if open.len() >= self.max {
            return Err(Full(self.max));
        }
        open.insert(session.id, session);
        Ok(())
    }

    /// The session of that id.
    #[must_use]
    pub fn get(&self, id: Uuid) -> Option<Arc<Session>> {
        self.open.read().get(&id).cloned()
    }

    /// Takes a session out and ends it. `None` if somebody else did so before.
    pub fn end(&self, id: Uuid, headers: HeaderMap, reason: &'static str) -> Option<Arc<Session>> {
        let session = self.open.write().remove(&id)?;
        session.end(headers);
        self.observer.emit(events::SessionEnded { reason });
        Some(session)
    }

    /// The sessions that have not been used for `idle` or more.
    #[must_use]
    pub fn idle(&self, idle: Duration) -> Vec<Arc<Session>> {
        self.open.read().values().filter(|session| session.idle() >= idle).cloned().collect()
    }

    /// Every open session.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.open.read().values().cloned().collect()
    }
}
