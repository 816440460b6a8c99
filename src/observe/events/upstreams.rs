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

/// An upstream told the status of a task of its own where its tasks are hidden.
#[derive(Debug)]
pub struct StatusHidden;

impl Event for StatusHidden {
    fn tell(&self, metrics: &Metrics) {
        metrics.hidden_statuses.inc();
        tracing::debug!("the status of a task that the server has itself was dropped");
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
