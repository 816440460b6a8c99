//! Sessions of clients, as the room that knows them writes them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use rusqlite::Connection;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Damaged, Disk, Later, LaterKey, Operation, Place, Seals, Unavailable, answer};

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

/// Counts the writes of one session that the file has taken, or may still take.
#[derive(Clone, Debug, Default)]
pub struct SessionWrites(Arc<AtomicUsize>);

impl SessionWrites {
    /// Returns the count of a session that was read from the file.
    #[must_use]
    pub fn of_saved() -> Self {
        Self(Arc::new(AtomicUsize::new(1)))
    }

    /// Returns whether the file may have the session.
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    fn not_taken(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
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

const TABLE: &str = "sessions";
/// In a sealed file `id` is a code of the id.
const CREATE: &str =
    "CREATE TABLE sessions (id BLOB PRIMARY KEY, used_at INTEGER NOT NULL, value BLOB NOT NULL) STRICT, WITHOUT ROWID;";

fn place(row: &[u8]) -> Place<'_> {
    Place { table: TABLE, row, column: "value" }
}

/// Returns the key of the row of a session. Its id opens the session to anyone who knows it.
fn row_of(seals: &Seals, id: Uuid) -> Vec<u8> {
    seals.row(TABLE, id.as_bytes())
}

/// Returns the row of a session and the blob in it, which has the id where the row does not tell it.
fn written(seals: &Seals, id: Uuid, value: &[u8]) -> rusqlite::Result<(Vec<u8>, Vec<u8>)> {
    let row = row_of(seals, id);
    let in_blob: &[u8] = if seals.seals() { id.as_bytes() } else { &[] };
    let blob = seals.seal(place(&row), &[in_blob, value].concat())?;
    Ok((row, blob))
}

/// Returns the id of a session and what else there is of it, as [`written`] has written them.
fn read(seals: &Seals, row: &[u8], blob: &[u8]) -> Result<(Uuid, Bytes), Damaged> {
    let opened = Bytes::from(seals.open(place(row), blob)?);
    if !seals.seals() {
        return Ok((Uuid::from_slice(row).map_err(|_| Damaged)?, opened));
    }
    let id = opened.first_chunk().ok_or(Damaged)?;
    Ok((Uuid::from_bytes(*id), opened.slice(id.len()..)))
}

/// Writes the sessions of a sealed file anew, which earlier formats have under their ids.
pub(super) fn hide_ids(connection: &Connection, seals: &Seals) -> rusqlite::Result<()> {
    if !seals.seals() {
        return Ok(());
    }
    let mut all = connection.prepare("SELECT id, used_at, value FROM sessions")?;
    let rows = all.query_map((), |row| {
        let (id, used_at): ([u8; 16], i64) = (row.get(0)?, row.get(1)?);
        let value = seals.open(place(&id), row.get_ref(2)?.as_blob()?)?;
        let (row, blob) = written(seals, Uuid::from_bytes(id), &value)?;
        Ok((row, used_at, blob))
    })?;
    let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    drop(all);
    // Nothing of the ids is to stay in the pages that become free.
    connection.execute_batch(&format!("PRAGMA secure_delete = ON; DROP TABLE sessions; {CREATE}"))?;
    let mut insert = connection.prepare("INSERT INTO sessions (id, used_at, value) VALUES (?1, ?2, ?3)")?;
    for row in rows {
        insert.execute(row)?;
    }
    connection.execute_batch("PRAGMA secure_delete = OFF")
}

impl Disk {
    /// Saves a session in the place of what was saved of it before, and counts that among its `writes`.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn put_session(&self, session: SavedSession, writes: SessionWrites) -> Result<(), Unavailable> {
        let seals = Arc::clone(self.seals());
        let put = move |connection: &Connection| {
            let (row, blob) = written(&seals, session.id, &session.value)?;
            let put = "INSERT OR REPLACE INTO sessions (id, used_at, value) VALUES (?1, ?2, ?3)";
            connection.prepare_cached(put)?.execute((row, session.used_at.cast_signed(), blob))?;
            Ok(())
        };
        writes.0.fetch_add(1, Ordering::Relaxed);
        let counted = writes.clone();
        let (told, mut answered) = oneshot::channel();
        let done = move |put: Result<(), Unavailable>| {
            // The caller may have left.
            let _ = told.send(put.inspect_err(|_| counted.not_taken()));
        };
        self.submit(Operation::new(put, done)).inspect_err(|_| writes.not_taken())?;
        answer(&mut answered).await?
    }

    /// Notes that a session was used, with a later batch.
    pub fn touch_session(&self, id: Uuid, used_at: u64) {
        let row = row_of(self.seals(), id);
        let work = Later::new(move |connection| {
            let touch = "UPDATE sessions SET used_at = max(used_at, ?2) WHERE id = ?1";
            connection.prepare_cached(touch)?.execute((&row, used_at.cast_signed()))?;
            Ok(())
        });
        self.later(later_key(id), work);
    }

    /// Removes a session with the next batch. Where that fails, later batches try it until it is done, in the place of
    /// a touch that waits: a session that has ended must not come back.
    #[must_use]
    pub fn remove_session(&self, id: Uuid) -> SessionRemoval {
        let row = Arc::new(row_of(self.seals(), id));
        let remove = move |connection: &Connection| {
            connection.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([&*row])?;
            Ok(())
        };
        let again = remove.clone();
        let (told, answered) = oneshot::channel();
        let disk = self.downgrade();
        let done = move |removed: Result<(), Unavailable>| {
            if removed.is_err() {
                disk.later(later_key(id), Later::new(again));
            }
            // The caller need not wait.
            let _ = told.send(removed);
        };
        SessionRemoval(match self.submit(Operation::new(remove.clone(), done)) {
            Ok(()) => Ok(answered),
            Err(unavailable) => {
                self.later(later_key(id), Later::new(remove));
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
                let (id, value) = read(&seals, row.get_ref(0)?.as_blob()?, row.get_ref(2)?.as_blob()?)?;
                Ok(SavedSession { id, used_at: row.get::<_, i64>(1)?.cast_unsigned(), value })
            })?;
            rows.collect()
        })
        .await
    }
}
