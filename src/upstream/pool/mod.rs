//! Sessions with a server for callers that have none of their own: opened on demand, shared by callers of the same key, ended
//! when they are idle. With a modern server, which has no sessions, there is only the link.

mod generation;
mod hear;
mod introduce;
mod opening;
mod room;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use ::http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::broadcast;

pub use generation::Generation;
pub use opening::ServerFacts;

use self::{
    generation::KnownGeneration,
    room::{Full, OpenSessions, Room},
};
use super::{NotAgreed, Server, UpstreamGuard, UpstreamSession};
use crate::{
    config::UpstreamId,
    flow::{Capacity, Tally},
    identity::Owner,
    observe::{Observer, events},
    wire::{ClientCapabilities, Message},
};

/// How many notifications of a server a subscriber may be behind before it misses some.
const BEHIND: usize = 256;

/// Whose calls may share a session: one that is asked may see what another one asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// Who calls.
    pub owner: Owner,
    /// A digest of the credential that goes on to the server, if one does.
    pub credential: Option<[u8; 32]>,
    /// What the caller can be asked.
    pub client: ClientCapabilities,
}

/// How many sessions a pool holds.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// For one owner.
    pub per_owner: usize,
    /// In all.
    pub all: usize,
}

/// Which calls a session serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All of its key.
    Shared,
    /// One at a time, the calls of its tasks included.
    Single,
    /// One, and then it ends.
    Once,
}

/// The sessions of one upstream.
#[derive(Debug)]
pub struct SessionPool {
    /// The upstream, for the log.
    id: UpstreamId,
    slots: Mutex<Slots>,
    open: Arc<Mutex<OpenSessions>>,
    generation: KnownGeneration,
    limits: PoolLimits,
    capacity: Arc<Capacity>,
    observer: Arc<Observer>,
}

#[derive(Debug, Default)]
struct Slots {
    of_key: HashMap<PoolKey, Arc<Slot>>,
    /// The process stops: no more are opened.
    closed: bool,
}

/// A slot in use by a lease that is being made. A slot that stays empty is forgotten.
struct SlotUse<'a> {
    pool: &'a SessionPool,
    key: &'a PoolKey,
    slot: Arc<Slot>,
}

/// The sessions of one key.
#[derive(Debug, Default)]
struct Slot {
    /// The session that calls share. The lock is held during its handshake.
    shared: tokio::sync::Mutex<Option<Arc<Pooled>>>,
    /// Sessions that one call at a time has for itself, in use or not.
    single: Mutex<Vec<Arc<Pooled>>>,
}

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
    changes: broadcast::Sender<Message>,
    /// How many subscriptions each resource has.
    subscribed: Mutex<Tally<String>>,
    /// The upstream, for the log.
    upstream: UpstreamId,
    observer: Arc<Observer>,
    _room: Room,
}

/// A session in use by one call.
#[derive(Debug)]
pub struct Lease {
    /// Keeps the session in use.
    pub guard: UpstreamGuard,
    /// The session.
    pub pooled: Arc<Pooled>,
}

/// Why there is no session.
#[derive(Debug)]
pub enum NoSession {
    /// As many are open as may be.
    Full(String),
    /// The server did not agree.
    NotAgreed(NotAgreed),
}

impl fmt::Display for NoSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(why) => f.write_str(why),
            Self::NotAgreed(NotAgreed::TooMany(why)) => why.fmt(f),
            Self::NotAgreed(NotAgreed::Refused { .. }) => f.write_str("the server refused the session"),
            Self::NotAgreed(NotAgreed::Failed(failure)) => failure.fmt(f),
        }
    }
}

impl SessionPool {
    /// An empty pool.
    #[must_use]
    pub fn new(id: UpstreamId, limits: PoolLimits, capacity: Arc<Capacity>, observer: Arc<Observer>) -> Self {
        let (slots, open, generation) = (Mutex::default(), Arc::default(), KnownGeneration::default());
        Self { id, slots, open, generation, limits, capacity, observer }
    }

    /// Returns a session of `key`.
    ///
    /// # Errors
    /// [`NoSession`]
    pub async fn lease(
        &self,
        server: &Server,
        key: &PoolKey,
        sharing: Sharing,
        headers: &HeaderMap,
    ) -> Result<Lease, NoSession> {
        let used = self.slot(key)?;
        match sharing {
            Sharing::Once => Ok(Lease::of(&self.open(server, key, headers).await?)),
            Sharing::Single => {
                if let Some(free) = used.slot.free_single() {
                    return Ok(free);
                }
                let lease = Lease::of(&self.open(server, key, headers).await?);
                used.slot.single.lock().push(Arc::clone(&lease.pooled));
                Ok(lease)
            }
            Sharing::Shared => {
                let mut shared = used.slot.shared.lock().await;
                if let Some(pooled) = shared.as_ref().filter(|pooled| !pooled.session.is_lost()) {
                    return Ok(Lease::of(pooled));
                }
                // A lost one leaves its room. The server may have been replaced.
                if shared.take().is_some() {
                    self.generation.forget();
                }
                let lease = Lease::of(&self.open(server, key, headers).await?);
                *shared = Some(Arc::clone(&lease.pooled));
                Ok(lease)
            }
        }
    }

    fn slot<'a>(&'a self, key: &'a PoolKey) -> Result<SlotUse<'a>, NoSession> {
        let mut slots = self.slots.lock();
        if slots.closed {
            return Err(NoSession::Full("taskgate is stopping; try again when it is back".to_owned()));
        }
        let slot = Arc::clone(slots.of_key.entry(key.clone()).or_default());
        Ok(SlotUse { pool: self, key, slot })
    }

    /// Takes room for a session of `owner`. Where there is none, ends the one that has been idle for longest.
    fn room(&self, owner: &Owner) -> Result<Room, NoSession> {
        loop {
            let PoolLimits { per_owner, all } = self.limits;
            let (of, full) = match Room::take(&self.open, owner, self.limits) {
                Ok(room) => return Ok(room),
                Err(Full::OfOwner) => {
                    (Some(owner), format!("server.max_sessions_per_owner = {per_owner} sessions of yours are in use"))
                }
                Err(Full::InAll) => (None, format!("server.max_sessions = {all} sessions with the server are in use")),
            };
            if !self.evict(of) {
                return Err(NoSession::Full(format!("limit reached: {full}; try again later")));
            }
        }
    }

    /// Ends the session that has been idle for longest, of one owner or of all. Returns whether there was one.
    fn evict(&self, of: Option<&Owner>) -> bool {
        let slots = self.slots.lock();
        let theirs = || slots.of_key.iter().filter(|(key, _)| of.is_none_or(|owner| key.owner == *owner));
        let idle = |pooled: &Arc<Pooled>| pooled.is_unused().then(|| pooled.session.idle());
        let longest = theirs().filter_map(|(_, slot)| slot.idle_longest(idle)).max();
        let Some(longest) = longest else { return false };
        theirs().any(|(_, slot)| slot.take_idle(longest))
    }

    /// Returns the generation of the server, if it is known.
    #[must_use]
    pub fn generation(&self) -> Option<Generation> {
        self.generation.get()
    }

    /// Returns the revisions that the server and taskgate both speak, where the server is known as a modern one.
    #[must_use]
    pub fn versions(&self) -> Option<Arc<[String]>> {
        self.generation.versions()
    }

    /// Forgets the generation of the server, which has answered as one of the other does. No caller gets `pooled` any more.
    pub fn was_replaced(&self, pooled: &Pooled) {
        self.generation.forget();
        let is_it = |other: &Arc<Pooled>| std::ptr::eq(&raw const **other, pooled);
        for slot in self.slots.lock().of_key.values() {
            if let Ok(mut shared) = slot.shared.try_lock() {
                shared.take_if(|other| is_it(other));
            }
            slot.single.lock().retain(|other| !is_it(other));
        }
    }

    /// Ends the sessions that have not been used for `idle`, and forgets those that are lost. To be called now and then.
    pub fn sweep(&self, idle: Duration) {
        let is_over = |pooled: &Arc<Pooled>| pooled.session.idle() >= idle || pooled.session.is_lost();
        self.slots.lock().of_key.retain(|_, slot| {
            // A slot that a lease is being made from stays.
            if Arc::strong_count(slot) > 1 {
                return true;
            }
            let Ok(mut shared) = slot.shared.try_lock() else { return true };
            shared.take_if(|pooled| is_over(pooled));
            let mut single = slot.single.lock();
            single.retain(|pooled| !is_over(pooled));
            shared.is_some() || !single.is_empty()
        });
    }

    /// Opens no more sessions, and ends each, even while it is in use, when the process stops.
    pub fn close(&self) {
        let mut slots = self.slots.lock();
        slots.closed = true;
        for (_, slot) in slots.of_key.drain() {
            let shared = slot.shared.try_lock().ok().and_then(|mut shared| shared.take());
            for pooled in slot.single.lock().drain(..).chain(shared) {
                pooled.session.close(HeaderMap::new());
            }
        }
    }

    /// Returns how many keys have sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.lock().of_key.len()
    }

    /// Returns whether no key has a session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Pooled {
    /// Returns what the server tells from now on that belongs to no call.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Message> {
        self.changes.subscribe()
    }

    /// Counts a subscription of a resource that begins, or one that ends. Returns whether the server has to be told.
    pub fn counts(&self, uri: &String, begins: bool) -> bool {
        let mut subscribed = self.subscribed.lock();
        if begins {
            subscribed.add(uri, 1);
            subscribed.of(uri) == 1
        } else {
            subscribed.take(uri, 1);
            subscribed.of(uri) == 0
        }
    }

    /// Returns whether no call, also of a task, is in the session.
    fn is_unused(&self) -> bool {
        self.session.unused_since().is_some()
    }
}

impl Slot {
    /// Returns the session of one call that has ended, for another call.
    fn free_single(&self) -> Option<Lease> {
        let mut single = self.single.lock();
        // A server may still ask in the course of a call that was cancelled, and the next one must not get it.
        single.retain(|pooled| !(pooled.session.is_lost() || pooled.is_unused() && pooled.session.has_cancelled()));
        single.iter().find(|pooled| pooled.is_unused()).map(Lease::of)
    }

    fn idle_longest(&self, idle: impl Fn(&Arc<Pooled>) -> Option<Duration>) -> Option<Duration> {
        let shared = self.shared.try_lock().ok().and_then(|shared| shared.as_ref().and_then(&idle));
        shared.max(self.single.lock().iter().filter_map(&idle).max())
    }

    /// Takes out a session that has been idle for that long.
    fn take_idle(&self, least: Duration) -> bool {
        let fits = |pooled: &Arc<Pooled>| pooled.is_unused() && pooled.session.idle() >= least;
        if let Ok(mut shared) = self.shared.try_lock()
            && shared.take_if(|pooled| fits(pooled)).is_some()
        {
            return true;
        }
        let mut single = self.single.lock();
        let at = single.iter().position(fits);
        at.map(|at| single.swap_remove(at)).is_some()
    }
}

impl Lease {
    /// Returns a session for one more call.
    #[must_use]
    pub fn of(pooled: &Arc<Pooled>) -> Self {
        Self { guard: pooled.session.hold(), pooled: Arc::clone(pooled) }
    }
}

/// A session that neither the pool nor a call has any more ends with the last task in it.
impl Drop for Pooled {
    fn drop(&mut self) {
        self.observer.emit(events::PooledSessionEnded { upstream: self.upstream.as_str() });
        // Closing needs the runtime, which may be gone.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.session.close_when_unused(HeaderMap::new());
        }
    }
}

impl Drop for SlotUse<'_> {
    fn drop(&mut self) {
        let mut slots = self.pool.slots.lock();
        let is_empty =
            |slot: &Slot| slot.shared.try_lock().is_ok_and(|shared| shared.is_none()) && slot.single.lock().is_empty();
        // The other one is the pool's.
        if Arc::strong_count(&self.slot) == 2
            && slots.of_key.get(self.key).is_some_and(|slot| Arc::ptr_eq(slot, &self.slot) && is_empty(slot))
        {
            slots.of_key.remove(self.key);
        }
    }
}
