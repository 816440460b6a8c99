//! What clients do, besides tasks.

use crate::observe::{Event, Line, Metrics, Who, metrics::ReasonLabels};

/// A client connected.
#[derive(Debug)]
pub struct ConnectionOpened;

impl Event for ConnectionOpened {
    fn tell(&self, metrics: &Metrics) {
        metrics.connections.inc();
    }
}

/// A connection ended, however.
#[derive(Debug)]
pub struct ConnectionEnded;

impl Event for ConnectionEnded {
    fn tell(&self, metrics: &Metrics) {
        metrics.connections.dec();
    }
}

/// Connections are closed on which no whole request has come.
#[derive(Debug)]
pub struct ConnectionsCut {
    /// The limit that is the reason.
    pub reason: &'static str,
    /// How many.
    pub count: usize,
}

impl Event for ConnectionsCut {
    fn tell(&self, metrics: &Metrics) {
        metrics.connections_cut.get_or_create(&ReasonLabels { reason: self.reason }).inc_by(self.count as u64);
        tracing::debug!(reason = self.reason, count = self.count, "connections without a whole request were closed");
    }
}

/// A client opened a session.
#[derive(Debug)]
pub struct SessionOpened<'a> {
    /// Whose it is.
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
    /// Whose it was.
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

/// A session that was not in use ended to make room for a new one.
#[derive(Debug)]
pub struct SessionGaveWay {
    /// The limit that is the reason.
    pub limit: &'static str,
    /// How long nothing had been heard of it.
    pub silent: std::time::Duration,
}

impl Event for SessionGaveWay {
    fn tell(&self, metrics: &Metrics) {
        metrics.sessions_evicted.get_or_create(&ReasonLabels { reason: self.limit }).inc();
        let (limit, silent) = (self.limit, self.silent);
        tracing::info!(limit, ?silent, "a session without stream, request or task gives way to a new one");
    }
}

/// An HTTP request was refused before it became a message.
#[derive(Debug)]
pub struct RequestRefused<'a> {
    /// Whose session it came in, if that is known.
    pub who: Option<&'a Who>,
    /// Why, as a short constant.
    pub reason: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// The Host or Origin that is the reason, fit for a message.
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
                    "a request for a foreign host was refused; if it is one of yours, add it to server.allowed_hosts"
                );
            }
            ("origin", Some(origin)) => {
                tracing::warn!(
                    origin,
                    "a request of a foreign web page was refused; if it is one of yours, add it to server.allowed_origins"
                );
            }
            ("modern", _) => {
                tracing::info!(
                    session,
                    upstream,
                    "a request of a revision without sessions was answered 400, so that its client goes back to initialize"
                );
            }
            (reason, _) => tracing::debug!(reason, status = self.status, session, upstream, "request refused"),
        }
    }

    fn audit(&self) -> Option<Line<'_>> {
        Some(Line::new("request_refused", self.who, self.reason))
    }
}

/// Somebody cancelled a request that they have not in flight, or a task by the wrong means.
#[derive(Debug)]
pub struct CancellationIgnored<'a> {
    /// Who.
    pub who: &'a Who,
}

impl Event for CancellationIgnored<'_> {
    fn tell(&self, _metrics: &Metrics) {
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::debug!(session, upstream, "a cancellation of no open request was ignored");
    }

    fn audit(&self) -> Option<Line<'_>> {
        Some(Line::new("cancellation_ignored", Some(self.who), "unknown"))
    }
}

/// A client answered a question that is not open, or not its own.
#[derive(Debug)]
pub struct UnknownAnswer<'a> {
    /// Who.
    pub who: &'a Who,
}

impl Event for UnknownAnswer<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.unknown_answers.inc();
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::warn!(session, upstream, "an answer to no open question was dropped");
    }

    fn audit(&self) -> Option<Line<'_>> {
        Some(Line::new("answer_ignored", Some(self.who), "unknown"))
    }
}
