//! The requests of one channel that are in flight, and what cancels them.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::wire::{Message, object::Members};

/// What cancels each request under way, by its raw id.
#[derive(Clone, Default)]
pub(super) struct InFlight(Arc<Mutex<HashMap<Box<str>, CancellationToken>>>);

impl InFlight {
    /// Adds a request. The token is cancelled when the client cancels the request.
    pub(super) fn begin(&self, id: &str) -> CancellationToken {
        let token = CancellationToken::new();
        self.0.lock().insert(id.into(), token.clone());
        token
    }

    /// Removes a request, which has been answered or given up.
    pub(super) fn end(&self, id: &str) {
        self.0.lock().remove(id);
    }

    /// Cancels the request that a `notifications/cancelled` names.
    pub(super) fn cancel(&self, cancelled: &Message) {
        let params = cancelled.params().and_then(|params| Members::parse(params).ok());
        if let Some(token) = params.and_then(|params| self.0.lock().remove(params.get("requestId")?)) {
            token.cancel();
        }
    }
}
