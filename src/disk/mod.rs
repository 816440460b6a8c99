//! One embedded SQLite file: a thread that writes in batches, threads that read, sealing, and what opening it checks.
//!
//! It knows rows and bytes; what they mean is for the rooms above.

mod backup;
mod batch;
mod beside;
mod companions;
mod cut;
mod damage;
mod end;
mod error;
mod failed;
mod keys;
mod locate;
mod mark;
mod open;
mod page_map;
mod passing;
mod queue;
mod reader;
mod rescue;
mod schema;
mod seal;
mod sessions;
mod space;
mod standing;
#[cfg(test)]
mod tests;
mod time;
mod wakes;
mod wal;
mod writer;

use std::{
    path::PathBuf,
    sync::{Arc, Weak},
};

use rusqlite::Connection;
use tokio::sync::oneshot;

pub use backup::backup;
pub use error::{OpenError, Unavailable, is_damage};
pub use open::{OpenOptions, Opened};
pub use passing::{answer, answer_at_last};
pub use queue::{Later, LaterKey, Operation};
pub use rescue::Rescue;
pub use rusqlite;
pub use seal::{Damaged, Place, Seals};
pub use sessions::{SavedSession, SessionRemoval, SessionWrites};

use reader::Readers;
use writer::Writer;

use crate::observe::Observer;

/// An open file. It is closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Disk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    seals: Arc<Seals>,
    readers: Readers,
    /// Dropped after the readers, so that the last connection is the one that writes.
    writer: Writer,
}

/// A reference to a file that does not keep it open, for work that waits in its own queue.
#[derive(Clone, Debug)]
pub struct WeakDisk(Weak<Inner>);

impl WeakDisk {
    /// Submits an operation as [`Disk::submit`] does.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub fn submit(&self, operation: Operation) -> Result<(), Unavailable> {
        let inner = self.0.upgrade().ok_or_else(|| Unavailable("it is closed".into()))?;
        inner.writer.submit(operation)
    }

    /// Writes as [`Disk::later`] does, if the file is open.
    pub fn later(&self, key: LaterKey, work: Later) {
        if let Some(inner) = self.0.upgrade() {
            inner.writer.later(key, work);
        }
    }
}

impl Disk {
    /// Opens or creates the file. This reads what it has to check; call it where waiting is allowed.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(options: &OpenOptions, observer: &Arc<Observer>) -> Result<(Self, Opened), OpenError> {
        let (ready, opened) = open::open(options)?;
        let seals = Arc::new(ready.seals);
        let readers = Readers::start(&ready.path).map_err(|error| OpenError::new(&ready.path, error.to_string()))?;
        let path = ready.path.clone();
        let writer = Writer::start(&path, ready.connection, ready.mark, ready.time, Arc::clone(observer))
            .map_err(|error| OpenError::new(&path, error.to_string()))?;
        Ok((Self(Arc::new(Inner { path, seals, readers, writer })), opened))
    }

    /// Returns why a start cannot go on with what it read, and what to do about it. The file is as it was, but for an
    /// older format, which is the newest one now.
    #[must_use]
    pub fn refusal(&self, why: &str) -> OpenError {
        OpenError::new(self.path(), error::damaged(why))
    }

    /// Returns a reference that does not keep the file open.
    #[must_use]
    pub fn downgrade(&self) -> WeakDisk {
        WeakDisk(Arc::downgrade(&self.0))
    }

    /// Returns what seals and opens blobs.
    #[must_use]
    pub fn seals(&self) -> &Arc<Seals> {
        &self.0.seals
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.0.path
    }

    /// Writes in the next batch, and returns what the operation returned once it is on the disk.
    ///
    /// # Errors
    /// [`Unavailable`]; the operation may still be done.
    pub async fn write<T: Send + 'static>(
        &self,
        operation: impl FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Unavailable> {
        answer(&mut self.begin_write(operation)?).await?
    }

    fn begin_write<T: Send + 'static>(
        &self,
        operation: impl FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Unavailable>>, Unavailable> {
        let (told, answered) = oneshot::channel();
        self.submit(Operation::new(operation, move |result| {
            // The caller may have left.
            let _ = told.send(result);
        }))?;
        Ok(answered)
    }

    /// Puts an operation into the next batch. Its second part is called on the writing thread after the batch is on the
    /// disk, in the order of the operations.
    ///
    /// # Errors
    /// [`Unavailable`] if too much waits; then neither part is called.
    pub fn submit(&self, operation: Operation) -> Result<(), Unavailable> {
        self.0.writer.submit(operation)
    }

    /// Writes with a later batch, soon. Work under the same key that was not done yet is replaced. It is tried until it
    /// is done, or until it meets damage.
    pub fn later(&self, key: LaterKey, work: Later) {
        self.0.writer.later(key, work);
    }

    /// Reads on a thread for that.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Unavailable> {
        answer(&mut self.begin_read(read)?).await?
    }

    /// Reads as [`Disk::read`] does, however long that takes, as a start does.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn read_all<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Unavailable> {
        answer_at_last(&mut self.begin_read(read)?).await?
    }

    fn begin_read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Unavailable>>, Unavailable> {
        let (answer, answered) = oneshot::channel();
        self.0.readers.submit(Box::new(move |connection| {
            // The caller may have left.
            let _ = answer.send(read(connection).map_err(|error| Unavailable::from(&error)));
        }))?;
        Ok(answered)
    }

    /// Writes what waits and closes the file. Returns whether all of it was written, and in time.
    #[must_use]
    pub fn close(&self) -> bool {
        self.0.writer.close()
    }

    /// Returns whether the last batch could be written.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.0.writer.is_available()
    }

    /// Returns the bytes of the file that are in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.0.writer.used_bytes()
    }

    /// Waits until fewer bytes are in use than before, since the last time. Only one may wait.
    pub async fn freed(&self) {
        self.0.writer.freed().await;
    }
}
