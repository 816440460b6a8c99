//! Sessions of clients, as the room that knows them writes them.

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::{Disk, Later, LaterKey, Place, Unavailable};

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
        self.later(LaterKey { kind: "session", row: id.as_u128(), task: None }, work);
    }

    /// Removes a session.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn remove_session(&self, id: Uuid) -> Result<(), Unavailable> {
        self.write(move |connection| {
            connection.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([id.as_bytes()])?;
            Ok(())
        })
        .await
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
