//! What a server says of itself and the configuration did not know, each told once in the log: tools that no pattern
//! matches, and tasks of its own that no limit holds for.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::{
    config::{Native, Policy},
    observe::{Observer, events},
    session::Tasks,
    wire::{
        Message,
        message::Outcome,
        tools::{listed, next_cursor},
    },
};

/// What has not been told yet of one upstream.
#[derive(Debug, Default)]
pub struct Hints {
    /// The patterns that no tool has matched so far; `None` once the server has listed all of its tools.
    unmatched: Mutex<Option<Vec<Box<str>>>>,
    native: AtomicBool,
}

impl Hints {
    /// Returns the hints for an upstream with this policy.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let patterns: Vec<Box<str>> = policy.patterns().map(Into::into).collect();
        Self { unmatched: Mutex::new(Some(patterns).filter(|patterns| !patterns.is_empty())), ..Self::default() }
    }

    /// Takes in an answer to `tools/list`. The last page has a client who has seen the ones before, and so has taskgate.
    pub(super) fn tools(&self, path: &str, policy: &Policy, answer: &Message, observer: &Observer) {
        let mut unmatched = self.unmatched.lock();
        let Some(patterns) = &mut *unmatched else { return };
        let Some((Outcome::Result, page)) = answer.outcome() else { return };
        let Ok(tools) = listed(page) else { return };
        for tool in &tools {
            let matching: Vec<&str> = policy.matching(&tool.name).collect();
            patterns.retain(|pattern| !matching.contains(&&**pattern));
        }
        if next_cursor(page).is_some() {
            return;
        }
        let patterns = unmatched.take().unwrap_or_default();
        drop(unmatched);
        if !patterns.is_empty() {
            observer.emit(events::PatternsUnmatched { path, patterns: &patterns.join(", ") });
        }
    }

    /// Takes in who serves the tasks of a session.
    pub(super) fn session(&self, path: &str, native: Native, tasks: Tasks, observer: &Observer) {
        if tasks == Tasks::Native && native == Native::Keep && !self.native.swap(true, Ordering::Relaxed) {
            observer.emit(events::LimitsVoid { path });
        }
    }
}
