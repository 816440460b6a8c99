//! How many sessions the pools of all upstreams have open, of each owner and in all.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{flow::Tally, identity::Owner};

/// How many sessions pools hold.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// For one owner.
    pub per_owner: usize,
    /// In all.
    pub all: usize,
}

/// How many sessions are open.
#[derive(Debug, Default)]
pub(super) struct OpenSessions {
    all: usize,
    owners: Tally<Owner>,
}

/// Counts a session as open while it lives.
#[derive(Debug)]
pub(super) struct Room {
    open: Arc<Mutex<OpenSessions>>,
    owner: Owner,
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    OfOwner,
    InAll,
}

impl Room {
    /// Takes room for one more session.
    pub(super) fn take(open: &Arc<Mutex<OpenSessions>>, owner: &Owner, limits: PoolLimits) -> Result<Self, Full> {
        let mut counts = open.lock();
        if counts.owners.of(owner) >= limits.per_owner {
            return Err(Full::OfOwner);
        }
        if counts.all >= limits.all {
            return Err(Full::InAll);
        }
        counts.owners.add(owner, 1);
        counts.all += 1;
        Ok(Self { open: Arc::clone(open), owner: owner.clone() })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        open.all -= 1;
        open.owners.take(&self.owner, 1);
    }
}
