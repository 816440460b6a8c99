//! How many subscriptions are open.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    flow::Tally,
    identity::Owner,
    limit::KeptBytes,
    observe::{Observer, events},
};

/// How many subscriptions one owner may have open.
const MAX_PER_OWNER: usize = 256;
/// How many subscriptions may be open in all.
const MAX: usize = 4096;

/// The subscriptions that are open.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    counts: Mutex<Counts>,
    observer: Arc<Observer>,
}

#[derive(Debug, Default)]
struct Counts {
    owners: Tally<Owner>,
    all: usize,
}

/// Counts one subscription as open while it lives.
#[derive(Debug)]
pub(super) struct Subscribed {
    subscriptions: Arc<Subscriptions>,
    owner: Owner,
}

/// Keeps a subscription and its bytes counted while it is open.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) _subscribed: Subscribed,
    pub(super) _kept: KeptBytes,
}

impl Subscriptions {
    pub(super) fn new(observer: &Arc<Observer>) -> Arc<Self> {
        Arc::new(Self { counts: Mutex::default(), observer: Arc::clone(observer) })
    }

    /// Counts one more subscription.
    ///
    /// # Errors
    /// A sentence that says which limit is reached.
    pub(super) fn begin(self: &Arc<Self>, owner: &Owner) -> Result<Subscribed, String> {
        let mut counts = self.counts.lock();
        if counts.owners.of(owner) >= MAX_PER_OWNER {
            return Err(format!("{MAX_PER_OWNER} subscriptions of yours are open"));
        }
        if counts.all >= MAX {
            return Err(format!("{MAX} subscriptions are open"));
        }
        counts.owners.add(owner, 1);
        counts.all += 1;
        self.observer.emit(events::SubscriptionOpened);
        Ok(Subscribed { subscriptions: Arc::clone(self), owner: owner.clone() })
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        let mut counts = self.subscriptions.counts.lock();
        counts.owners.take(&self.owner, 1);
        counts.all -= 1;
        self.subscriptions.observer.emit(events::SubscriptionEnded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_a_bounded_number_of_subscriptions() {
        let (subscriptions, owner) = (Arc::<Subscriptions>::default(), Owner::anyone("/mcp".into()));
        let open: Vec<_> = (0..MAX_PER_OWNER).map(|_| subscriptions.begin(&owner).expect("room")).collect();
        assert!(subscriptions.begin(&owner).is_err());
        assert!(subscriptions.begin(&Owner::anyone("/two".into())).is_ok());
        drop(open);
        assert!(subscriptions.begin(&owner).is_ok());
        assert!(subscriptions.counts.lock().owners.is_empty());
    }
}
