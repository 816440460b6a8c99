//! How often each owner may do what: token buckets, and how look-ups of unknown ids are slowed and refused.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use governor::{
    Quota, RateLimiter,
    clock::DefaultClock,
    middleware::StateInformationMiddleware,
    state::{InMemoryState, NotKeyed},
};
use hashlink::LruCache;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::count::Counter;
use crate::{
    config::{Rate, Rates},
    identity::{Owner, OwnerKind},
    observe::Who,
};

/// How long an answer to a failed look-up is held back once there are too many of them.
const SLOWED_BY: Duration = Duration::from_secs(1);
/// How many of one owner's answers are held back at once; more are refused.
const MAX_SLOWED: usize = 8;
/// How many principals are remembered: where the upstream should judge tokens, and does not, a client can be as many
/// principals as it likes. The one whose account was asked for longest ago is evicted first. A new session asks for its
/// account, and a connection with requests without a session does once a second. Accounts do not expire by time, since a
/// session may last longer than any.
const MAX_PRINCIPALS: usize = 50_000;

/// An owner that has less than this part of its rate of task methods left is told to poll less often.
const CROWDED: f64 = 0.8;

type Bucket = RateLimiter<NotKeyed, InMemoryState, DefaultClock, StateInformationMiddleware>;

/// The accounts of all owners. A principal's account outlives its sessions.
#[derive(Debug)]
pub struct Accounts {
    rates: Rates,
    principals: Mutex<LruCache<Owner, Arc<Account>>>,
}

/// What is left of one owner's rates.
pub struct Account {
    rates: Rates,
    task_methods: Bucket,
    /// What was left of the task methods when one was counted last.
    left: Mutex<Left>,
    creations: Bucket,
    failed_lookups: Bucket,
    slowed: Arc<Semaphore>,
    /// What its requests in flight take that came in no session.
    pub(super) in_flight: Counter,
    /// How audit lines name the owner's requests that come in no session.
    who: OnceLock<Arc<Who>>,
}

/// What was left of a rate at one moment.
#[derive(Clone, Copy, Debug)]
struct Left {
    count: u32,
    at: Instant,
}

/// What an owner may do only at a limited rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rated {
    /// A task method.
    TaskMethod,
    /// A call as a task.
    Creation,
}

/// An owner has used up a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOften {
    /// The key in `[rate]`.
    pub key: &'static str,
    rate: Rate,
    /// After which time another try may succeed.
    wait: Duration,
}

/// What happens to a look-up of an unknown id.
#[derive(Debug)]
pub enum FailedLookup {
    /// It is answered at once.
    Answered,
    /// Its answer is held back for this time. The permit is kept meanwhile.
    Slowed(Duration, OwnedSemaphorePermit),
    /// It is refused.
    Refused(TooOften),
}

impl FailedLookup {
    /// Returns what happens to a look-up that is one of too many; `None` where it is not.
    #[must_use]
    pub fn repeated(&self) -> Option<&'static str> {
        match self {
            Self::Answered => None,
            Self::Slowed(..) => Some("slowed"),
            Self::Refused(_) => Some("refused"),
        }
    }
}

impl fmt::Display for TooOften {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, rate, .. } = self;
        let period = humantime::format_duration(rate.period);
        let (count, seconds) = (rate.count, self.seconds());
        write!(f, "limit reached: rate.{key} = {count} in {period} is used up; try again in {seconds}s")
    }
}

impl TooOften {
    /// Returns after how many whole seconds another try may succeed, at least one.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.wait.as_secs() + 1
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("rates", &self.rates).finish_non_exhaustive()
    }
}

impl Accounts {
    /// Makes accounts with these rates.
    #[must_use]
    pub fn new(rates: Rates) -> Self {
        Self { rates, principals: Mutex::new(LruCache::new(MAX_PRINCIPALS)) }
    }

    /// Returns the account of an owner: a new one for each session, the same one for all sessions of a principal.
    #[must_use]
    pub fn of(&self, owner: &Owner) -> Arc<Account> {
        let new = || Arc::new(Account::new(self.rates));
        match owner.kind() {
            OwnerKind::Session(_) => new(),
            OwnerKind::Principal { .. } | OwnerKind::Anyone { .. } => {
                let mut principals = self.principals.lock();
                if let Some(account) = principals.get(owner) {
                    return Arc::clone(account);
                }
                let account = new();
                principals.insert(owner.clone(), Arc::clone(&account));
                account
            }
        }
    }
}

impl Account {
    fn new(rates: Rates) -> Self {
        Self {
            rates,
            task_methods: bucket(rates.task_methods),
            left: Mutex::new(Left { count: rates.task_methods.count.get(), at: Instant::now() }),
            creations: bucket(rates.creations),
            failed_lookups: bucket(rates.failed_lookups),
            slowed: Arc::new(Semaphore::new(MAX_SLOWED)),
            in_flight: Counter::default(),
            who: OnceLock::new(),
        }
    }

    /// Returns how audit lines name the owner's requests that come in no session: as `name` says the first time.
    pub fn who(&self, name: impl FnOnce() -> Arc<Who>) -> Arc<Who> {
        Arc::clone(self.who.get_or_init(name))
    }

    /// Counts something that the owner does.
    ///
    /// # Errors
    /// [`TooOften`]
    pub fn count(&self, rated: Rated) -> Result<(), TooOften> {
        match rated {
            Rated::TaskMethod => {
                let left = take(&self.task_methods, "task_methods", self.rates.task_methods);
                *self.left.lock() = Left { count: *left.as_ref().unwrap_or(&0), at: Instant::now() };
                left.map(drop)
            }
            Rated::Creation => take(&self.creations, "creations", self.rates.creations).map(drop),
        }
    }

    /// Returns the factor by which the owner's clients should stretch the time between polls, so that the owner's rate
    /// of task methods is never used up; 1 while most of the rate is left.
    #[must_use]
    pub fn crowding(&self) -> f64 {
        let (Left { count, at }, rate) = (*self.left.lock(), self.rates.task_methods);
        crowding(f64::from(count) / f64::from(rate.count.get()) + at.elapsed().div_duration_f64(rate.period))
    }

    /// Counts a look-up of an unknown id.
    #[must_use]
    pub fn failed_lookup(&self) -> FailedLookup {
        match take(&self.failed_lookups, "failed_lookups", self.rates.failed_lookups) {
            Ok(_) => FailedLookup::Answered,
            Err(too_often) => match Arc::clone(&self.slowed).try_acquire_owned() {
                Ok(permit) => FailedLookup::Slowed(SLOWED_BY, permit),
                Err(_) => FailedLookup::Refused(too_often),
            },
        }
    }
}

fn bucket(rate: Rate) -> Bucket {
    // The shortest interval is a microsecond, so there is always one.
    let quota = Quota::with_period(rate.period / rate.count.get()).unwrap_or(Quota::per_second(rate.count));
    RateLimiter::direct(quota.allow_burst(rate.count)).with_middleware()
}

/// Takes one out of a bucket, and returns how many are left.
fn take(bucket: &Bucket, key: &'static str, rate: Rate) -> Result<u32, TooOften> {
    let taken = bucket.check().map(|left| left.remaining_burst_capacity());
    taken.map_err(|not_until| TooOften { key, rate, wait: not_until.wait_time_from(Instant::now()) })
}

/// Returns [`Account::crowding`] where that part of the rate is left: the less, the faster it grows, so that there is a
/// part at which clients that wait use up no more than what comes back.
fn crowding(left: f64) -> f64 {
    (CROWDED / left.max(0.01)).max(1.0).powi(4)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use uuid::Uuid;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn accounts(count: u32) -> Accounts {
        let rate = Rate { count: NonZeroU32::new(count).expect("not zero"), period: HOUR };
        Accounts::new(Rates { task_methods: rate, creations: rate, failed_lookups: rate })
    }

    fn ann() -> Owner {
        Owner::principal("/mcp".into(), "ann".into())
    }

    #[test]
    fn a_rate_allows_its_count_at_once_and_then_says_how_long_to_wait() {
        let account = accounts(3).of(&ann());
        for _ in 0..3 {
            assert_eq!(account.count(Rated::Creation), Ok(()));
        }
        let refused = account.count(Rated::Creation).expect_err("used up");
        assert!(refused.wait > HOUR / 4 && refused.wait <= HOUR / 3, "{refused:?}");
        let text = refused.to_string();
        assert!(text.starts_with("limit reached: rate.creations = 3 in 1h is used up; try again in 1"), "{text}");
        assert_eq!(account.count(Rated::TaskMethod), Ok(()), "each rate has a bucket of its own");
    }

    #[test]
    fn clients_that_wait_as_long_as_they_are_told_never_use_up_a_rate_that_fewer_tasks_would() {
        // 60 a minute, for 20 tasks that want a poll each half a second: 40 times as many.
        let (mut left, mut due, mut polls) = (60.0_f64, vec![0; 20], 0);
        for millis in (0..600_000_u64).step_by(100) {
            for due in due.iter_mut().filter(|due| **due <= millis) {
                left -= 1.0;
                assert!(left >= 0.0, "refused after {millis} ms");
                let told = Duration::from_millis(500).mul_f64(crowding(left / 60.0)).min(Duration::from_secs(30));
                *due = millis + u64::try_from(told.as_millis()).expect("short");
                polls += 1;
            }
            left = (left + 0.1).min(60.0);
        }
        assert!(polls > 500, "{polls} polls: what the rate allows is used");
    }

    #[test]
    fn an_account_is_crowded_while_most_of_its_rate_is_used_up() {
        let account = accounts(10).of(&ann());
        assert!(account.crowding() <= 1.0);
        let crowded: Vec<f64> = (0..10)
            .map(|_| account.count(Rated::TaskMethod).map(|()| account.crowding()))
            .collect::<Result<_, _>>()
            .expect("ten");
        assert!(crowded.is_sorted() && crowded[1] <= 1.01 && crowded[9] > 100.0, "{crowded:?}");
    }

    #[test]
    fn the_sessions_of_a_principal_share_an_account_and_anonymous_ones_have_their_own() {
        let accounts = accounts(1);
        assert!(Arc::ptr_eq(&accounts.of(&ann()), &accounts.of(&ann())));
        let session = Owner::session(Uuid::new_v4());
        assert!(!Arc::ptr_eq(&accounts.of(&session), &accounts.of(&session)));
    }

    #[test]
    fn accounts_are_bounded_and_those_of_the_last_principals_are_kept() {
        let accounts = accounts(1);
        let recent = accounts.of(&ann());
        for n in 0..2 * MAX_PRINCIPALS {
            let _ = accounts.of(&Owner::principal("/mcp".into(), n.to_string().into()));
            if n % 1000 == 0 {
                assert!(Arc::ptr_eq(&recent, &accounts.of(&ann())), "after {n}");
            }
        }
        assert!(accounts.principals.lock().len() <= MAX_PRINCIPALS);
        assert!(Arc::ptr_eq(&recent, &accounts.of(&ann())));
    }

    #[test]
    fn failed_look_ups_are_answered_then_slowed_then_refused() {
        let account = accounts(2).of(&ann());
        assert!((0..2).all(|_| matches!(account.failed_lookup(), FailedLookup::Answered)));
        let slowed: Vec<_> = (0..MAX_SLOWED).map(|_| account.failed_lookup()).collect();
        assert!(slowed.iter().all(|lookup| matches!(lookup, FailedLookup::Slowed(SLOWED_BY, _))));
        assert!(matches!(account.failed_lookup(), FailedLookup::Refused(_)));
        drop(slowed);
        assert!(matches!(account.failed_lookup(), FailedLookup::Slowed(..)), "slowed again when there is room");
    }
}
