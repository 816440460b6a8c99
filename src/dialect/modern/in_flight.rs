//! How many requests servers work on for callers without sessions, and how many bytes of them taskgate keeps meanwhile.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::{
    identity::Owner,
    observe::{Observer, events},
};

/// How many requests of one owner may be in flight.
const MAX_PER_OWNER: usize = 1024;
/// How many may be in flight in all.
const MAX: usize = 8192;
/// How many bytes of one owner's requests may be kept.
const MAX_BYTES_PER_OWNER: usize = 64 * 1024 * 1024;
/// How many bytes may be kept in all.
const MAX_BYTES: usize = 128 * 1024 * 1024;

/// The requests that are in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    counts: Mutex<Counts>,
    observer: Arc<Observer>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Owners of whom nothing counts are not in it.
    owners: HashMap<Owner, Count>,
    all: Count,
}

/// What counts against a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    requests: usize,
    bytes: usize,
}

/// Counts one request as in flight while it lives.
#[derive(Debug)]
pub(super) struct FlightGuard(KeptBytes);

/// Counts bytes of a request, or of a question in the course of it, while it lives.
#[derive(Debug)]
pub(super) struct KeptBytes {
    in_flight: Arc<InFlight>,
    owner: Owner,
    count: Count,
}

impl InFlight {
    pub(super) fn new(observer: &Arc<Observer>) -> Arc<Self> {
        Arc::new(Self { counts: Mutex::default(), observer: Arc::clone(observer) })
    }

    /// Counts one more request of so many bytes, which are kept until it ends.
    ///
    /// # Errors
    /// A sentence that says which limit is reached.
    pub(super) fn begin(self: &Arc<Self>, owner: &Owner, bytes: usize) -> Result<FlightGuard, String> {
        let guard = self.count(owner, Count { requests: 1, bytes })?;
        self.observer.emit(events::CallBegun);
        Ok(FlightGuard(guard))
    }

    /// Counts so many bytes more.
    ///
    /// # Errors
    /// A sentence that says which limit is reached.
    pub(super) fn keep(self: &Arc<Self>, owner: &Owner, bytes: usize) -> Result<KeptBytes, String> {
        self.count(owner, Count { requests: 0, bytes })
    }

    fn count(self: &Arc<Self>, owner: &Owner, count: Count) -> Result<KeptBytes, String> {
        self.exchange(owner, Count::default(), count)?;
        Ok(KeptBytes { in_flight: Arc::clone(self), owner: owner.clone(), count })
    }

    /// Counts `more` in the place of `less`.
    fn exchange(&self, owner: &Owner, less: Count, more: Count) -> Result<(), String> {
        let mut counts = self.counts.lock();
        let Counts { owners, all } = &mut *counts;
        let of_owner = owners.get_mut(owner);
        let before = of_owner.as_deref().copied().unwrap_or_default();
        let (in_all, theirs) = (all.without(less).and(more), before.without(less).and(more));
        if theirs.requests > MAX_PER_OWNER {
            return Err(format!("{MAX_PER_OWNER} requests of yours are in flight; wait for some of them to end"));
        }
        if in_all.requests > MAX {
            return Err(format!("{MAX} requests are in flight; try again later"));
        }
        if theirs.bytes > MAX_BYTES_PER_OWNER {
            let limit = MAX_BYTES_PER_OWNER / 1024 / 1024;
            return Err(format!("requests of yours in flight take {limit}MiB; wait for some of them to end"));
        }
        if in_all.bytes > MAX_BYTES {
            return Err(format!("requests in flight take {}MiB; try again later", MAX_BYTES / 1024 / 1024));
        }
        match of_owner {
            Some(before) => *before = theirs,
            None => drop(owners.insert(owner.clone(), theirs)),
        }
        *all = in_all;
        Ok(())
    }
}

impl FlightGuard {
    /// Counts a request of so many bytes in the place of this one.
    ///
    /// # Errors
    /// A sentence that says which limit is reached. This one counts on.
    pub(super) fn replace(&mut self, bytes: usize) -> Result<(), String> {
        let KeptBytes { in_flight, owner, count } = &mut self.0;
        let instead = Count { requests: 1, bytes };
        in_flight.exchange(owner, *count, instead)?;
        *count = instead;
        Ok(())
    }
}

impl Count {
    fn and(self, more: Self) -> Self {
        Self { requests: self.requests + more.requests, bytes: self.bytes + more.bytes }
    }

    fn without(self, less: Self) -> Self {
        Self { requests: self.requests - less.requests, bytes: self.bytes - less.bytes }
    }
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        self.0.in_flight.observer.emit(events::CallOver);
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        let mut counts = self.in_flight.counts.lock();
        counts.all = counts.all.without(self.count);
        let Some(of_owner) = counts.owners.get_mut(&self.owner) else { return };
        *of_owner = of_owner.without(self.count);
        if *of_owner == Count::default() {
            counts.owners.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: usize) -> Owner {
        Owner::Principal { upstream: "/mcp".into(), name: name.to_string().into() }
    }

    #[test]
    fn requests_in_flight_are_bounded_for_each_owner_and_in_all() {
        let in_flight = Arc::<InFlight>::default();
        let begin = |name: usize| in_flight.begin(&owner(name), 1);
        let mut begun: Vec<_> = (0..MAX_PER_OWNER).map(|_| begin(0).expect("room")).collect();
        assert!(begin(0).is_err_and(|why| why.starts_with("1024 requests of yours")));
        begun.extend((MAX_PER_OWNER..MAX).map(|nth| begin(1 + nth % 100).expect("room")));
        assert!(begin(200).is_err_and(|why| why.starts_with("8192 requests are in flight")));
        drop(begun);
        assert!(begin(0).is_ok());
        let counts = in_flight.counts.lock();
        assert!(counts.owners.is_empty() && counts.all == Count::default());
    }

    #[test]
    fn bytes_of_requests_in_flight_are_bounded_for_each_owner_and_in_all() {
        let in_flight = Arc::<InFlight>::default();
        let begin = |name| in_flight.begin(&owner(name), MAX_BYTES_PER_OWNER);
        let _first = begin(0).expect("room");
        assert!(begin(0).is_err_and(|why| why.contains("of yours in flight take 64MiB")));
        let _second = begin(1).expect("room");
        assert!(begin(2).is_err_and(|why| why.contains("requests in flight take 128MiB")));
        assert!(in_flight.keep(&owner(2), 1).is_err(), "questions count too");
    }

    #[test]
    fn a_request_takes_the_place_of_another_at_the_limit_and_leaves_it_where_there_is_no_room() {
        let in_flight = Arc::<InFlight>::default();
        let mut begun: Vec<_> = (0..MAX_PER_OWNER).map(|_| in_flight.begin(&owner(0), 1).expect("room")).collect();
        let last = begun.last_mut().expect("one of them");
        let room = MAX_BYTES_PER_OWNER - (MAX_PER_OWNER - 1);
        assert!(last.replace(room + 1).is_err_and(|why| why.contains("take 64MiB")));
        last.replace(room).expect("the other has gone");
        drop(begun);
        assert_eq!(in_flight.counts.lock().all, Count::default());
    }
}
