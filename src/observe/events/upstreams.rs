//! What the servers behind do.

use crate::observe::{Event, Metrics};

/// An upstream gave no response to a plain request.
#[derive(Debug)]
pub struct ExchangeFailed<'a> {
    /// Why.
    pub failure: &'a dyn std::error::Error,
}

impl Event for ExchangeFailed<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.exchange_failures.inc();
        // As text, so that it is quoted: the upstream's own words are in it.
        tracing::warn!(failure = self.failure.to_string(), "request failed upstream");
    }
}

/// An upstream sent a response to no request that is in flight.
#[derive(Debug)]
pub struct UnknownResponse;

impl Event for UnknownResponse {
    fn tell(&self, metrics: &Metrics) {
        metrics.unknown_responses.inc();
        tracing::debug!("a late or unknown response was dropped");
    }
}

/// An upstream sent progress under a token that no request in flight has.
#[derive(Debug)]
pub struct UnknownProgress;

impl Event for UnknownProgress {
    fn tell(&self, metrics: &Metrics) {
        metrics.unknown_progress.inc();
        tracing::debug!("progress under an unknown token was dropped");
    }
}

/// A reader was too slow, and the least important of its messages were dropped.
#[derive(Debug)]
pub struct MessagesDropped {
    /// How many.
    pub count: usize,
}

impl Event for MessagesDropped {
    fn tell(&self, metrics: &Metrics) {
        metrics.messages_dropped.inc_by(self.count as u64);
        tracing::debug!(count = self.count, "messages to a slow reader were dropped");
    }
}

/// An upstream has listed all of its tools, and some patterns match none of them.
#[derive(Debug)]
pub struct PatternsUnmatched<'a> {
    /// The upstream's path.
    pub path: &'a str,
    /// The patterns.
    pub patterns: &'a str,
}

impl Event for PatternsUnmatched<'_> {
    fn tell(&self, _: &Metrics) {
        let Self { path, patterns } = self;
        tracing::warn!(path, patterns, "patterns of [upstream.tools] match none of the tools that the server lists");
    }
}

/// An upstream turned out to have tasks of its own, which it is left with.
#[derive(Debug)]
pub struct LimitsVoid<'a> {
    /// The upstream's path.
    pub path: &'a str,
}

impl Event for LimitsVoid<'_> {
    fn tell(&self, _: &Metrics) {
        tracing::warn!(
            path = self.path,
            "the server has tasks of its own, which native = \"keep\" leaves to it: [tasks] and [upstream.tools] do not \
             hold for them; with native = \"replace\" they do"
        );
    }
}

/// A stdio child was started.
#[derive(Debug)]
pub struct ChildStarted {
    /// Its process id.
    pub pid: u32,
}

impl Event for ChildStarted {
    fn tell(&self, metrics: &Metrics) {
        metrics.children.inc();
        tracing::info!(pid = self.pid, "child process started");
    }
}

/// A stdio child ended.
#[derive(Debug)]
pub struct ChildEnded<'a> {
    /// How.
    pub fate: &'a str,
}

impl Event for ChildEnded<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.children.dec();
        tracing::info!(fate = self.fate, "child process ended");
    }
}
