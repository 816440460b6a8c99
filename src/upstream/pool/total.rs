//! The limits that the pools of all upstreams share, and which session gives way when one is reached.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{
    PoolKey,
    failure::NoSession,
    room::{Full, OpenSessions, PoolLimits, Room},
    slot::Slots,
};
use crate::identity::Owner;

/// What the pools of all upstreams have open.
#[derive(Debug)]
pub struct PoolsTotal {
    limits: PoolLimits,
    open: Arc<Mutex<OpenSessions>>,
    pools: Mutex<Vec<Weak<Mutex<Slots>>>>,
}

impl PoolsTotal {
    /// Returns what pools share that hold as many sessions as `limits` say.
    #[must_use]
    pub fn new(limits: PoolLimits) -> Arc<Self> {
        Arc::new(Self { limits, open: Arc::default(), pools: Mutex::default() })
    }

    /// Adds a pool. One that is gone leaves its place to it.
    pub(super) fn add(&self, slots: &Arc<Mutex<Slots>>) {
        let mut pools = self.pools.lock();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(slots));
    }

    /// Takes room for a session of `owner`. At the limit, evicts the session that has been idle for longest.
    pub(super) fn room(&self, owner: &Owner) -> Result<Room, NoSession> {
        loop {
            let PoolLimits { per_owner, all } = self.limits;
            let (of, full) = match Room::take(&self.open, owner, self.limits) {
                Ok(room) => return Ok(room),
                Err(Full::OfOwner) => {
                    (Some(owner), format!("server.max_sessions_per_owner = {per_owner} sessions of yours are in use"))
                }
                Err(Full::InAll) => (None, format!("server.max_sessions = {all} sessions with servers are in use")),
            };
            if !self.evict(of) {
                return Err(NoSession::Full(format!("limit reached: {full}; try again later")));
            }
        }
    }

    /// Ends the session that has been idle for longest, of one owner or of all. Returns whether there was one.
    fn evict(&self, of: Option<&Owner>) -> bool {
        let pools: Vec<_> = self.pools.lock().iter().filter_map(Weak::upgrade).collect();
        let fits = |key: &PoolKey| of.is_none_or(|owner| key.owner == *owner);
        loop {
            let longest = pools.iter().filter_map(|pool| Some((pool.lock().idle_longest(fits)?, pool)));
            let Some((longest, pool)) = longest.max_by_key(|(idle, _)| *idle) else { return false };
            // It ends outside of the lock.
            let evicted = pool.lock().take_idle(fits, longest);
            // Otherwise a call has got it meanwhile, and another one may be idle.
            if evicted.is_some() {
                return true;
            }
        }
    }
}
