//! How many requests servers work on for callers without sessions, and how many bytes of them taskgate keeps meanwhile.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{count::Count, rates::Account};
use crate::observe::{Observer, events};

/// How many requests of one owner may be in flight.
const MAX_PER_OWNER: usize = 1024;
/// How many may be in flight in all.
const MAX: usize = 8192;
/// How many bytes of one owner's requests may be kept.
const MAX_BYTES_PER_OWNER: usize = 64 * 1024 * 1024;
/// How many bytes may be kept in all.
const MAX_BYTES: usize = 128 * 1024 * 1024;

/// The requests that are in flight. Each owner's count in its [`Account`] and in the total; once the account is
/// forgotten, in the total alone.
#[derive(Debug, Default)]
pub struct InFlight {
    /// Locked before the count of an owner.
    all: Mutex<Count>,
    observer: Arc<Observer>,
}

/// Counts one request as in flight while it lives.
#[derive(Debug)]
pub struct FlightGuard(KeptBytes);

/// Counts bytes of a request, or of a question in the course of it, while it lives.
#[derive(Debug)]
pub struct KeptBytes {
    in_flight: Arc<InFlight>,
    account: Arc<Account>,
    count: Count,
}

impl InFlight {
    /// Starts with no request in flight.
    #[must_use]
    pub fn new(observer: &Arc<Observer>) -> Arc<Self> {
        Arc::new(Self { all: Mutex::default(), observer: Arc::clone(observer) })
    }

    /// Counts one more request of so many bytes, which are kept until it ends.
    ///
    /// # Errors
    /// A sentence that says which limit is reached.
    pub fn begin(self: &Arc<Self>, account: &Arc<Account>, bytes: usize) -> Result<FlightGuard, String> {
        let guard = self.count(account, Count { requests: 1, bytes })?;
        self.observer.emit(events::CallBegun);
        Ok(FlightGuard(guard))
    }

    /// Counts so many bytes more.
    ///
    /// # Errors
    /// A sentence that says which limit is reached.
    pub fn keep(self: &Arc<Self>, account: &Arc<Account>, bytes: usize) -> Result<KeptBytes, String> {
        self.count(account, Count { requests: 0, bytes })
    }

    fn count(self: &Arc<Self>, account: &Arc<Account>, count: Count) -> Result<KeptBytes, String> {
        self.exchange(account, Count::default(), count)?;
        Ok(KeptBytes { in_flight: Arc::clone(self), account: Arc::clone(account), count })
    }

    /// Counts `more` in the place of `less`.
    fn exchange(&self, account: &Account, less: Count, more: Count) -> Result<(), String> {
        let (mut all, mut of_owner) = (self.all.lock(), account.in_flight.lock());
        let (in_all, theirs) = (all.without(less).and(more), of_owner.without(less).and(more));
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
        (*all, *of_owner) = (in_all, theirs);
        Ok(())
    }
}

impl FlightGuard {
    /// Counts a request of so many bytes in the place of this one.
    ///
    /// # Errors
    /// A sentence that says which limit is reached. This one counts on.
    pub fn replace(&mut self, bytes: usize) -> Result<(), String> {
        let KeptBytes { in_flight, account, count } = &mut self.0;
        let instead = Count { requests: 1, bytes };
        in_flight.exchange(account, *count, instead)?;
        *count = instead;
        Ok(())
    }
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        self.0.in_flight.observer.emit(events::CallOver);
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        let (mut all, mut of_owner) = (self.in_flight.all.lock(), self.account.in_flight.lock());
        (*all, *of_owner) = (all.without(self.count), of_owner.without(self.count));
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, time::Duration};

    use super::*;
    use crate::{
        config::{Rate, Rates},
        identity::Owner,
        limit::Accounts,
    };

    fn accounts() -> impl Fn(usize) -> Arc<Account> {
        let rate = Rate { count: NonZeroU32::MIN, period: Duration::from_secs(1) };
        let accounts = Accounts::new(Rates { task_methods: rate, creations: rate, failed_lookups: rate });
        move |name| accounts.of(&Owner::principal("/mcp".into(), name.to_string().into()))
    }

    #[test]
    fn requests_in_flight_are_bounded_for_each_owner_and_in_all() {
        let (in_flight, owner) = (Arc::<InFlight>::default(), accounts());
        let begin = |name: usize| in_flight.begin(&owner(name), 1);
        let mut begun: Vec<_> = (0..MAX_PER_OWNER).map(|_| begin(0).expect("room")).collect();
        assert!(begin(0).is_err_and(|why| why.starts_with("1024 requests of yours")));
        begun.extend((MAX_PER_OWNER..MAX).map(|nth| begin(1 + nth % 100).expect("room")));
        assert!(begin(200).is_err_and(|why| why.starts_with("8192 requests are in flight")));
        drop(begun);
        assert!(begin(0).is_ok());
        assert_eq!((*in_flight.all.lock(), *owner(0).in_flight.lock()), Default::default());
    }

    #[test]
    fn bytes_of_requests_in_flight_are_bounded_for_each_owner_and_in_all() {
        let (in_flight, owner) = (Arc::<InFlight>::default(), accounts());
        let begin = |name| in_flight.begin(&owner(name), MAX_BYTES_PER_OWNER);
        let _first = begin(0).expect("room");
        assert!(begin(0).is_err_and(|why| why.contains("of yours in flight take 64MiB")));
        let _second = begin(1).expect("room");
        assert!(begin(2).is_err_and(|why| why.contains("requests in flight take 128MiB")));
        assert!(in_flight.keep(&owner(2), 1).is_err(), "questions count too");
    }

    #[test]
    fn a_request_takes_the_place_of_another_at_the_limit_and_leaves_it_where_there_is_no_room() {
        let (in_flight, owner) = (Arc::<InFlight>::default(), accounts());
        let mut begun: Vec<_> = (0..MAX_PER_OWNER).map(|_| in_flight.begin(&owner(0), 1).expect("room")).collect();
        let last = begun.last_mut().expect("one of them");
        let room = MAX_BYTES_PER_OWNER - (MAX_PER_OWNER - 1);
        assert!(last.replace(room + 1).is_err_and(|why| why.contains("take 64MiB")));
        last.replace(room).expect("the other has gone");
        drop(begun);
        assert_eq!(*in_flight.all.lock(), Count::default());
    }
}
