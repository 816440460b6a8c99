//! HTTP in, HTTP out: the MCP endpoint towards clients (revision 2025-11-25, "Streamable HTTP"). This file has what
//! every request may need, and finds, loses and ends sessions.

pub mod admin;
mod answer;
mod body;
mod channel;
mod connections;
mod delete;
mod get;
mod headers;
mod inline;
mod intake;
mod listener;
mod native;
mod old_sse;
mod origin;
mod post;
mod protected;
mod rates;
mod refuse;
mod room;
mod service;
mod session;
mod sse;
mod stdio;
mod stop;
mod tls;
mod turned_away;
mod upstreams;
mod watched;

use std::{sync::Arc, time::Duration};

use http::HeaderMap;

pub use body::Body;
pub use intake::Bodies;
pub use listener::{Limits, Listener, serve};
pub use old_sse::Channels;
pub use service::Endpoint;
pub use tls::Tls;
pub use upstreams::{Door, Served, Upstreams};

use self::{
    headers::{SESSION_ID, end_to_end},
    refuse::Refusal,
};
use crate::{
    config::{Protected, UpstreamId},
    dialect::legacy::Legacy,
    flow::Capacity,
    identity::{Hosts, Identity, Owner, Principal},
    limit::Accounts,
    observe::Observer,
    session::{Session, SessionGuard, Sessions},
    task::{Engine, LastingWork},
    upstream::{Server, Upstream},
    wire::ids,
};

/// An answer to a client.
pub type Response = http::Response<Body>;

/// Everything that a request may need; one a process.
#[derive(Debug)]
pub struct Gate {
    /// Which Host and Origin headers are accepted.
    pub hosts: Hosts,
    /// What the URLs of the endpoints begin with: `http` or `https`.
    pub scheme: &'static str,
    /// Who is asking.
    pub identity: Identity,
    /// What clients are told about whose tokens are accepted.
    pub protected: Option<Protected>,
    /// The open sessions.
    pub sessions: Sessions,
    /// What each owner has left of its rates.
    pub accounts: Accounts,
    /// The tasks.
    pub engine: Arc<Engine>,
    /// Answers legacy clients from the engine.
    pub legacy: Legacy,
    /// The upstreams, and the paths that lead to them.
    pub upstreams: Upstreams,
    /// The open streams of clients of the older transport.
    pub channels: Channels,
    /// What holds for the bodies of requests.
    pub bodies: Bodies,
    /// What may wait for readers.
    pub outbox: Arc<Capacity>,
    /// How many streams of one session may answer requests at once.
    pub max_streams: usize,
    /// Where to report.
    pub observer: Arc<Observer>,
}

impl Gate {
    /// The headers of a request that go on to the upstream, in memory of their own. A child process gets none.
    #[allow(clippy::needless_pass_by_value, reason = "as they came they must not outlive this")]
    fn onward(upstream: &Upstream, headers: HeaderMap) -> Result<HeaderMap, Refusal> {
        match &upstream.server {
            Server::Http(_) => end_to_end(&headers, upstream.forward_authorization),
            Server::Stdio(_) => Ok(HeaderMap::new()),
        }
    }

    /// The session that a request names, in use as long as the request is. A session of another principal, or behind another path, is as unknown as one
    /// that never was.
    fn session(
        &self,
        upstream: &UpstreamId,
        principal: Option<&Principal>,
        headers: &HeaderMap,
    ) -> Result<SessionGuard, Refusal> {
        let id = headers.get(SESSION_ID).ok_or_else(Refusal::no_session_id)?;
        let id = id.to_str().ok().and_then(ids::parse);
        let is_theirs = |session: &Session| {
            session.caller.upstream.id == *upstream
                && match &session.caller.owner {
                    Owner::Session(_) => principal.is_none(),
                    Owner::Principal { name, .. } => principal.is_some_and(|principal| principal.name == *name),
                }
        };
        id.and_then(|id| self.sessions.get(id, is_theirs)).ok_or_else(Refusal::unknown_session)
    }

    /// A session whose upstream has ended is over for the client, which starts anew; but its tasks can still be asked
    /// for until their ttl is over, so it is only ended here if it has none.
    async fn lost(&self, session: &Session) -> Refusal {
        if self.engine.release(session, || true).await {
            self.end(session, HeaderMap::new(), "upstream lost").await;
        }
        Refusal::unknown_session()
    }

    /// Ends a session, and its tasks with it where they belong to nobody else.
    pub async fn end(&self, session: &Session, headers: HeaderMap, reason: &'static str) {
        let Some(session) = self.sessions.take(session.id, reason) else { return };
        let engine = Arc::clone(&self.engine);
        // No other request finds it from here on.
        let ending = LastingWork::new(async move {
            // First the calls, so that the upstream is told that they are cancelled.
            engine.end_session(&session).await;
            session.end(headers);
            engine.session_ended(&session);
        });
        ending.await;
    }

    /// Ends the sessions that have not been used for `idle`. A session with tasks stays as long as they are kept:
    /// an acknowledged task is never lost before its ttl is over.
    pub async fn end_idle(&self, idle: Duration) {
        for session in self.sessions.idle(idle) {
            let still_idle = || session.idle() >= idle;
            let released = match session.caller.owner {
                Owner::Session(_) => self.engine.release(&session, still_idle).await,
                // Its tasks do not need it.
                Owner::Principal { .. } => session.refuse_tasks(async { still_idle() }).await,
            };
            if released {
                self.end(&session, HeaderMap::new(), "idle").await;
            }
        }
    }

    /// Tells the requests that have waited for long that nothing has come yet, so that heartbeats begin, and lets go of
    /// streams that nobody has come back for, and of the sessions of tokens that the upstream has refused: a refusal is
    /// remembered for a time, and only a new session asks the upstream again. To be called every few seconds.
    pub async fn tick(&self) {
        for session in self.sessions.all() {
            if let Owner::Principal { upstream, name } = &session.caller.owner
                && self.identity.has_refused(upstream, name)
            {
                self.end(&session, HeaderMap::new(), "token refused").await;
                continue;
            }
            session.tick();
        }
    }
}
