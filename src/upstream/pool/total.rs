//! The limits that the pools of all upstreams share, and which session gives way when one is reached.

use std::sync::Arc;

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
    pools: Mutex<Vec<Arc<Mutex<Slots>>>>,
}

impl PoolsTotal {
    /// Returns what pools share that hold as many sessions as `limits` say.
    #[must_use]
    pub fn new(limits: PoolLimits) -> Arc<Self> {
        Arc::new(Self { limits, open: Arc::default(), pools: Mutex::default() })
    }

    /// Adds a pool.
    pub(super) fn add(&self, slots: &Arc<Mutex<Slots>>) {
        self.pools.lock().push(Arc::clone(slots));
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
        let pools = self.pools.lock().clone();
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
