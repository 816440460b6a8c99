//! How many requests servers work on for callers without sessions, and how many bytes of them taskgate keeps meanwhile.

use std::sync::Arc;

use super::{
    count::{Count, Counter, Over},
    rates::Account,
};
use crate::observe::{Observer, events};

const MIB: u32 = 1024 * 1024;

/// How many requests of one owner may be in flight, and how many bytes may be kept of them.
const OF_OWNER: Count = Count { requests: 1024, bytes: 64 * MIB };
/// How many there may be in all.
const IN_ALL: Count = Count { requests: 8192, bytes: 128 * MIB };

/// The requests that are in flight. Each owner's count in its [`Account`] and in the total; once the account is
/// forgotten, in the total alone.
#[derive(Debug, Default)]
pub struct InFlight {
    all: Counter,
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
        Arc::new(Self { all: Counter::default(), observer: Arc::clone(observer) })
    }

    /// Counts one more request of so many bytes, which are kept until it ends.
    ///
    /// # Errors
    /// A sentence that says which limit is reached.
    pub fn begin(self: &Arc<Self>, account: &Arc<Account>, bytes: usize) -> Result<FlightGuard, String> {
        let guard = self.count(account, Count::new(1, bytes))?;
        self.observer.emit(events::CallBegun);
        Ok(FlightGuard(guard))
    }

    /// Counts so many bytes more.
    ///
    /// # Errors
    /// A sentence that says which limit is reached.
    pub fn keep(self: &Arc<Self>, account: &Arc<Account>, bytes: usize) -> Result<KeptBytes, String> {
        self.count(account, Count::new(0, bytes))
    }

    fn count(self: &Arc<Self>, account: &Arc<Account>, count: Count) -> Result<KeptBytes, String> {
        self.exchange(account, Count::default(), count)?;
        Ok(KeptBytes { in_flight: Arc::clone(self), account: Arc::clone(account), count })
    }

    /// Counts `more` in the place of `less`. What is refused in all counts for its owner meanwhile, so that another
    /// request of the owner may be refused too.
    fn exchange(&self, account: &Account, less: Count, more: Count) -> Result<(), String> {
        let of_owner = account.in_flight.try_exchange(less, more, OF_OWNER);
        of_owner.map_err(|over| {
            let Count { requests, bytes } = OF_OWNER;
            match over {
                Over::Requests => format!("{requests} requests of yours are in flight; wait for some of them to end"),
                Over::Bytes => {
                    format!("requests of yours in flight take {}MiB; wait for some of them to end", bytes / MIB)
                }
            }
        })?;
        self.all.try_exchange(less, more, IN_ALL).map_err(|over| {
            // The other way round: it counts for the owner as before. Only what grows is refused in all, so this takes no
            // room that another request may have got.
            account.in_flight.exchange(more, less);
            let Count { requests, bytes } = IN_ALL;
            match over {
                Over::Requests => format!("{requests} requests are in flight; try again later"),
                Over::Bytes => format!("requests in flight take {}MiB; try again later", bytes / MIB),
            }
        })
    }
}

impl FlightGuard {
    /// Counts a request of so many bytes in the place of this one.
    ///
    /// # Errors
    /// A sentence that says which limit is reached. This one counts on.
    pub fn replace(&mut self, bytes: usize) -> Result<(), String> {
        let KeptBytes { in_flight, account, count } = &mut self.0;
        let instead = Count::new(1, bytes);
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
        // The total first: a request that comes in between can only find its own owner's limit reached.
        for counter in [&self.in_flight.all, &self.account.in_flight] {
            counter.exchange(self.count, Count::default());
        }
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

    fn accounts() -> impl Fn(u32) -> Arc<Account> {
        let rate = Rate { count: NonZeroU32::MIN, period: Duration::from_secs(1) };
        let accounts = Accounts::new(Rates { task_methods: rate, creations: rate, failed_lookups: rate });
        move |name: u32| accounts.of(&Owner::principal("/mcp".into(), name.to_string().into()))
    }

    #[test]
    fn requests_in_flight_are_bounded_for_each_owner_and_in_all() {
        let (in_flight, owner) = (Arc::<InFlight>::default(), accounts());
        let begin = |name: u32| in_flight.begin(&owner(name), 1);
        let mut begun: Vec<_> = (0..OF_OWNER.requests).map(|_| begin(0).expect("room")).collect();
        assert!(begin(0).is_err_and(|why| why.starts_with("1024 requests of yours")));
        begun.extend((OF_OWNER.requests..IN_ALL.requests).map(|nth| begin(1 + nth % 100).expect("room")));
        assert!(begin(200).is_err_and(|why| why.starts_with("8192 requests are in flight")));
        drop(begun);
        assert!(begin(0).is_ok());
        assert_eq!((in_flight.all.get(), owner(0).in_flight.get()), Default::default());
    }

    #[test]
    fn bytes_of_requests_in_flight_are_bounded_for_each_owner_and_in_all() {
        let (in_flight, owner) = (Arc::<InFlight>::default(), accounts());
        let begin = |name| in_flight.begin(&owner(name), OF_OWNER.bytes as usize);
        let _first = begin(0).expect("room");
        assert!(begin(0).is_err_and(|why| why.contains("of yours in flight take 64MiB")));
        let _second = begin(1).expect("room");
        assert!(begin(2).is_err_and(|why| why.contains("requests in flight take 128MiB")));
        assert_eq!(owner(2).in_flight.get(), Count::default(), "what is refused in all does not count for its owner");
        assert!(in_flight.keep(&owner(2), 1).is_err(), "questions count too");
    }

    #[test]
    fn what_threads_count_at_once_is_within_the_limits_and_counts_no_longer_in_the_end() {
        const THREADS: u32 = 8;
        let (in_flight, owner) = (Arc::<InFlight>::default(), accounts());
        let mib = |count: u32| (count * MIB) as usize;
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (in_flight, account) = (&in_flight, owner(thread % 3));
                scope.spawn(move || {
                    for nth in 0..5000 {
                        let Ok(mut guard) = in_flight.begin(&account, mib(nth % 40)) else { continue };
                        let _replaced = guard.replace(mib(nth * 7 % 70));
                        let _kept = in_flight.keep(&account, mib(nth * 3 % 50));
                        for (counted, most) in [(in_flight.all.get(), IN_ALL), (account.in_flight.get(), OF_OWNER)] {
                            assert!(counted.bytes <= most.bytes && counted.requests <= THREADS);
                        }
                    }
                });
            }
        });
        assert_eq!(in_flight.all.get(), Count::default());
        assert!((0..3).all(|name| owner(name).in_flight.get() == Count::default()));
    }

    #[test]
    fn a_request_takes_the_place_of_another_at_the_limit_and_leaves_it_where_there_is_no_room() {
        let (in_flight, owner) = (Arc::<InFlight>::default(), accounts());
        let mut begun: Vec<_> = (0..OF_OWNER.requests).map(|_| in_flight.begin(&owner(0), 1).expect("room")).collect();
        let last = begun.last_mut().expect("one of them");
        let room = (OF_OWNER.bytes - (OF_OWNER.requests - 1)) as usize;
        assert!(last.replace(room + 1).is_err_and(|why| why.contains("take 64MiB")));
        last.replace(room).expect("the other has gone");
        drop(begun);
        assert_eq!(in_flight.all.get(), Count::default());
    }
}
