//! Sessions with a legacy server for callers that have none of their own: opened on demand, shared by callers of the same
//! key, ended when they are idle.

mod failure;
mod hear;
mod key;
mod opening;
mod pooled;
mod resources;
mod room;
mod slot;
mod total;

use std::{sync::Arc, time::Duration};

use ::http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;

pub use failure::NoSession;
pub(super) use key::PoolKey;
pub use opening::ServerFacts;
pub use pooled::{Lease, Pooled};
pub use room::PoolLimits;
pub use total::PoolsTotal;

use self::{
    hear::hear,
    opening::{INITIALIZED, facts, initialize},
    slot::Slots,
};
use super::{Agreed, Failure, Handshake, Server};
use crate::{
    config::UpstreamId,
    flow::Capacity,
    observe::Observer,
    wire::{Message, Version},
};

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
    slots: Arc<Mutex<Slots>>,
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
        Self { id, slots, total: Arc::clone(total), capacity, observer }
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
        let used = Slots::of(&self.slots, key)?;
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
                let came = Instant::now();
                let mut shared = used.slot.shared.lock().await;
                if let Some(pooled) = shared.session.as_ref().filter(|pooled| !pooled.session.is_lost()) {
                    return Ok(Lease::of(pooled));
                }
                if let Some((_, why)) = shared.failed.as_ref().filter(|(at, _)| *at >= came) {
                    return Err(why.clone());
                }
                // A lost one leaves its room.
                shared.session = None;
                match self.open(server, key, headers).await {
                    Ok(pooled) => {
                        let lease = Lease::of(&pooled);
                        (shared.session, shared.failed) = (Some(pooled), None);
                        Ok(lease)
                    }
                    Err(why) => {
                        shared.failed = Some((Instant::now(), why.clone()));
                        Err(why)
                    }
                }
            }
        }
    }

    async fn open(&self, server: &Server, key: &PoolKey, headers: &HeaderMap) -> Result<Arc<Pooled>, NoSession> {
        let room = self.total.room(&key.owner)?;
        let vacancy = server.vacancy().await.map_err(NoSession::failed)?;
        if vacancy.lacking().is_some() {
            // Its child ends, and leaves its place.
            drop(self.longest_idle());
        }
        let handshake = Handshake {
            id: &self.id,
            server,
            client: key.client,
            vacancy,
            capacity: &self.capacity,
            observer: &self.observer,
        };
        let request = initialize(key.client);
        let agreed = handshake.agree(&request, Version::LATEST, headers).await;
        let Agreed { session, answer, .. } = agreed.map_err(|why| NoSession::NotAgreed(Arc::new(why)))?;
        let session = Arc::new(session);
        let bad = |why| NoSession::failed(Failure::BadAnswer(why));
        let facts = facts(&answer).map_err(bad).and_then(|facts| self.slots.lock().note(&session).map(|()| facts));
        let facts = facts.inspect_err(|_| session.close(HeaderMap::new()))?;
        // It ends the session where the server does not take the rest, or the client leaves.
        let pooled = Pooled::new(session, facts, room, self.id.clone(), Arc::clone(&self.observer));
        let initialized = Message::parse(INITIALIZED.into()).map_err(|why| bad(why.to_string()))?;
        pooled.session.forward(&initialized, headers.clone()).await.map_err(NoSession::failed)?;
        let (session, listener) = (Arc::downgrade(&pooled.session), Arc::clone(pooled.session.outbox()));
        tokio::spawn(hear(session, listener, pooled.changes.clone()));
        Ok(pooled)
    }

    /// Takes out the session that has been idle for longest.
    fn longest_idle(&self) -> Option<Arc<Pooled>> {
        let slots = self.slots.lock();
        let longest = slots.idle_longest(|_| true)?;
        slots.take_idle(|_| true, longest)
    }

    /// Ends the sessions that have not been used for `idle`, and forgets those that are lost. To be called now and then.
    pub fn sweep(&self, idle: Duration) {
        let swept = self.slots.lock().sweep(idle);
        // They end outside of the lock.
        drop(swept);
    }

    /// Opens no more sessions, and ends each, even while it is in use, when the process stops.
    pub fn close(&self) {
        let open = self.slots.lock().close();
        for session in open {
            session.close(HeaderMap::new());
        }
    }
}
