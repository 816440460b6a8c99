//! Sessions of clients, as the room that knows them writes them.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::Connection;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Disk, Later, LaterKey, Operation, Place, Unavailable, answer};

/// A saved session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedSession {
    /// Its id.
    pub id: Uuid,
    /// When it was used last, by the time of the file.
    pub used_at: u64,
    /// What else there is of it.
    pub value: Bytes,
}

/// The removal of a session, which goes on whether it is waited for or not.
#[derive(Debug)]
pub struct SessionRemoval(Result<oneshot::Receiver<Result<(), Unavailable>>, Unavailable>);

impl SessionRemoval {
    /// Waits for the first try.
    ///
    /// # Errors
    /// [`Unavailable`] where the session is not removed yet.
    pub async fn tried(self) -> Result<(), Unavailable> {
        answer(&mut self.0?).await?
    }
}

fn later_key(id: Uuid) -> LaterKey {
    LaterKey { kind: "session", row: id.as_u128(), task: None }
}

fn place(id: &Uuid) -> Place<'_> {
    Place { table: "sessions", row: id.as_bytes(), column: "value" }
}

impl Disk {
    /// Saves a session in the place of what was saved of it before.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn put_session(&self, session: SavedSession) -> Result<(), Unavailable> {
        let seals = Arc::clone(self.seals());
        self.write(move |connection| {
            let blob = seals.seal(place(&session.id), &session.value)?;
            let put = "INSERT OR REPLACE INTO sessions (id, used_at, value) VALUES (?1, ?2, ?3)";
            connection.prepare_cached(put)?.execute((session.id.as_bytes(), session.used_at.cast_signed(), blob))?;
            Ok(())
        })
        .await
    }

    /// Notes that a session was used, with a later batch.
    pub fn touch_session(&self, id: Uuid, used_at: u64) {
        let work: Later = Arc::new(move |connection| {
            let touch = "UPDATE sessions SET used_at = max(used_at, ?2) WHERE id = ?1";
            connection.prepare_cached(touch)?.execute((id.as_bytes(), used_at.cast_signed()))?;
            Ok(())
        });
        self.later(later_key(id), work);
    }

    /// Removes a session with the next batch. Where that fails, later batches try it until it is done, in the place of a touch that
    /// waits: a session that has ended must not come back.
    #[must_use]
    pub fn remove_session(&self, id: Uuid) -> SessionRemoval {
        let remove = move |connection: &Connection| {
            connection.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([id.as_bytes()])?;
            Ok(())
        };
        let (told, answered) = oneshot::channel();
        let disk = self.downgrade();
        let done = move |removed: Result<(), Unavailable>| {
            if removed.is_err() {
                disk.later(later_key(id), Arc::new(remove));
            }
            // The caller need not wait.
            let _ = told.send(removed);
        };
        SessionRemoval(match self.submit(Operation::new(remove, done)) {
            Ok(()) => Ok(answered),
            Err(unavailable) => {
                self.later(later_key(id), Arc::new(remove));
                Err(unavailable)
            }
        })
    }

    /// Returns every saved session.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn load_sessions(&self) -> Result<Vec<SavedSession>, Unavailable> {
        let seals = Arc::clone(self.seals());
        self.read_all(move |connection| {
            let mut all = connection.prepare("SELECT id, used_at, value FROM sessions")?;
            let rows = all.query_map((), |row| {
                let (id, used_at): ([u8; 16], i64) = (row.get(0)?, row.get(1)?);
                let id = Uuid::from_bytes(id);
                let value = seals.open(place(&id), row.get_ref(2)?.as_blob()?)?.into();
                Ok(SavedSession { id, used_at: used_at.cast_unsigned(), value })
            })?;
            rows.collect()
        })
        .await
    }
}
