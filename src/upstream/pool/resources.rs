//! Which resources a server is to tell of, and what it was told last.

use std::collections::{BTreeSet, HashSet};

use parking_lot::Mutex;

use crate::flow::Tally;

/// How many subscriptions each resource has, and what the server knows of it.
#[derive(Debug, Default)]
pub(super) struct Resources(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    wanted: Tally<String>,
    /// Those that the server was asked to tell of.
    told: HashSet<String>,
    /// Those whose count has come to zero, or left it, since the server was told.
    changed: BTreeSet<String>,
    /// Whether a task tells the server.
    telling: bool,
}

/// A request that the server has to get.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Telling {
    pub(super) method: &'static str,
    pub(super) uri: String,
}

impl Resources {
    /// Counts subscriptions that begin, or that end. Returns whether a task has to begin that asks for [`Resources::next`].
    pub(super) fn count<'u>(&self, uris: impl Iterator<Item = &'u String>, begins: bool) -> bool {
        let mut state = self.0.lock();
        for uri in uris {
            if begins {
                state.wanted.add(uri, 1);
            } else {
                state.wanted.take(uri, 1);
            }
            if state.wanted.of(uri) == usize::from(begins) {
                state.changed.insert(uri.clone());
            }
        }
        !state.changed.is_empty() && !std::mem::replace(&mut state.telling, true)
    }

    /// Returns what the server has to be told next; `None` where it knows all, and the task that asks has to end.
    pub(super) fn next(&self) -> Option<Telling> {
        let mut state = self.0.lock();
        while let Some(uri) = state.changed.pop_first() {
            match (state.wanted.of(&uri) > 0, state.told.contains(&uri)) {
                (true, false) => {
                    state.told.insert(uri.clone());
                    return Some(Telling { method: "resources/subscribe", uri });
                }
                (false, true) => {
                    state.told.remove(&uri);
                    return Some(Telling { method: "resources/unsubscribe", uri });
                }
                // It has changed back.
                (true, true) | (false, false) => {}
            }
        }
        state.telling = false;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_of_the_first_and_of_the_last_subscription_by_one_task_at_a_time() {
        let resources = Resources::default();
        let uri = "file:///a".to_owned();
        let count = |begins| resources.count(std::iter::once(&uri), begins);
        let next = || resources.next().map(|telling| telling.method);
        assert!(count(true), "a task begins");
        assert!(!count(true));
        assert_eq!(next(), Some("resources/subscribe"));
        // While the server is being told, the last subscription ends and another one begins.
        assert!(!count(false) && !count(false) && !count(true));
        assert_eq!(next(), None, "it knows already");
        assert!(count(false), "the first task is over");
        assert_eq!((next(), next()), (Some("resources/unsubscribe"), None));
        assert!(resources.0.lock().wanted.is_empty());
    }
}
