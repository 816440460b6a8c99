//! What clients do, apart from tasks.

use std::{io, net::IpAddr};

use crate::observe::{AuditLine, Event, Metrics, Who, metrics::ReasonLabels};

/// A client connected.
#[derive(Debug)]
pub struct ConnectionOpened;

impl Event for ConnectionOpened {
    fn tell(&self, metrics: &Metrics) {
        metrics.connections.inc();
    }
}

/// A connection ended, in whatever way.
#[derive(Debug)]
pub struct ConnectionEnded;

impl Event for ConnectionEnded {
    fn tell(&self, metrics: &Metrics) {
        metrics.connections.dec();
    }
}

/// taskgate closes connections on which no whole request has come, or makes room by closing some.
#[derive(Debug)]
pub struct ConnectionsCut {
    /// The limit that was reached.
    pub reason: &'static str,
    /// How many.
    pub count: usize,
}

impl Event for ConnectionsCut {
    fn tell(&self, metrics: &Metrics) {
        metrics.connections_cut.get_or_create(&ReasonLabels { reason: self.reason }).inc_by(self.count as u64);
        tracing::debug!(
            reason = self.reason,
            count = self.count,
            "connections were closed, as no whole request came or to make room"
        );
    }
}

/// A connection of a client ended before its TLS was agreed.
#[derive(Debug)]
pub struct TlsHandshakeFailed<'a> {
    /// Where the connection came from.
    pub peer: IpAddr,
    /// Why.
    pub error: &'a io::Error,
}

impl Event for TlsHandshakeFailed<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.tls_handshakes_failed.inc();
        tracing::debug!(peer = %self.peer, error = %self.error, "a TLS handshake failed");
    }
}

/// A client opened a session.
#[derive(Debug)]
pub struct SessionOpened<'a> {
    /// The session, and its owner.
    pub who: &'a Who,
    /// The revision agreed with the client.
    pub version: &'a str,
    /// Whether taskgate serves tasks in it.
    pub tasks: bool,
}

impl Event for SessionOpened<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.sessions.inc();
        metrics.sessions_opened.inc();
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::info!(session, upstream, version = self.version, tasks = self.tasks, "session opened");
    }
}

/// A session ended.
#[derive(Debug)]
pub struct SessionEnded<'a> {
    /// The session, and its owner.
    pub who: &'a Who,
    /// Why.
    pub reason: &'static str,
}

impl Event for SessionEnded<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.sessions.dec();
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::info!(session, upstream, reason = self.reason, "session ended");
    }
}

/// A session that was not in use was evicted to make room for a new one.
#[derive(Debug)]
pub struct SessionEvicted {
    /// The limit that was reached.
    pub limit: &'static str,
    /// How long it had been silent.
    pub silent: std::time::Duration,
}

impl Event for SessionEvicted {
    fn tell(&self, metrics: &Metrics) {
        metrics.sessions_evicted.get_or_create(&ReasonLabels { reason: self.limit }).inc();
        let (limit, silent) = (self.limit, self.silent);
        tracing::info!(limit, ?silent, "a session without stream, request or task was evicted for a new one");
    }
}

/// A request or message of a client was refused, and went to no server.
#[derive(Debug)]
pub struct RequestRefused<'a> {
    /// The session that it came in and its owner, if they are known.
    pub who: Option<&'a Who>,
    /// Why, as a short constant.
    pub reason: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// The foreign Host or Origin, fit for a message.
    pub foreign: Option<&'a str>,
}

impl Event for RequestRefused<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.requests_refused.get_or_create(&ReasonLabels { reason: self.reason }).inc();
        let (session, upstream) = (self.who.map(Who::session), self.who.map(Who::upstream));
        match (self.reason, self.foreign) {
            // What an operator has to know to let a client in.
            ("host", Some(host)) => {
                tracing::warn!(
                    host,
                    "a request for a foreign host was refused; if the host is one of yours, add it to server.allowed_hosts"
                );
            }
            ("origin", Some(origin)) => {
                tracing::warn!(
                    origin,
                    "a request of a foreign web page was refused; if the page is one of yours, add it to server.allowed_origins"
                );
            }
            ("modern", _) => {
                tracing::info!(
                    session,
                    upstream,
                    "a request of a revision without sessions was answered with 400, so that its client falls back to initialize"
                );
            }
            (reason, _) => tracing::debug!(reason, status = self.status, session, upstream, "request refused"),
        }
    }

    fn audit(&self) -> Option<AuditLine<'_>> {
        Some(AuditLine::new("request_refused", self.who, self.reason))
    }
}

/// A client cancelled a request that is not in flight in its session, or a task by the wrong means.
#[derive(Debug)]
pub struct CancellationIgnored<'a> {
    /// The client's session, and its owner.
    pub who: &'a Who,
}

impl Event for CancellationIgnored<'_> {
    fn tell(&self, _metrics: &Metrics) {
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::debug!(session, upstream, "a cancellation was ignored: no such request is in flight");
    }

    fn audit(&self) -> Option<AuditLine<'_>> {
        Some(AuditLine::new("cancellation_ignored", Some(self.who), "unknown"))
    }
}

/// A client sent a `requestState` that is not good here and now.
#[derive(Debug)]
pub struct RequestStateRefused<'a> {
    /// Who sent it.
    pub who: &'a Who,
}

impl Event for RequestStateRefused<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.unknown_answers.inc();
        let upstream = self.who.upstream();
        tracing::warn!(
            upstream,
            "a requestState was refused: it is forged, of another request, too old, used before, or of a call that a restart has ended"
        );
    }

    fn audit(&self) -> Option<AuditLine<'_>> {
        Some(AuditLine::new("request_state_refused", Some(self.who), "invalid"))
    }
}

/// A client answered a question that is not open, or that another session was asked.
#[derive(Debug)]
pub struct UnknownAnswer<'a> {
    /// The client's session, and its owner.
    pub who: &'a Who,
}

impl Event for UnknownAnswer<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.unknown_answers.inc();
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::warn!(session, upstream, "an answer was dropped: no such question is open");
    }

    fn audit(&self) -> Option<AuditLine<'_>> {
        Some(AuditLine::new("answer_ignored", Some(self.who), "unknown"))
    }
}
