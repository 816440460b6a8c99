//! A session that is being opened for one call, which does not wait for it alone.

use std::{future::Future, sync::Arc};

use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::{Lease, NoSession};

type Leasing = AbortOnDropHandle<Result<Lease, NoSession>>;

/// A lease on its way. It is given up when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct PendingLease(Arc<Mutex<Option<Leasing>>>);

impl PendingLease {
    /// Has `leasing` go on by itself.
    #[must_use]
    pub fn new(leasing: impl Future<Output = Result<Lease, NoSession>> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(AbortOnDropHandle::new(tokio::spawn(leasing))))))
    }

    /// Waits for the lease, and takes it; `None` where it was taken before, leasing has panicked, or what has come of it
    /// in the meantime is no good now: a failure, or a session that is lost.
    pub async fn take(&self) -> Option<Result<Lease, NoSession>> {
        let mut pending = self.0.lock().await;
        let leasing = pending.as_mut()?;
        let waits = !leasing.is_finished();
        let leased = leasing.await.ok();
        *pending = None;
        leased.filter(|leased| leased.as_ref().map_or(waits, |lease| !lease.pooled.session.is_lost()))
    }
}
