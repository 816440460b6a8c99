//! Which resources a server is to tell of, and what it was told last.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::flow::Tally;

/// How many subscriptions each resource has, and what the server knows of it.
#[derive(Debug, Default)]
pub(super) struct Resources {
    state: Mutex<State>,
    /// Wakes those who wait for what the server answers.
    answered: Notify,
}

#[derive(Debug, Default)]
struct State {
    wanted: Tally<String>,
    /// Those that the server was asked to tell of.
    told: HashMap<String, Told>,
    /// Those of which the server has to be told.
    changed: BTreeSet<String>,
    /// Whether a task tells the server.
    telling: bool,
}

/// What the server has said to a request to tell of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Nothing yet.
    Asked,
    /// That it does.
    Agreed,
    /// Nothing, and it will not any more.
    Unsure,
}

/// A request that the server has to get.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Telling {
    pub(super) method: &'static str,
    pub(super) uri: String,
}

impl Resources {
    /// Counts subscriptions that begin, or that end. Returns whether a task has to begin that asks for
    /// [`Resources::next`].
    pub(super) fn count<'u>(&self, uris: impl Iterator<Item = &'u String>, begins: bool) -> bool {
        let mut state = self.state.lock();
        for uri in uris {
            if begins {
                state.wanted.add(uri, 1);
            } else {
                state.wanted.take(uri, 1);
            }
            let has_changed = match state.told.get(uri) {
                Some(told) if begins => *told == Told::Unsure,
                Some(_) => state.wanted.of(uri) == 0,
                None => begins,
            };
            if has_changed {
                state.changed.insert(uri.clone());
            }
        }
        !state.changed.is_empty() && !std::mem::replace(&mut state.telling, true)
    }

    /// Notes that the server tells of a resource.
    pub(super) fn agreed(&self, uri: &str) {
        self.answer(uri, Told::Agreed);
    }

    /// Notes that the server does not tell of a resource: the next subscription asks again.
    pub(super) fn refused(&self, uri: &str) {
        self.state.lock().told.remove(uri);
        self.answered.notify_waiters();
    }

    /// Notes that the server has not answered whether it tells of a resource: the next subscription asks again, and the
    /// end of the last one has the server stop.
    pub(super) fn unanswered(&self, uri: &str) {
        self.answer(uri, Told::Unsure);
    }

    fn answer(&self, uri: &str, answer: Told) {
        if let Some(told) = self.state.lock().told.get_mut(uri) {
            *told = answer;
        }
        self.answered.notify_waiters();
    }

    /// Waits until the server has answered for each of these resources, or is not asked any more.
    pub(super) async fn settled(&self, uris: &[String]) {
        loop {
            let answered = self.answered.notified();
            let is_open = |state: &State, uri: &String| {
                state.changed.contains(uri) || state.told.get(uri).is_some_and(|told| *told == Told::Asked)
            };
            {
                let state = self.state.lock();
                if !uris.iter().any(|uri| is_open(&state, uri)) {
                    return;
                }
            }
            answered.await;
        }
    }

    /// Returns whether the server has said that it tells of a resource.
    pub(super) fn are_told(&self, uri: &str) -> bool {
        self.state.lock().told.get(uri) == Some(&Told::Agreed)
    }

    /// Returns what the server has to be told next; `None` where it knows all, and the task that asks has to end.
    pub(super) fn next(&self) -> Option<Telling> {
        let mut state = self.state.lock();
        while let Some(uri) = state.changed.pop_first() {
            match (state.wanted.of(&uri) > 0, state.told.get(&uri)) {
                (true, None | Some(Told::Unsure)) => {
                    state.told.insert(uri.clone(), Told::Asked);
                    return Some(Telling { method: "resources/subscribe", uri });
                }
                (false, Some(_)) => {
                    state.told.remove(&uri);
                    return Some(Telling { method: "resources/unsubscribe", uri });
                }
                // It has changed back.
                (true, Some(Told::Asked | Told::Agreed)) | (false, None) => {}
            }
        }
        state.telling = false;
        self.answered.notify_waiters();
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
        assert!(resources.state.lock().wanted.is_empty());
    }

    #[test]
    fn a_server_that_has_not_agreed_is_asked_again_by_the_next_subscription_and_to_stop_only_if_it_may_have() {
        let resources = Resources::default();
        let uri = "file:///a".to_owned();
        let count = |begins| resources.count(std::iter::once(&uri), begins);
        let next = || resources.next().map(|telling| telling.method);
        for _ in 0..2 {
            assert!(count(true));
            assert_eq!(next(), Some("resources/subscribe"));
            resources.refused(&uri);
            assert_eq!(next(), None);
        }
        assert!(!count(false) && !count(false), "it tells of nothing");
        assert!(count(true));
        assert_eq!(next(), Some("resources/subscribe"));
        resources.unanswered(&uri);
        assert_eq!(next(), None);
        assert!(count(true));
        assert_eq!((next(), next()), (Some("resources/subscribe"), None));
        assert!(!resources.are_told(&uri));
        resources.agreed(&uri);
        assert!(resources.are_told(&uri));
        resources.unanswered(&uri);
        assert!(!count(false) && count(false));
        assert_eq!((next(), next()), (Some("resources/unsubscribe"), None));
    }
}
