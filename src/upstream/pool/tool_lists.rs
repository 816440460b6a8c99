//! What is known of a server's tools for callers whose calls each have a session of their own, which would have to ask
//! anew.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use moka::sync::Cache;

use super::PoolKey;
use crate::upstream::KnownTools;

/// For how many keys lists are kept.
const MAX: u64 = 64;
/// How long they are kept: a session that has ended does not hear that the tools have changed.
const KEPT: Duration = Duration::from_mins(5);

/// The lists, each by the key of the calls that it is for. Made for the first of them: an empty cache takes memory too.
#[derive(Debug)]
pub(super) struct ToolLists(LazyLock<Cache<PoolKey, Arc<KnownTools>>>);

impl Default for ToolLists {
    fn default() -> Self {
        Self(LazyLock::new(|| Cache::builder().max_capacity(MAX).time_to_live(KEPT).build()))
    }
}

impl ToolLists {
    /// Returns what is known for the calls of a key, to which their sessions add.
    pub(super) fn of(&self, key: &PoolKey) -> Arc<KnownTools> {
        self.0.get_with_by_ref(key, Arc::default)
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderMap;

    use super::*;
    use crate::{identity::Owner, wire::ClientCapabilities};

    fn key(name: usize) -> PoolKey {
        let owner = Owner::principal("/mcp".into(), name.to_string().into());
        PoolKey::new(owner, ClientCapabilities::default(), &HeaderMap::new())
    }

    #[test]
    fn lists_are_bounded_and_those_of_a_key_are_one() {
        let lists = ToolLists::default();
        for name in 0..3 * usize::try_from(MAX).expect("small") {
            assert!(Arc::ptr_eq(&lists.of(&key(name)), &lists.of(&key(name))));
        }
        assert!(!Arc::ptr_eq(&lists.of(&key(0)), &lists.of(&key(1))));
        lists.0.run_pending_tasks();
        assert!(lists.0.entry_count() <= MAX);
    }
}
