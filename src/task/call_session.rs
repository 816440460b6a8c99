//! The session with the server that the call of a task runs in.

use http::HeaderMap;

use crate::{
    session::Caller,
    upstream::{Failure, Lessee, UpstreamGuard, UpstreamSession},
};

/// The session of a task's call, in use while the task lives.
#[derive(Debug)]
pub enum CallSession {
    /// That of its client.
    Own(UpstreamGuard),
    /// One of the pool. Where the server has forgotten it, another one takes its place.
    Pooled(UpstreamGuard),
    /// One for this call alone, which is opened when it is its turn. That of its client, which gets what the server says
    /// meanwhile, is in use too.
    Apart(UpstreamGuard),
    /// One of the pool, which is leased when it is its turn: it may be a process.
    Later,
}

impl CallSession {
    /// Returns the session that the call begins in.
    pub(super) async fn begin(&self, caller: &Caller, headers: &HeaderMap) -> Result<UpstreamGuard, Failure> {
        match self {
            Self::Own(guard) => Ok(guard.get().hold()),
            Self::Pooled(guard) if !guard.get().is_lost() => Ok(guard.get().hold()),
            Self::Pooled(_) | Self::Apart(_) | Self::Later => self.another(caller, headers).await,
        }
    }

    /// Returns a new session for a call that the server has not begun.
    pub(super) async fn another(&self, caller: &Caller, headers: &HeaderMap) -> Result<UpstreamGuard, Failure> {
        let lessee = Lessee { owner: &caller.owner, client: caller.client, headers };
        let lease = match self {
            Self::Own(_) => return Err(Failure::SessionLost),
            Self::Pooled(_) | Self::Later => caller.upstream.lease(lessee, true).await,
            Self::Apart(_) => caller.upstream.lease_apart(lessee).await,
        };
        lease.map(|lease| lease.hold()).map_err(|why| why.to_failure())
    }

    /// Returns whether a call that the server has refused, as it has forgotten the session, begins again in another.
    pub(super) fn is_replaced(&self) -> bool {
        !matches!(self, Self::Own(_))
    }

    /// Returns where the client hears what a server says in `session` that belongs to no call.
    pub(super) fn listener<'s>(&'s self, session: &'s UpstreamGuard) -> &'s UpstreamSession {
        match self {
            Self::Own(guard) | Self::Apart(guard) => guard.get(),
            Self::Pooled(_) | Self::Later => session.get(),
        }
    }
}
