//! One upstream and everything that belongs to it.

use ::http::{HeaderMap, header};
use aws_lc_rs::digest::{SHA256, digest};

use super::{Hints, Lease, NoSession, PoolKey, Server, SessionPool, Sharing};
use crate::{
    config::{Native, Policy, Sessions, UpstreamId},
    identity::Owner,
    wire::ClientCapabilities,
};

/// Everything that belongs to one upstream. A session or task that began with it keeps it, also when the configuration
/// changes.
#[derive(Debug)]
pub struct Upstream {
    /// Its name, which is the path of its endpoint.
    pub id: UpstreamId,
    /// The path of the stream for clients of the 2024-11-05 transport, if the upstream serves them.
    pub sse_path: Option<String>,
    /// How to reach it.
    pub server: Server,
    /// Whether taskgate forwards the client's `Authorization` to it.
    pub forward_authorization: bool,
    /// What to do about tasks of its own.
    pub native: Native,
    /// Whether clients are notified when a task's state changes.
    pub status_notifications: bool,
    /// Whether clients of revision 2026-07-28 are served.
    pub modern: bool,
    /// Whose calls share a session where clients have none.
    pub sessions: Sessions,
    /// The sessions for callers that have none.
    pub pool: SessionPool,
    /// The policy of its tools.
    pub policy: Policy,
    /// What the log has to be told once about it.
    pub hints: Hints,
}

impl Upstream {
    /// Returns a session of the pool for a request of `owner`, which may be asked what `client` says in the course of it where
    /// `asks`.
    ///
    /// # Errors
    /// [`NoSession`]
    pub async fn lease(
        &self,
        owner: &Owner,
        client: ClientCapabilities,
        headers: &HeaderMap,
        asks: bool,
    ) -> Result<Lease, NoSession> {
        let credential = headers.get(header::AUTHORIZATION).map(|value| {
            let mut hash = [0; 32];
            hash.copy_from_slice(digest(&SHA256, value.as_bytes()).as_ref());
            hash
        });
        let key = PoolKey { owner: owner.clone(), credential, client };
        // Where the transport does not say which call asks, a call that may be asked is alone in its session.
        let sharing = || match self.sessions {
            Sessions::Request => Sharing::Once,
            Sessions::Owner if asks && client.any() && !self.server.attributes_questions() => Sharing::Single,
            Sessions::Owner => Sharing::Shared,
        };
        let at_first = sharing();
        let leased = self.pool.lease(&self.server, &key, at_first, headers).await;
        if leased.is_ok() && sharing() != at_first {
            // The handshake has shown which transport it is.
            return self.pool.lease(&self.server, &key, sharing(), headers).await;
        }
        leased
    }
}

#[cfg(test)]
impl Upstream {
    /// Returns an upstream at `path` whose server nothing connects to.
    pub(crate) fn unused(path: &str) -> std::sync::Arc<Self> {
        let process = crate::config::Process::default();
        let server = super::stdio::Server::new(path.into(), "true".to_owned(), Vec::new(), process);
        let policy = Policy::default();
        std::sync::Arc::new(Self {
            id: path.into(),
            sse_path: None,
            server: Server::Stdio(server),
            forward_authorization: false,
            native: Native::Auto,
            status_notifications: true,
            modern: true,
            sessions: Sessions::Owner,
            pool: SessionPool::new(
                path.into(),
                super::PoolLimits { per_owner: 1, all: 1 },
                crate::flow::Capacity::new(1024, 1024),
                std::sync::Arc::default(),
            ),
            hints: Hints::new(&policy),
            policy,
        })
    }
}
