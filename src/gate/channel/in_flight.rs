//! The requests of one channel that are in flight, and what cancels them.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::wire::{
    Message, RpcError, excerpt,
    params::{requested, unescaped},
};

/// What cancels each request under way, by its unescaped id.
#[derive(Clone, Default)]
pub(super) struct InFlight(Arc<Mutex<HashMap<Box<str>, CancellationToken>>>);

impl InFlight {
    /// Adds a request. The token is cancelled when the client cancels the request.
    ///
    /// # Errors
    /// A request with this id is open: a cancellation would not say which of both it means.
    pub(super) fn begin(&self, id: &str) -> Result<CancellationToken, RpcError> {
        match self.0.lock().entry(unescaped(id).into()) {
            Entry::Vacant(free) => Ok(free.insert(CancellationToken::new()).clone()),
            Entry::Occupied(_) => {
                let id = excerpt(id);
                Err(RpcError::invalid_request(format!("Invalid request: a request with the id {id} is still open")))
            }
        }
    }

    /// Removes a request, which has been answered or given up.
    pub(super) fn end(&self, id: &str) {
        self.0.lock().remove(&*unescaped(id));
    }

    /// Cancels the request that a `notifications/cancelled` names.
    pub(super) fn cancel(&self, cancelled: &Message) {
        if let Some(token) = requested(cancelled).and_then(|id| self.0.lock().get(&*unescaped(id)).cloned()) {
            token.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancellation_may_write_the_id_of_its_request_with_other_escapes() {
        let in_flight = InFlight::default();
        for (id, other) in [(r#""caf\u00e9""#, "\"café\""), (r#""a\/\"b""#, r#""a/\u0022b""#)] {
            for (id, other) in [(id, other), (other, id)] {
                let request = in_flight.begin(id).expect("no other");
                assert!(in_flight.begin(other).is_err(), "{id}");
                let params = format!(r#"{{"requestId":{other}}}"#);
                let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#);
                in_flight.cancel(&Message::parse(text.into()).expect("a notification"));
                assert!(request.is_cancelled(), "{id}");
                in_flight.end(other);
            }
        }
    }
}
