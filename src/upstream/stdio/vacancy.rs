//! A place among the children of a command, for one that is about to be started.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::upstream::Failure;

/// How long to wait for a child that ends to make room: longer than any takes.
pub const MAKING_ROOM: Duration = Duration::from_secs(10);

type NextPermit = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>;

/// The place of the next link's child. A link without a child of its own needs none.
#[derive(Default)]
pub struct Vacancy(VacancyState);

#[derive(Default)]
enum VacancyState {
    #[default]
    NotNeeded,
    Taken(OwnedSemaphorePermit),
    /// The place that becomes free next, and why there is none now.
    Next(NextPermit, Failure),
}

impl fmt::Debug for Vacancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Vacancy").field(&self.lacking().is_some()).finish()
    }
}

impl Vacancy {
    /// Takes one of `slots`, or queues for the next one that becomes free. `full` says why there is none.
    pub(super) fn among(slots: &Arc<Semaphore>, full: impl FnOnce() -> Failure) -> Self {
        // The poll below may be deferred although a place is free. Then no session should have to make room.
        if let Ok(permit) = Arc::clone(slots).try_acquire_owned() {
            return Self(VacancyState::Taken(permit));
        }
        let mut waiting: NextPermit = Box::pin(Arc::clone(slots).acquire_owned());
        // Polled once, it has its place in the queue before another session makes room.
        match (&mut waiting).now_or_never() {
            Some(Ok(permit)) => Self(VacancyState::Taken(permit)),
            Some(Err(_)) | None => Self(VacancyState::Next(waiting, full())),
        }
    }

    /// Returns why no place is free; `None` if one is.
    #[must_use]
    pub fn lacking(&self) -> Option<&Failure> {
        match &self.0 {
            VacancyState::Next(_, full) => Some(full),
            VacancyState::NotNeeded | VacancyState::Taken(_) => None,
        }
    }

    /// Waits for the place, for ever if none becomes free.
    pub async fn filled(&mut self) {
        if let VacancyState::Next(waiting, _) = &mut self.0 {
            match waiting.await {
                Ok(permit) => self.0 = VacancyState::Taken(permit),
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Waits for the place, up to the time that a child may take to end.
    pub(super) async fn taken(self) -> Result<OwnedSemaphorePermit, Failure> {
        match self.0 {
            VacancyState::NotNeeded => Err(Failure::Limit("no place was taken for this process".to_owned())),
            VacancyState::Taken(permit) => Ok(permit),
            VacancyState::Next(waiting, full) => match timeout(MAKING_ROOM, waiting).await {
                Ok(Ok(permit)) => Ok(permit),
                Ok(Err(_)) | Err(_) => Err(full),
            },
        }
    }
}
