//! Where sessions are kept beyond the process, and when each is written.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Instant};

use uuid::Uuid;

use super::Session;

/// What an archive answers, when it comes.
pub type ArchiveFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ArchiveUnavailable>> + Send + 'a>>;

/// The archive does not answer now. It may have done what was asked all the same.
#[derive(Clone, Debug)]
pub struct ArchiveUnavailable(pub Arc<str>);

impl fmt::Display for ArchiveUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sessions cannot be kept: {}", self.0)
    }
}

/// Where the written forms of sessions are kept for a later process.
pub trait SessionArchive: fmt::Debug + Send + Sync {
    /// Keeps the form of a session, in place of an earlier one. It is kept once this returns.
    fn put(&self, id: Uuid, form: Vec<u8>) -> ArchiveFuture<'_, ()>;

    /// Removes the form of a session.
    fn remove(&self, id: Uuid) -> ArchiveFuture<'_, ()>;

    /// Returns every form.
    fn load(&self) -> ArchiveFuture<'_, Vec<(Uuid, Vec<u8>)>>;
}

/// When the form of a session was written, and what it says.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenForm {
    at: Instant,
    /// From which number on requests are the later process's.
    next: u64,
}

impl Session {
    /// Writes the session's form, unless the session ends with the process anyway.
    ///
    /// # Errors
    /// [`ArchiveUnavailable`]
    pub async fn save(&self) -> Result<(), ArchiveUnavailable> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let (form, next) = self.form();
        archive.put(self.id, form).await?;
        *self.written.lock() = Some(WrittenForm { at: Instant::now(), next });
        Ok(())
    }

    /// Writes the session's form if it was not written yet.
    ///
    /// # Errors
    /// [`ArchiveUnavailable`]
    pub async fn save_first(&self) -> Result<(), ArchiveUnavailable> {
        if self.written.lock().is_some() { Ok(()) } else { self.save().await }
    }

    /// Returns whether the form has to be written, which says when the session was used as exactly as `refresh`.
    #[must_use]
    pub fn needs_saving(&self, refresh: std::time::Duration) -> bool {
        if self.archive.is_none() || self.has_ended() {
            return false;
        }
        let Some(WrittenForm { at, next }) = *self.written.lock() else { return true };
        self.upstream_session.needs_saving(next) || at.elapsed() >= refresh && self.idle() < at.elapsed()
    }

    /// Returns whether a later process finds the session.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.archive.is_some() && self.written.lock().is_some()
    }

    /// Removes the session's form, in the background.
    pub(super) fn forget(&self) {
        let (Some(archive), Ok(runtime)) = (self.archive.clone(), tokio::runtime::Handle::try_current()) else { return };
        let id = self.id;
        runtime.spawn(async move {
            if let Err(why) = archive.remove(id).await {
                // A later process finds it idle, and ends it.
                tracing::warn!(%why, "a session that has ended stays in the archive");
            }
        });
    }
}
