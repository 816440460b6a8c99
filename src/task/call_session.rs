//! The session with the server that the call of a task runs in.

use http::HeaderMap;

use crate::{
    session::Caller,
    upstream::{Failure, Lessee, PendingLease, UpstreamGuard, UpstreamSession},
};

/// The session of a task's call, in use while the task lives once it is open.
#[derive(Debug)]
pub enum CallSession {
    /// That of its client.
    Own(UpstreamGuard),
    /// One of the pool. Where the server has forgotten it, another one takes its place.
    Pooled(UpstreamGuard),
    /// One of the pool that is being opened already, for this call.
    Pending(PendingLease),
    /// One for this call alone, which is opened when it is its turn. That of its client, which gets what the server
    /// says meanwhile, is in use too.
    Apart(UpstreamGuard),
    /// One of the pool, which is leased when it is its turn: it may be a process.
    Later,
}

impl CallSession {
    /// Returns the session that the call begins in, as far as that is known before its turn.
    pub(super) fn open(&self) -> Option<&UpstreamGuard> {
        match self {
            Self::Own(guard) => Some(guard),
            Self::Pooled(guard) => Some(guard).filter(|guard| !guard.get().is_lost()),
            Self::Pending(_) | Self::Apart(_) | Self::Later => None,
        }
    }

    /// Returns the session that a call begins in whose request is one for a `modern` server, or for a session.
    pub(super) async fn begin(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        modern: bool,
    ) -> Result<UpstreamGuard, Failure> {
        match self.open() {
            Some(guard) => Ok(guard.get().hold()),
            // Boxed, so that a task does not keep the memory of opening a session.
            None => Box::pin(self.another(caller, headers, modern)).await,
        }
    }

    /// Returns a new session for a call that the server has not begun.
    pub(super) async fn another(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        modern: bool,
    ) -> Result<UpstreamGuard, Failure> {
        let (upstream, client) = (&caller.upstream, caller.client);
        let lessee = Lessee { owner: &caller.owner, client, headers };
        let leased = match self {
            Self::Own(_) => return Err(Failure::SessionLost),
            Self::Pending(pending) if let Some(leased) = pending.take().await => leased,
            Self::Pooled(_) | Self::Pending(_) | Self::Later => upstream.lease(lessee, true).await,
            Self::Apart(_) => upstream.lease_apart(lessee).await,
        };
        let leased = match leased {
            // The server has been replaced since the request was written.
            Ok(lease) if lease.pooled.generation.is_modern() && !modern => upstream.lease_apart(lessee).await,
            Ok(lease) if modern && !lease.pooled.generation.is_modern() => {
                return Err(Failure::BadAnswer("it knows sessions only, and the request needs none".to_owned()));
            }
            leased => leased,
        };
        leased.map(|lease| lease.hold()).map_err(|why| why.to_failure())
    }

    /// Returns whether a call that the server has refused, as it has forgotten the session, begins again in another.
    pub(super) fn is_replaced(&self) -> bool {
        !matches!(self, Self::Own(_))
    }

    /// Returns where the client hears what a server says in `session` that belongs to no call.
    pub(super) fn listener<'s>(&'s self, session: &'s UpstreamGuard) -> &'s UpstreamSession {
        match self {
            Self::Own(guard) | Self::Apart(guard) => guard.get(),
            Self::Pooled(_) | Self::Pending(_) | Self::Later => session.get(),
        }
    }
}
