//! Tells in the log, once each, where the configuration does not fit the server: patterns that match no tool, and
//! limits that do not hold because the server has tasks of its own.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use crate::{
    config::{Policy, UpstreamId},
    observe::{Observer, events},
    wire::{
        Message,
        message::Outcome,
        tools::{listed, next_cursor},
    },
};

/// The hints about one upstream that the log has not had yet.
#[derive(Debug, Default)]
pub struct Hints {
    /// `None` once the server has listed all of its tools.
    patterns: Mutex<Option<Patterns>>,
    /// Whether the log was told that the server has tasks of its own.
    native: AtomicBool,
    /// Whether the log was told that the server has no sessions.
    modern: AtomicBool,
}

/// What is known of the patterns while the server lists its tools.
#[derive(Debug)]
struct Patterns {
    /// The patterns that no tool has matched so far.
    unmatched: Vec<Box<str>>,
    /// The patterns whose limits do not hold, because the server runs their tool as a task of its own.
    void: BTreeSet<Box<str>>,
}

impl Hints {
    /// Returns the hints for an upstream with this policy.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let unmatched: Vec<Box<str>> = policy.patterns().map(Into::into).collect();
        let patterns = (!unmatched.is_empty()).then(|| Patterns { unmatched, void: BTreeSet::new() });
        Self { patterns: Mutex::new(patterns), ..Self::default() }
    }

    /// Takes in an answer to `tools/list`. `keeps`: the server keeps its tasks where it lists them. A client that asks
    /// for the last page has asked for the earlier ones, so they have been taken in too.
    pub fn tools(&self, upstream: &UpstreamId, policy: &Policy, keeps: bool, answer: &Message, observer: &Observer) {
        let mut kept = self.patterns.lock();
        let Some(patterns) = &mut *kept else { return };
        let Some((Outcome::Result, page)) = answer.outcome() else { return };
        let Ok(tools) = listed(page) else { return };
        for tool in &tools {
            let matching: Vec<&str> = policy.matching(&tool.name).collect();
            patterns.unmatched.retain(|pattern| !matching.contains(&&**pattern));
            if keeps && tool.native {
                patterns.void.extend(policy.limiting_pattern(&tool.name).map(Into::into));
            }
        }
        if next_cursor(page).is_some() {
            return;
        }
        let (upstream, Some(Patterns { unmatched, void })) = (upstream.as_str(), kept.take()) else { return };
        drop(kept);
        if !unmatched.is_empty() {
            observer.emit(events::PatternsUnmatched { upstream, patterns: &unmatched.join(", ") });
        }
        if !void.is_empty() {
            let patterns = &Vec::from_iter(void).join(", ");
            observer.emit(events::PatternsVoid { upstream, patterns });
        }
    }

    /// Notes that the server has tasks of its own, which taskgate leaves to it.
    pub fn note_own_tasks(&self, upstream: &UpstreamId, observer: &Observer) {
        if !self.native.swap(true, Ordering::Relaxed) {
            observer.emit(events::LimitsVoid { upstream: upstream.as_str() });
        }
    }

    /// Notes that the server has no sessions, so that legacy clients cannot use it.
    pub fn note_no_sessions(&self, upstream: &UpstreamId, observer: &Observer) {
        if !self.modern.swap(true, Ordering::Relaxed) {
            observer.emit(events::NoSessionsThere { upstream: upstream.as_str() });
        }
    }
}
