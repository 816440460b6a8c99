//! Sessions with a server for callers that have none of their own: opened on demand, shared by callers of the same key,
//! ended when they are idle. With a modern server, which has no sessions, there is only the link.

mod crowd;
mod failure;
mod generation;
mod hear;
mod introduce;
mod key;
mod opening;
mod place;
mod pooled;
mod resources;
mod room;
mod slot;
mod tool_lists;
mod total;

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use ::http::HeaderMap;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

pub use failure::NoSession;
pub use generation::Generation;
pub(super) use key::PoolKey;
pub use opening::ServerFacts;
pub use pooled::{Lease, Pooled};
pub use room::PoolLimits;
pub use total::PoolsTotal;

use self::{
    crowd::Crowd,
    generation::KnownGeneration,
    place::soon,
    slot::{SlotUse, Slots},
    tool_lists::ToolLists,
};
use super::{Kept, KnownTools, Server};
use crate::{config::UpstreamId, flow::Capacity, observe::Observer, wire::Version};

/// Which calls a session serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All calls of its key.
    Shared,
    /// One call at a time of those in whose course the server may ask; the calls of tasks are among them.
    Single,
    /// One call, and then it ends.
    Once,
}

/// The sessions of one upstream.
#[derive(Debug)]
pub struct SessionPool {
    /// The upstream, for the log.
    id: UpstreamId,
    generation: KnownGeneration,
    slots: Arc<Mutex<Slots>>,
    tool_lists: ToolLists,
    /// Notified when a use of a session has ended.
    unused: Arc<Notify>,
    /// The calls that wait for the place of a process.
    crowd: Crowd,
    total: Arc<PoolsTotal>,
    capacity: Arc<Capacity>,
    observer: Arc<Observer>,
}

impl SessionPool {
    /// Returns an empty pool, which counts against the limits of `total`.
    #[must_use]
    pub fn new(id: UpstreamId, total: &Arc<PoolsTotal>, capacity: Arc<Capacity>, observer: Arc<Observer>) -> Self {
        let slots = Arc::default();
        total.add(&slots);
        Self {
            id,
            generation: KnownGeneration::default(),
            slots,
            tool_lists: ToolLists::default(),
            unused: Arc::default(),
            crowd: Crowd::default(),
            total: Arc::clone(total),
            capacity,
            observer,
        }
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
        match sharing {
            Sharing::Once => {
                let _used = Slots::of(&self.slots, key)?;
                let place = self.place(server, key).await?;
                Ok(Lease::of(&Box::pin(self.open(server, key, sharing, headers, place)).await?))
            }
            Sharing::Single => {
                let used = Slots::of(&self.slots, key)?;
                let alone = |pooled: &Arc<Pooled>| {
                    if pooled.generation.is_modern() { Some(Lease::of(pooled)) } else { Lease::asked(pooled) }
                };
                // The session of lists and subscriptions, so that they tell of the process that calls are made in.
                let until = soon();
                let shared = || Slots::lease_shared(&self.slots, key, alone).flatten();
                let freed = || used.slot.free_single().or_else(shared);
                match self.shared(server, key, headers, || until, alone, || freed().map(Some)).await {
                    Ok(Some(lease)) => return Ok(lease),
                    Ok(None) => {}
                    Err(why) => return used.slot.free_single().ok_or(why),
                }
                if let Some(free) = freed() {
                    return Ok(free);
                }
                let place = match self.place_or(server, key, until, freed).await? {
                    ControlFlow::Continue(place) => place,
                    ControlFlow::Break(free) => return Ok(free),
                };
                let pooled = Box::pin(self.open(server, key, sharing, headers, place)).await?;
                // A link to a modern server has a place of its own.
                if pooled.generation.is_modern() {
                    return Ok(Lease::of(&pooled));
                }
                let mut single = used.slot.single.lock();
                single.push(Arc::clone(&pooled));
                Ok(Lease::asked(&pooled).unwrap_or_else(|| Lease::of(&pooled)))
            }
            Sharing::Shared => self.shared(server, key, headers, soon, Lease::of, || None).await,
        }
    }

    /// Leases the session that calls of a key share, if it is open.
    #[must_use]
    pub fn lease_now(&self, key: &PoolKey) -> Option<Lease> {
        // Where the process stops, opening another one fails with the reason.
        Slots::lease_shared(&self.slots, key, Lease::of).or_else(|| self.lease_link(key, Lease::of))
    }

    /// Leases the session that calls of a key share, and opens it where it has to. Where that has to wait for a place,
    /// what `freed` gives meanwhile does as well.
    async fn shared<T>(
        &self,
        server: &Server,
        key: &PoolKey,
        headers: &HeaderMap,
        until: impl FnOnce() -> Instant,
        lease: impl Fn(&Arc<Pooled>) -> T,
        freed: impl Fn() -> Option<T>,
    ) -> Result<T, NoSession> {
        let shared = || Slots::lease_shared(&self.slots, key, &lease);
        if let Some(leased) = shared() {
            return Ok(leased);
        }
        let SlotUse { slot, .. } = &Slots::of(&self.slots, key)?;
        let (came, until) = (Instant::now(), until());
        let mut failed = slot.opening.lock().await;
        // Another caller may have opened it meanwhile, or the link to a server that is a modern one.
        if let Some(leased) = shared().or_else(|| self.lease_link(key, &lease)) {
            return Ok(leased);
        }
        // Those who waited for a handshake fail as it did.
        if let Some((_, why)) = failed.as_ref().filter(|(at, _)| *at >= came) {
            return Err(why.clone());
        }
        if let Some(lost) = slot.take_lost() {
            lost.vacate();
            // The server may have been replaced.
            self.generation.forget();
        }
        let opening = async {
            let freed = || freed().or_else(|| self.lease_link(key, &lease));
            match self.place_or(server, key, until, freed).await? {
                ControlFlow::Continue(place) => {
                    self.open(server, key, Sharing::Shared, headers, place).await.map(ControlFlow::Continue)
                }
                ControlFlow::Break(free) => Ok(ControlFlow::Break(free)),
            }
        };
        match Box::pin(opening).await {
            Ok(ControlFlow::Break(free)) => Ok(free),
            Ok(ControlFlow::Continue(pooled)) => {
                // Before another caller can have it.
                let leased = lease(&pooled);
                let keeps = key.that_keeps(pooled.generation, headers);
                if keeps == *key {
                    slot.share(&pooled);
                } else {
                    self.keep(&keeps, &pooled);
                }
                *failed = None;
                Ok(leased)
            }
            Err(why) => {
                // Those who wait may have a better credential.
                *failed = (!why.is_authorization()).then(|| (Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// Leases the link that requests of the key's owner share, if it is open, and the server not known as a legacy one.
    /// One in doubt counts as modern again: it refuses the request otherwise.
    fn lease_link<T>(&self, key: &PoolKey, lease: impl FnOnce(&Arc<Pooled>) -> T) -> Option<T> {
        if self.generation() == Some(Generation::Legacy) {
            return None;
        }
        let requests = PoolKey::of_requests(key.owner.clone());
        // Where the process stops, opening another one fails with the reason.
        Slots::lease_shared(&self.slots, &requests, |pooled| {
            if self.generation().is_none() {
                self.generation.set(pooled.generation, &pooled.facts);
            }
            lease(pooled)
        })
    }

    /// Returns a session that serves one call of a client with a session of its own, so also from a server that is
    /// modern as well.
    ///
    /// # Errors
    /// [`NoSession`]
    pub async fn lease_apart(&self, server: &Server, key: &PoolKey, headers: &HeaderMap) -> Result<Lease, NoSession> {
        let _used = Slots::of(&self.slots, key)?;
        Ok(Lease::of(&self.open_session(server, key, headers).await?))
    }

    /// Returns what is known of the server's tools for the calls of a key, each of which has a session of its own.
    #[must_use]
    pub fn tools(&self, key: &PoolKey) -> Arc<KnownTools> {
        self.tool_lists.of(key)
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

    /// Returns whether the server is known to speak no revision with sessions.
    #[must_use]
    pub fn is_modern_only(&self) -> bool {
        self.versions().is_some_and(|versions| versions.iter().all(|version| Version::parse(version).is_none()))
    }

    /// Forgets the generation of the server, which has answered as one of the other does, unless the other is known by
    /// now. No caller gets `pooled` any more.
    pub fn was_replaced(&self, pooled: &Pooled) {
        let taken = self.slots.lock().take_out(pooled);
        // Only now, as a lease of it would say the generation again.
        self.generation.forget_as(pooled.generation);
        // They end outside of the lock.
        drop(taken);
    }

    /// Tells the requests that have waited for long that nothing has come yet. To be called every few seconds.
    pub fn tell_silence(&self) {
        let open = self.slots.lock().open();
        for session in open {
            session.tell_silence();
        }
    }

    /// Ends the sessions that have not been used for `idle`, and forgets those that are lost. To be called now and
    /// then.
    pub fn sweep(&self, idle: Duration) {
        let swept = self.slots.lock().sweep(idle);
        // They end outside of the lock. A lost one may still be in use, and makes room at once.
        for pooled in swept {
            pooled.vacate();
        }
    }

    /// Opens no more sessions, and ends each, even while it is in use, when the process stops.
    pub fn close(&self) {
        let open = self.slots.lock().close();
        for session in open {
            session.close(session.headers_of_its_own());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{room::Room, *};
    use crate::{
        flow::Capacity,
        identity::Owner,
        upstream::{Lessee, Upstream, UpstreamSession},
        wire::ClientCapabilities,
    };

    #[tokio::test]
    async fn a_late_refusal_in_a_session_forgets_nothing_and_a_link_in_doubt_counts_as_modern_again() {
        let (owner, limits) = (Owner::anyone("/mcp".into()), PoolLimits { per_owner: 2, all: 2 });
        let total = PoolsTotal::new(limits);
        let pool = SessionPool::new("/mcp".into(), &total, Capacity::new(1024, 1024), Arc::default());
        let (open, modern) = (Arc::default(), Generation::Modern { has_tasks: false });
        let pooled = |generation| {
            let (session, facts) = (UpstreamSession::nowhere("/mcp"), ServerFacts::own());
            let room = Room::take(&open, &owner, limits).expect("room for two");
            Pooled::new(session, facts, generation, room, "/mcp".into(), Arc::default())
        };
        let (session, link) = (pooled(Generation::Legacy), pooled(modern));
        let key = PoolKey::new(owner.clone(), ClientCapabilities::default(), &HeaderMap::new());
        pool.keep(&PoolKey::of_requests(owner.clone()), &link);
        pool.generation.set(modern, &link.facts);
        pool.was_replaced(&session);
        assert_eq!(pool.generation(), Some(modern));
        pool.generation.forget();
        assert!(pool.lease_now(&key).is_some());
        assert_eq!(pool.generation(), Some(modern));
        pool.was_replaced(&link);
        assert_eq!(pool.generation(), None);
        assert!(pool.lease_now(&key).is_none());
    }

    #[test]
    fn a_call_that_may_be_asked_never_joins_others_while_it_is_in_doubt_what_the_server_is() {
        let (upstream, owner) = (Upstream::unused("/mcp"), Owner::anyone("/mcp".into()));
        let (facts, client) = (ServerFacts::own(), ClientCapabilities { roots: true, ..ClientCapabilities::default() });
        let room = Room::take(&Arc::default(), &owner, PoolLimits { per_owner: 1, all: 1 }).expect("room");
        let session = UpstreamSession::nowhere("/mcp");
        let pooled = Pooled::new(session, ServerFacts::own(), Generation::Legacy, room, "/mcp".into(), Arc::default());
        let headers = HeaderMap::new();
        upstream.pool.keep(&PoolKey::new(owner.clone(), client, &headers), &pooled);
        std::thread::scope(|scope| {
            let flipping = scope.spawn(|| {
                for _ in 0..200_000 {
                    upstream.pool.generation.set(Generation::Modern { has_tasks: false }, &facts);
                    upstream.pool.generation.forget();
                }
            });
            while !flipping.is_finished() {
                assert!(upstream.lease_now(Lessee { owner: &owner, client, headers: &headers }).is_none());
            }
        });
    }
}
