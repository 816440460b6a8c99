//! The sessions of one key.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use hashlink::DefaultHashBuilder;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    PoolKey,
    failure::NoSession,
    pooled::{Lease, Pooled},
};
use crate::upstream::{Kept, UpstreamSession};

/// The sessions of one upstream.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Each call looks here. The hash is a quick one: its key is random, and sessions, requests in flight, and what was
    /// emptied since the last sweep bound how many keys there are.
    of_key: HashMap<PoolKey, Arc<Slot>, DefaultHashBuilder>,
    /// Every session, also one that is in use by its only call.
    open: Vec<Weak<UpstreamSession>>,
    /// The process stops: no more are opened.
    closed: bool,
}

/// The sessions of one key.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The session that calls share. Each call locks it, so nothing is awaited meanwhile: the next call would queue
    /// behind one that has its turn and has not been woken yet.
    shared: Mutex<Option<Arc<Pooled>>>,
    /// Held during the handshake of that session. When the last one failed, and why: those who waited for it do not try
    /// one after the other.
    pub(super) opening: tokio::sync::Mutex<Option<(Instant, NoSession)>>,
    /// Sessions that one call at a time has for itself, in use or not.
    pub(super) single: Mutex<Vec<Arc<Pooled>>>,
}

/// A slot in use by a lease that is being made. One that stays empty is forgotten with it, and one that becomes empty
/// later with the next sweep.
pub(super) struct SlotUse<'a> {
    slots: &'a Mutex<Slots>,
    pub(super) key: &'a PoolKey,
    pub(super) slot: Arc<Slot>,
}

impl Slots {
    /// Returns the slot of a key.
    pub(super) fn of<'a>(slots: &'a Mutex<Self>, key: &'a PoolKey) -> Result<SlotUse<'a>, NoSession> {
        let mut table = slots.lock();
        if table.closed {
            return Err(NoSession::stopping());
        }
        let slot = match table.of_key.get(key) {
            Some(slot) => Arc::clone(slot),
            None => Arc::clone(table.of_key.entry(key.clone()).or_default()),
        };
        Ok(SlotUse { slots, key, slot })
    }

    /// Leases the session that calls of a key share, if it is open. `lease` runs under the lock, so that no two callers
    /// make a lease at once. Where the server may ask in the course of the call, lets go first of a session in which a
    /// call was given up, once nothing uses it: the server may still ask in the course of that one.
    pub(super) fn lease_shared<T>(
        slots: &Mutex<Self>,
        key: &PoolKey,
        lease: impl FnOnce(&Arc<Pooled>) -> T,
    ) -> Option<T> {
        let table = slots.lock();
        let mut shared = table.of_key.get(key).filter(|_| !table.closed)?.shared.lock();
        let is_over = |pooled: &mut Arc<Pooled>| pooled.is_unused() && pooled.session.has_given_up();
        let given_up = shared.take_if(|pooled| key.client.any() && is_over(pooled));
        let leased = shared.as_ref().filter(|pooled| !pooled.session.is_lost()).map(lease);
        drop(shared);
        drop(table);
        // It ends outside of the locks.
        drop(given_up);
        leased
    }

    /// Notes a session that was opened, so that it ends with the process.
    pub(super) fn note(&mut self, session: &Arc<UpstreamSession>) -> Result<(), NoSession> {
        if self.closed {
            return Err(NoSession::stopping());
        }
        if self.open.len() == self.open.capacity() {
            self.open.retain(|open| open.strong_count() > 0);
        }
        self.open.push(Arc::downgrade(session));
        Ok(())
    }

    /// Of the sessions that fit, returns how long the one that has been idle longest has been idle.
    pub(super) fn idle_longest(&self, fits: impl Fn(&PoolKey) -> bool) -> Option<Duration> {
        let fitting = self.of_key.iter().filter(|(key, _)| fits(key));
        fitting.filter_map(|(_, slot)| slot.idle_longest()).max()
    }

    /// Takes out a session that fits and has been idle for that long.
    pub(super) fn take_idle(&self, fits: impl Fn(&PoolKey) -> bool, least: Duration) -> Option<Arc<Pooled>> {
        self.of_key.iter().filter(|(key, _)| fits(key)).find_map(|(_, slot)| slot.take_idle(least))
    }

    /// Takes out a session, so that no caller gets it any more.
    pub(super) fn take_out(&self, pooled: &Pooled) -> Vec<Arc<Pooled>> {
        let is_it = |other: &Arc<Pooled>| std::ptr::eq(&raw const **other, pooled);
        let mut taken = Vec::new();
        for slot in self.of_key.values() {
            taken.extend(slot.shared.lock().take_if(|other| is_it(other)));
            taken.extend(slot.single.lock().extract_if(.., |other| is_it(other)));
        }
        taken
    }

    /// Takes out the sessions that have not been used for `idle`, and those that are lost.
    pub(super) fn sweep(&mut self, idle: Duration) -> Vec<Arc<Pooled>> {
        let mut swept = Vec::new();
        let is_over = |pooled: &Arc<Pooled>| pooled.session.idle() >= idle || pooled.session.is_lost();
        self.of_key.retain(|_, slot| {
            // A slot that a lease is being made from stays.
            if Arc::strong_count(slot) > 1 {
                return true;
            }
            swept.extend(slot.shared.lock().take_if(|pooled| is_over(pooled)));
            swept.extend(slot.single.lock().extract_if(.., |pooled| is_over(pooled)));
            !slot.is_empty()
        });
        swept
    }

    /// Opens no more sessions, and returns those that are open, in use or not.
    pub(super) fn close(&mut self) -> Vec<Arc<UpstreamSession>> {
        self.closed = true;
        let open = self.open();
        self.open.clear();
        open
    }

    /// Returns the sessions that are open, in use or not.
    pub(super) fn open(&self) -> Vec<Arc<UpstreamSession>> {
        self.open.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Slot {
    /// Has calls share a session from now on.
    pub(super) fn share(&self, pooled: &Arc<Pooled>) {
        let earlier = self.shared.lock().replace(Arc::clone(pooled));
        // It ends outside of the lock.
        drop(earlier);
    }

    /// Takes out the session that calls share, if it is lost.
    pub(super) fn take_lost(&self) -> Option<Arc<Pooled>> {
        self.shared.lock().take_if(|pooled| pooled.session.is_lost())
    }

    /// Returns the session of one call that has ended, for another call.
    pub(super) fn free_single(&self) -> Option<Lease> {
        let mut single = self.single.lock();
        // A server may still ask in the course of a call that was given up, and the next one must not get it.
        let ends =
            |pooled: &Arc<Pooled>| pooled.session.is_lost() || pooled.is_unused() && pooled.session.has_given_up();
        let ended: Vec<_> = single.extract_if(.., |pooled| ends(pooled)).collect();
        let free = single.iter().filter(|pooled| pooled.is_unused()).find_map(Lease::asked);
        drop(single);
        // They end outside of the lock.
        for pooled in ended {
            pooled.vacate();
        }
        free
    }

    fn idle_longest(&self) -> Option<Duration> {
        let idle = |pooled: &Arc<Pooled>| pooled.is_unused().then(|| pooled.session.idle());
        let shared = self.shared.lock().as_ref().and_then(idle);
        shared.max(self.single.lock().iter().filter_map(idle).max())
    }

    /// Takes out a session that has been idle for that long.
    fn take_idle(&self, least: Duration) -> Option<Arc<Pooled>> {
        let fits = |pooled: &Arc<Pooled>| pooled.is_unused() && pooled.session.idle() >= least;
        let taken = self.shared.lock().take_if(|pooled| fits(pooled));
        if taken.is_some() {
            return taken;
        }
        let mut single = self.single.lock();
        let at = single.iter().position(fits);
        at.map(|at| single.swap_remove(at))
    }

    fn is_empty(&self) -> bool {
        self.shared.lock().is_none() && self.single.lock().is_empty()
    }
}

impl Drop for SlotUse<'_> {
    fn drop(&mut self) {
        let mut slots = self.slots.lock();
        // The other one is the pool's.
        if Arc::strong_count(&self.slot) == 2
            && self.slot.is_empty()
            && slots.of_key.get(self.key).is_some_and(|slot| Arc::ptr_eq(slot, &self.slot))
        {
            slots.of_key.remove(self.key);
        }
    }
}
