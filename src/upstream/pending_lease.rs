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

    /// Waits for the lease, and takes it; `None` where it was taken before, or leasing has panicked.
    pub async fn take(&self) -> Option<Result<Lease, NoSession>> {
        let mut pending = self.0.lock().await;
        let leased = pending.as_mut()?.await.ok();
        *pending = None;
        leased
    }
}
