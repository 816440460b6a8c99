//! A session of the pool, and its use by one call.

use std::{sync::Arc, time::Duration};

use ::http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::{Generation, opening::ServerFacts, resources::Resources, room::Room};
use crate::{
    config::UpstreamId,
    observe::{Observer, events},
    upstream::{Kept, UpstreamGuard, UpstreamSession},
    wire::{
        LogLevel, Message,
        message::Outcome,
        object::{Members, quote},
    },
};

/// How many notifications of a server a subscriber may be behind before it misses some.
const BEHIND: usize = 256;

/// How long a subscription waits for its server to take it.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call waits for its server to take a level of log messages.
const LEVEL_TIMEOUT: Duration = Duration::from_secs(1);

/// A session of the pool.
#[derive(Debug)]
pub struct Pooled {
    /// The session.
    pub session: Arc<UpstreamSession>,
    /// What its server said of itself.
    pub facts: ServerFacts,
    /// The generation of its server.
    pub generation: Generation,
    /// What the server tells that belongs to no call.
    pub(super) changes: broadcast::Sender<Message>,
    /// The resources that the server is to tell of.
    resources: Resources,
    /// From which level on the server logs, as far as taskgate has told it. The lock is held while it is told.
    logs_from: tokio::sync::Mutex<Option<LogLevel>>,
    /// Cloned by the one call in whose course the server may ask, where the server does not say which call asks.
    asked: Arc<()>,
    /// The upstream, for the log.
    upstream: UpstreamId,
    observer: Arc<Observer>,
    /// What it counts for; `None` once the server has forgotten it.
    room: Mutex<Option<Room>>,
}

/// A session in use by one call.
#[derive(Debug)]
pub struct Lease {
    /// [`Pooled::asked`], for that call.
    asked: Option<Arc<()>>,
    /// The session.
    pub pooled: Arc<Pooled>,
    /// Keeps the session in use. It is dropped last: once the session counts as unused another party may end it, and then
    /// its room has to be free.
    pub guard: UpstreamGuard,
}

/// The use of a session by the one call that may be asked.
#[derive(Debug)]
struct AskedUse {
    pooled: Arc<Pooled>,
    _asked: Arc<()>,
}

impl Pooled {
    pub(super) fn new(
        session: Arc<UpstreamSession>,
        facts: ServerFacts,
        generation: Generation,
        room: Room,
        upstream: UpstreamId,
        observer: Arc<Observer>,
    ) -> Arc<Self> {
        observer.emit(events::PooledSessionOpened { upstream: upstream.as_str() });
        let (changes, _) = broadcast::channel(BEHIND);
        let resources = Resources::default();
        Arc::new(Self {
            session,
            facts,
            generation,
            changes,
            resources,
            logs_from: tokio::sync::Mutex::default(),
            asked: Arc::default(),
            upstream,
            observer,
            room: Mutex::new(Some(room)),
        })
    }

    /// Returns what the server tells from now on that belongs to no call.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Message> {
        self.changes.subscribe()
    }

    /// Counts subscriptions of resources that begin, or that end, and has the server told where it has to be.
    pub fn subscribe<'u>(self: &Arc<Self>, uris: impl Iterator<Item = &'u String>, begins: bool, headers: &HeaderMap) {
        if self.resources.count(uris, begins) {
            tokio::spawn(Lease::of(self).tell(headers.clone()));
        }
    }

    /// Returns those of the resources of which the server has said that it tells. Waits until it has answered for each,
    /// at most for five seconds.
    pub async fn subscribed(&self, uris: &[String]) -> Vec<String> {
        let _ = tokio::time::timeout(SUBSCRIBE_TIMEOUT, self.resources.settled(uris)).await;
        uris.iter().filter(|uri| self.resources.are_told(uri)).cloned().collect()
    }

    /// Returns whether no call is in the session, not even that of a task.
    pub(super) fn is_unused(&self) -> bool {
        self.session.unused_since().is_some()
    }
}

impl Lease {
    /// Returns a session for one more call.
    #[must_use]
    pub fn of(pooled: &Arc<Pooled>) -> Self {
        Self::with(pooled, None)
    }

    /// Returns a session for a call in the course of which the server may ask, if there is no other such call in it,
    /// and none was given up: the server may still ask in its course. Callers hold a lock against each other,
    /// or no other caller has the session yet.
    pub(super) fn asked(pooled: &Arc<Pooled>) -> Option<Self> {
        let is_free = Arc::strong_count(&pooled.asked) == 1 && pooled.session.asks_nobody();
        is_free.then(|| Self::with(pooled, Some(Arc::clone(&pooled.asked))))
    }

    fn with(pooled: &Arc<Pooled>, asked: Option<Arc<()>>) -> Self {
        Self { guard: pooled.session.hold(), pooled: Arc::clone(pooled), asked }
    }

    /// Returns one more use of the session by the same call.
    #[must_use]
    pub fn again(&self) -> Self {
        Self::with(&self.pooled, self.asked.clone())
    }

    /// Marks the session as in use by the same call for as long as the returned guard lives, which keeps its room too.
    #[must_use]
    pub fn hold(&self) -> UpstreamGuard {
        let pooled = Arc::clone(&self.pooled);
        let kept: Arc<dyn Kept> = match self.asked.clone() {
            Some(asked) => Arc::new(AskedUse { pooled, _asked: asked }),
            None => pooled,
        };
        self.pooled.session.hold_with(Some(kept))
    }

    /// Makes room for another session, as the server has forgotten this one.
    pub fn vacate(&self) {
        self.pooled.vacate();
    }

    /// Has a server that knows sessions log from `level` on, if it logs at all and does not yet. Many servers log
    /// nothing before they are told a level. A server that does not answer soon holds up no call.
    pub async fn log_from(&self, level: LogLevel, headers: &HeaderMap) {
        let Pooled { facts, generation, logs_from, .. } = &*self.pooled;
        let logs = Members::parse(&facts.capabilities).is_ok_and(|declared| declared.get("logging").is_some());
        if generation.is_modern() || !logs {
            return;
        }
        let mut from = logs_from.lock().await;
        if from.is_some_and(|from| from <= level) {
            return;
        }
        let params = format!(r#"{{"level":"{}"}}"#, level.name());
        let telling = self.guard.get().request("logging/setLevel", &params, headers.clone());
        // One that refuses, or is silent, is not asked again. What did not reach the server is told with the next call.
        if !matches!(tokio::time::timeout(LEVEL_TIMEOUT, telling).await, Ok(Err(_))) {
            *from = Some(level);
        }
    }

    /// Tells the server which resources clients subscribe to: one request at a time, so that none overtakes another.
    async fn tell(self, headers: HeaderMap) {
        while let Some(told) = self.pooled.resources.next() {
            let params = format!(r#"{{"uri":{}}}"#, quote(&told.uri));
            let answer = self.guard.get().request(told.method, &params, headers.clone()).await;
            match answer.as_ref().map(Message::outcome) {
                Ok(Some((Outcome::Result, _))) => self.pooled.resources.agreed(&told.uri),
                Ok(Some((Outcome::Error, _)) | None) => self.pooled.resources.refused(&told.uri),
                Err(_) => self.pooled.resources.unanswered(&told.uri),
            }
        }
    }
}

impl Kept for AskedUse {
    fn vacate(&self) {
        self.pooled.vacate();
    }
}

impl Kept for Pooled {
    fn vacate(&self) {
        drop(self.room.lock().take());
    }
}

/// A session that neither the pool nor a call has any more ends with the last task in it.
impl Drop for Pooled {
    fn drop(&mut self) {
        self.observer.emit(events::PooledSessionEnded { upstream: self.upstream.as_str() });
        // Closing needs the runtime, which may be gone.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.session.close_when_unused(self.session.headers_of_its_own());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::{
            Weak,
            atomic::{AtomicBool, AtomicUsize, Ordering},
        },
        task::{Context, Wake},
    };

    use tokio::sync::Notify;

    use super::*;
    use crate::{identity::Owner, upstream::pool::room::PoolLimits};

    /// Says whether a session counted as unused when a use let go of it.
    #[derive(Debug)]
    struct Looks(Arc<UpstreamSession>, Arc<AtomicBool>);

    impl Kept for Looks {
        fn vacate(&self) {}
    }

    impl Drop for Looks {
        fn drop(&mut self) {
            self.1.store(self.0.unused_since().is_some(), Ordering::Relaxed);
        }
    }

    #[test]
    fn what_a_use_keeps_is_let_go_before_the_session_counts_as_unused() {
        let (session, unused) = (UpstreamSession::nowhere("/mcp"), Arc::new(AtomicBool::new(true)));
        let kept = Arc::new(Looks(Arc::clone(&session), Arc::clone(&unused)));
        drop(session.hold_with(Some(kept)));
        assert!(!unused.load(Ordering::Relaxed));
        assert!(session.unused_since().is_some());
    }

    /// Counts who has a session of the pool when it is woken.
    struct Counts(Weak<Pooled>, AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0.strong_count(), Ordering::Relaxed);
        }
    }

    #[test]
    fn whoever_hears_that_a_session_is_unused_and_ends_it_has_its_room() {
        let (open, unused) = (Arc::default(), Arc::new(Notify::new()));
        let (owner, limits) = (Owner::anyone("/mcp".into()), PoolLimits { per_owner: 1, all: 1 });
        let room = Room::take(&open, &owner, limits).expect("the first");
        let session = Arc::into_inner(UpstreamSession::nowhere("/mcp")).expect("the only reference");
        let (session, generation) = (Arc::new(session.notifying(&unused)), Generation::Legacy);
        let pooled = Pooled::new(session, ServerFacts::own(), generation, room, "/mcp".into(), Arc::default());
        let lease = Lease::asked(&pooled).expect("no call is in it");
        let counts = Arc::new(Counts(Arc::downgrade(&pooled), AtomicUsize::new(0)));
        let waker = Arc::clone(&counts).into();
        let hears = pin!(unused.notified());
        assert!(hears.poll(&mut Context::from_waker(&waker)).is_pending());
        drop(lease);
        assert_eq!(counts.1.load(Ordering::Relaxed), 1, "only the pool");
        drop(pooled);
        assert!(Room::take(&open, &owner, limits).is_ok());
    }

    #[test]
    fn a_held_use_keeps_the_room_and_that_no_other_call_is_asked() {
        let (open, owner, limits) = (Arc::default(), Owner::anyone("/mcp".into()), PoolLimits { per_owner: 1, all: 1 });
        let room = Room::take(&open, &owner, limits).expect("the first");
        let (session, generation) = (UpstreamSession::nowhere("/mcp"), Generation::Legacy);
        let pooled = Pooled::new(session, ServerFacts::own(), generation, room, "/mcp".into(), Arc::default());
        let held = Lease::asked(&pooled).expect("no call is in it").hold();
        assert!(Lease::asked(&pooled).is_none() && !pooled.is_unused());
        let weak = Arc::downgrade(&pooled);
        drop(pooled);
        assert!(weak.strong_count() > 0 && Room::take(&open, &owner, limits).is_err());
        held.vacate();
        assert!(Room::take(&open, &owner, limits).is_ok());
        drop(held);
        assert_eq!(weak.strong_count(), 0);
    }
}
