//! What upstreams do.

use uuid::Uuid;

use crate::observe::{Event, Metrics, Who};

/// Why a message got no answer, as the log says it.
#[derive(Debug)]
pub struct Cause {
    /// What kind of failure it was.
    pub kind: &'static str,
    /// What failed, without any text from a body.
    pub text: String,
    /// Whether the server, or the connection to it, failed.
    pub of_server: bool,
}

/// The upstream did not answer a message, or did not take it.
#[derive(Debug)]
pub struct ExchangeFailed<'a> {
    /// The path of the upstream.
    pub upstream: &'a str,
    /// The session that it was in and its owner, if there was one yet.
    pub who: Option<&'a Who>,
    /// The task that it belongs to, if any.
    pub task: Option<Uuid>,
    /// Why.
    pub cause: Cause,
}

impl Event for ExchangeFailed<'_> {
    fn tell(&self, metrics: &Metrics) {
        let Self { upstream, who, task, cause: Cause { kind, text, of_server } } = self;
        let (session, task) = (who.map(Who::session), task.map(tracing::field::display));
        if *of_server {
            metrics.exchange_failures.inc();
            // In a field of its own, which is quoted: the text has words of the upstream.
            tracing::warn!(session, upstream, task, kind, failure = text, "request failed upstream");
        } else {
            tracing::debug!(
                session,
                upstream,
                task,
                kind,
                "the client left, or its session ended, before the request was answered"
            );
        }
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

/// An upstream sent a notification that taskgate has to read and cannot: a member is missing, of another type, or there
/// twice.
#[derive(Debug)]
pub struct MessageUnreadable;

impl Event for MessageUnreadable {
    fn tell(&self, metrics: &Metrics) {
        metrics.unreadable_messages.inc();
        tracing::debug!("a notification that cannot be read was dropped");
    }
}

/// An upstream told of its own task where its tasks are hidden.
#[derive(Debug)]
pub struct StatusHidden;

impl Event for StatusHidden {
    fn tell(&self, metrics: &Metrics) {
        metrics.hidden_statuses.inc();
        tracing::debug!("the status of one of the server's own tasks was dropped");
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

/// An upstream has listed all its tools, and some patterns match none of them.
#[derive(Debug)]
pub struct PatternsUnmatched<'a> {
    /// The upstream's path.
    pub upstream: &'a str,
    /// The patterns.
    pub patterns: &'a str,
}

impl Event for PatternsUnmatched<'_> {
    fn tell(&self, _: &Metrics) {
        let Self { upstream, patterns } = self;
        tracing::warn!(
            upstream,
            patterns,
            "patterns of [upstream.tools] match none of the tools that the server lists"
        );
    }
}

/// An upstream has listed all its tools, and keeps its own tasks for some to which patterns set limits.
#[derive(Debug)]
pub struct PatternsVoid<'a> {
    /// The upstream's path.
    pub upstream: &'a str,
    /// The patterns.
    pub patterns: &'a str,
}

impl Event for PatternsVoid<'_> {
    fn tell(&self, _: &Metrics) {
        let Self { upstream, patterns } = self;
        tracing::warn!(
            upstream,
            patterns,
            "the server keeps its own tasks for tools of these patterns of [upstream.tools], whose limits do not hold for \
             them; with native = \"replace\" they do"
        );
    }
}

/// An upstream has tasks of its own, and `native = "keep"` leaves them to it.
#[derive(Debug)]
pub struct LimitsVoid<'a> {
    /// The upstream's path.
    pub upstream: &'a str,
}

impl Event for LimitsVoid<'_> {
    fn tell(&self, _: &Metrics) {
        tracing::warn!(
            upstream = self.upstream,
            "the server has tasks of its own, which native = \"keep\" leaves to it: [tasks] and [upstream.tools] do not \
             hold for them; with native = \"replace\" they do"
        );
    }
}

/// A client with sessions wants to use a server that has none.
#[derive(Debug)]
pub struct NoSessionsThere<'a> {
    /// The upstream's path.
    pub upstream: &'a str,
}

impl Event for NoSessionsThere<'_> {
    fn tell(&self, _: &Metrics) {
        tracing::warn!(
            upstream = self.upstream,
            "the server speaks revision 2026-07-28 only: clients of older revisions cannot use it, and are told so"
        );
    }
}

/// A stdio child was started.
#[derive(Debug)]
pub struct ChildStarted<'a> {
    /// The path of the upstream.
    pub upstream: &'a str,
    /// Its process id.
    pub pid: u32,
}

impl Event for ChildStarted<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.children.inc();
        tracing::info!(upstream = self.upstream, pid = self.pid, "child process started");
    }
}

/// A stdio child ended.
#[derive(Debug)]
pub struct ChildEnded<'a> {
    /// The path of the upstream.
    pub upstream: &'a str,
    /// Its process id.
    pub pid: u32,
    /// How it ended.
    pub fate: &'a str,
}

impl Event for ChildEnded<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.children.dec();
        tracing::info!(upstream = self.upstream, pid = self.pid, fate = self.fate, "child process ended");
    }
}
