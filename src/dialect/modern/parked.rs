//! Calls that have asked and wait for the retry that answers ("Multi Round-Trip Requests"): bounded, and found once.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{ClientRequest, Refused, input::check_answers, pieces::PieceWriter};
use crate::{
    flow::Tally,
    identity::Owner,
    limit::FlightGuard,
    observe::{Observer, events},
    wire::Method,
};

/// How many calls of one owner may be parked.
const MAX_PER_OWNER: usize = 256;
/// How many calls may be parked in all.
const MAX: usize = 4096;

/// What goes on with a parked call.
#[derive(Debug)]
pub(super) struct Retry {
    /// The request that answers, which counts as in flight in the place of the one before.
    pub(super) request: Box<ClientRequest>,
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
    calls: HashMap<Uuid, Parked>,
    owners: Tally<Owner>,
    /// How many places are taken.
    all: usize,
}

/// A call that waits for its retry.
#[derive(Debug)]
struct Parked {
    retry: oneshot::Sender<Retry>,
    /// The key and the method of each question that its client was asked.
    asked: Vec<(String, Method)>,
    /// Counts its request as in flight.
    in_flight: Option<FlightGuard>,
}

/// The place of one call, for all that it asks. It is free again when it is dropped.
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

    /// Returns a place for a call; `None` where there is no room.
    pub(super) fn place(self: &Arc<Self>, owner: &Owner) -> Option<Place> {
        let mut places = self.places.lock();
        if places.all >= MAX || places.owners.of(owner) >= MAX_PER_OWNER {
            return None;
        }
        places.owners.add(owner, 1);
        places.all += 1;
        self.observer.emit(events::CallParked);
        Some(Place { parking: Arc::clone(self), owner: owner.clone(), call: Uuid::new_v4() })
    }

    /// Takes out a parked call whose retry has come with these answers, and returns where the retry goes; `None` where
    /// no such call is parked. `admit` gives the retry the place in flight of the call.
    ///
    /// # Errors
    /// -32602 for an answer that is no result of its question's method, and what `admit` says. The call stays parked.
    pub(super) fn take(
        &self,
        call: Uuid,
        answers: &HashMap<String, String>,
        admit: impl FnOnce(&mut Option<FlightGuard>) -> Result<(), Refused>,
    ) -> Result<Option<oneshot::Sender<Retry>>, Refused> {
        let mut places = self.places.lock();
        let Some(parked) = places.calls.get_mut(&call) else { return Ok(None) };
        check_answers(answers, parked.asked.iter().map(|(key, method)| (&**key, *method)))?;
        admit(&mut parked.in_flight)?;
        Ok(places.calls.remove(&call).map(|parked| parked.retry))
    }
}

impl Place {
    /// Parks the call under an id of its own, with the place in flight of its request and what its client is `asked`.
    /// Returns what resolves with the retry.
    pub(super) fn park(
        &mut self,
        in_flight: Option<FlightGuard>,
        asked: Vec<(String, Method)>,
    ) -> oneshot::Receiver<Retry> {
        let (retry, retried) = oneshot::channel();
        self.call = Uuid::new_v4();
        self.parking.places.lock().calls.insert(self.call, Parked { retry, asked, in_flight });
        retried
    }

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
        places.all -= 1;
        self.parking.observer.emit(events::CallUnparked);
    }
}

impl ClientRequest {
    /// Takes over the place in flight of another request.
    pub(super) fn take_place(&mut self, place: &mut Option<FlightGuard>) -> Result<(), Refused> {
        if let Some(guard) = place.as_mut().filter(|_| self.in_flight.is_none()) {
            guard.replace(self.bytes()).map_err(|why| Refused::limit("sessionless_requests", &why))?;
            self.in_flight = place.take();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_a_bounded_number_of_parked_calls_each_of_which_is_found_once() {
        let (parking, owner) = (Arc::<Parking>::default(), Owner::anyone("/mcp".into()));
        let mut places: Vec<_> = (0..MAX_PER_OWNER).map(|_| parking.place(&owner).expect("room")).collect();
        assert!(parking.place(&owner).is_none());
        let _retried = places[0].park(None, Vec::new());
        let taken = || parking.take(places[0].call(), &HashMap::new(), |_| Ok(())).expect("it is admitted");
        assert!(taken().is_some());
        assert!(taken().is_none());
        assert!(parking.place(&owner).is_none(), "it keeps its place for what it asks next");
        drop(places);
        assert!(parking.place(&owner).is_some());
        let places = parking.places.lock();
        assert!(places.owners.is_empty() && places.calls.is_empty() && places.all == 0);
    }

    #[test]
    fn a_call_whose_retry_is_not_admitted_or_has_an_invalid_answer_stays_parked() {
        let (parking, owner) = (Arc::<Parking>::default(), Owner::anyone("/mcp".into()));
        let mut place = parking.place(&owner).expect("room");
        let _retried = place.park(None, vec![("key".to_owned(), Method::ListRoots)]);
        let (call, none) = (place.call(), HashMap::new());
        let with = |key: &str, answer: &str| HashMap::from([(key.to_owned(), answer.to_owned())]);
        assert!(parking.take(call, &none, |_| Err(Refused::invalid_request("no room"))).is_err());
        assert!(parking.take(call, &with("key", "{}"), |_| Ok(())).is_err());
        assert!(parking.take(call, &with("other", "5"), |_| Ok(())).is_ok_and(|retry| retry.is_some()));
    }
}
