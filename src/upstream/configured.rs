//! One upstream and everything that belongs to it.

use super::{Hints, Server, SessionPool};
use crate::config::{Native, Policy, Sessions, UpstreamId};

/// Everything that belongs to one upstream. The sessions and tasks that began with it keep it.
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
                &super::PoolsTotal::new(super::PoolLimits { per_owner: 1, all: 1 }),
                crate::flow::Capacity::new(1024, 1024),
                std::sync::Arc::default(),
            ),
            hints: Hints::new(&policy),
            policy,
        })
    }
}
