//! The requests of one channel that are in flight, and what cancels them.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::wire::{Message, RpcError, excerpt, params::requested};

/// What cancels each request under way, by its raw id.
#[derive(Clone, Default)]
pub(super) struct InFlight(Arc<Mutex<HashMap<Box<str>, CancellationToken>>>);

impl InFlight {
    /// Adds a request. The token is cancelled when the client cancels the request.
    ///
    /// # Errors
    /// A request with this id is open: a cancellation would not say which of both it means.
    pub(super) fn begin(&self, id: &str) -> Result<CancellationToken, RpcError> {
        match self.0.lock().entry(id.into()) {
            Entry::Vacant(free) => Ok(free.insert(CancellationToken::new()).clone()),
            Entry::Occupied(_) => {
                let id = excerpt(id);
                Err(RpcError::invalid_request(format!("Invalid request: a request with the id {id} is still open")))
            }
        }
    }

    /// Removes a request, which has been answered or given up.
    pub(super) fn end(&self, id: &str) {
        self.0.lock().remove(id);
    }

    /// Cancels the request that a `notifications/cancelled` names.
    pub(super) fn cancel(&self, cancelled: &Message) {
        if let Some(token) = requested(cancelled).and_then(|id| self.0.lock().get(id).cloned()) {
            token.cancel();
        }
    }
}
