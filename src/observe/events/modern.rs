//! What happens to clients of revision 2026-07-28 besides their tasks.

use crate::observe::{Event, Metrics, metrics::ReasonLabels};

/// A session with a server was opened for callers that have none.
#[derive(Debug)]
pub struct PooledSessionOpened<'a> {
    /// The upstream.
    pub upstream: &'a str,
}

impl Event for PooledSessionOpened<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.pooled_sessions.inc();
        tracing::debug!(upstream = self.upstream, "a session for callers without sessions was opened");
    }
}

/// Such a session ended.
#[derive(Debug)]
pub struct PooledSessionEnded<'a> {
    /// The upstream.
    pub upstream: &'a str,
}

impl Event for PooledSessionEnded<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.pooled_sessions.dec();
        tracing::debug!(upstream = self.upstream, "a session for callers without sessions ended");
    }
}

/// A call has asked, and waits for its client's retry.
#[derive(Debug)]
pub struct CallParked;

impl Event for CallParked {
    fn tell(&self, metrics: &Metrics) {
        metrics.parked_calls.inc();
    }
}

/// Such a call goes on, or was given up.
#[derive(Debug)]
pub struct CallUnparked;

impl Event for CallUnparked {
    fn tell(&self, metrics: &Metrics) {
        metrics.parked_calls.dec();
    }
}

/// A client subscribed to notifications.
#[derive(Debug)]
pub struct SubscriptionOpened;

impl Event for SubscriptionOpened {
    fn tell(&self, metrics: &Metrics) {
        metrics.subscriptions.inc();
    }
}

/// A subscription ended.
#[derive(Debug)]
pub struct SubscriptionEnded;

impl Event for SubscriptionEnded {
    fn tell(&self, metrics: &Metrics) {
        metrics.subscriptions.dec();
    }
}

/// A request of a client without a session goes to a server.
#[derive(Debug)]
pub struct CallBegun;

impl Event for CallBegun {
    fn tell(&self, metrics: &Metrics) {
        metrics.sessionless_requests.inc();
    }
}

/// Such a request has been answered, given up, or became a task.
#[derive(Debug)]
pub struct CallOver;

impl Event for CallOver {
    fn tell(&self, metrics: &Metrics) {
        metrics.sessionless_requests.dec();
    }
}

/// A server asked in the course of such a request, and a limit refused it in the client's place.
#[derive(Debug)]
pub struct CallNotAsked {
    /// The limit that was reached, in a word.
    pub reason: &'static str,
}

impl Event for CallNotAsked {
    fn tell(&self, metrics: &Metrics) {
        let reason = self.reason;
        metrics.questions_refused.get_or_create(&ReasonLabels { reason }).inc();
        tracing::debug!(reason, "question of a request without a session refused");
    }
}
