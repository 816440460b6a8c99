//! Calls that have asked and wait for the retry that answers ("Multi Round-Trip Requests"): bounded, and found once.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{ClientRequest, pieces::PieceWriter};
use crate::{
    flow::Tally,
    identity::Owner,
    observe::{Observer, events},
};

/// How many calls of one owner may be parked.
const MAX_PER_OWNER: usize = 256;
/// How many calls may be parked in all.
const MAX: usize = 4096;

/// What goes on with a parked call.
#[derive(Debug)]
pub(super) struct Retry {
    /// The request that answers, which counts as in flight with its answers, instead of the one before.
    pub(super) request: ClientRequest,
    /// The raw answers by the key of their question.
    pub(super) answers: HashMap<String, String>,
    /// Its raw progress token.
    pub(super) progress_token: Option<Box<str>>,
    /// Where its answer goes.
    pub(super) to: PieceWriter,
}

/// The parked calls.
#[derive(Debug, Default)]
pub(super) struct Parking {
    places: Mutex<Places>,
    observer: Arc<Observer>,
}

#[derive(Debug, Default)]
struct Places {
    calls: HashMap<Uuid, oneshot::Sender<Retry>>,
    owners: Tally<Owner>,
}

/// The place of one call, which is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    parking: Arc<Parking>,
    owner: Owner,
    call: Uuid,
}

impl Parking {
    pub(super) fn new(observer: &Arc<Observer>) -> Arc<Self> {
        Arc::new(Self { places: Mutex::default(), observer: Arc::clone(observer) })
    }

    /// Parks a call. Returns its place and what resolves with the retry; `None` where there is no room.
    pub(super) fn park(self: &Arc<Self>, owner: &Owner) -> Option<(Place, oneshot::Receiver<Retry>)> {
        let mut places = self.places.lock();
        if places.calls.len() >= MAX || places.owners.of(owner) >= MAX_PER_OWNER {
            return None;
        }
        let (call, (retry, retried)) = (Uuid::new_v4(), oneshot::channel());
        places.owners.add(owner, 1);
        places.calls.insert(call, retry);
        self.observer.emit(events::CallParked);
        Some((Place { parking: Arc::clone(self), owner: owner.clone(), call }, retried))
    }

    /// Returns where the retry of a parked call goes, once.
    pub(super) fn take(&self, call: Uuid) -> Option<oneshot::Sender<Retry>> {
        self.places.lock().calls.remove(&call)
    }
}

impl Place {
    /// Returns the id of the parked call.
    pub(super) fn call(&self) -> Uuid {
        self.call
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.parking.places.lock();
        places.calls.remove(&self.call);
        places.owners.take(&self.owner, 1);
        self.parking.observer.emit(events::CallUnparked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_a_bounded_number_of_parked_calls_each_of_which_is_found_once() {
        let (parking, owner) = (Arc::<Parking>::default(), Owner::Anyone { upstream: "/mcp".into() });
        let parked: Vec<_> = (0..MAX_PER_OWNER).map(|_| parking.park(&owner).expect("room")).collect();
        assert!(parking.park(&owner).is_none());
        let call = parked[0].0.call();
        assert!(parking.take(call).is_some());
        assert!(parking.take(call).is_none());
        drop(parked);
        assert!(parking.park(&owner).is_some());
        assert!(parking.places.lock().owners.is_empty());
    }
}
