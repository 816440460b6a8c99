//! Which session with the server a request gets, and how long a call that can be a task waits for it.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::{ClientRequest, Modern, Refused};
use crate::{
    upstream::{Lease, Lessee, NoSession, PendingLease},
    wire::RpcError,
};

/// What became of a wait for a session.
pub(super) enum Opened {
    /// It is open.
    Open(Lease),
    /// It is still being opened.
    Pending(PendingLease),
}

impl Modern {
    /// Returns a session with the server for a request. `asks`: the server may ask something in the course of it.
    pub(super) async fn lease(&self, request: &ClientRequest, asks: bool) -> Result<Lease, Refused> {
        if let Some(open) = request.open() {
            return Ok(open);
        }
        let leased = request.caller.upstream.lease(request.lessee(), asks).await;
        leased.map_err(|why| self.no_session(request, why))
    }

    /// Waits `until` then for a session for a call that can be a task.
    ///
    /// # Errors
    /// [`Refused`] where the server gives no session, so that a client can log in, for example.
    pub(super) async fn lease_until(&self, request: &ClientRequest, until: Instant) -> Result<Opened, Refused> {
        if let Some(open) = request.open() {
            return Ok(Opened::Open(open));
        }
        let (caller, headers) = (Arc::clone(&request.caller), request.headers.clone());
        let mut leasing = Box::pin(async move {
            let lessee = Lessee { owner: &caller.owner, client: caller.client, headers: &headers };
            caller.upstream.lease(lessee, true).await
        });
        match timeout_at(until, &mut leasing).await {
            Ok(leased) => leased.map(Opened::Open).map_err(|why| self.no_session(request, why)),
            Err(_) => Ok(Opened::Pending(PendingLease::new(leasing))),
        }
    }

    /// Waits for a session that is being opened for a request.
    pub(super) async fn opened(&self, request: &ClientRequest, pending: &PendingLease) -> Result<Lease, Refused> {
        match pending.take().await {
            Some(leased) => leased.map_err(|why| self.no_session(request, why)),
            None => self.lease(request, true).await,
        }
    }

    fn no_session(&self, request: &ClientRequest, why: NoSession) -> Refused {
        match why {
            NoSession::Full(why) => RpcError::internal(why).into(),
            why @ NoSession::NotAgreed(_) => self.failed(request, &why.to_failure()),
        }
    }
}

impl ClientRequest {
    /// Returns what was opened for this request, unless the server has forgotten it.
    fn opened(&self) -> Option<Lease> {
        let opened = self.opened.as_ref().filter(|opened| !opened.pooled.session.is_lost());
        opened.map(|opened| opened.again())
    }

    /// Returns a session that is open: the one that was opened for this request, or one that calls share.
    fn open(&self) -> Option<Lease> {
        self.opened().or_else(|| self.caller.upstream.lease_now(self.lessee()))
    }

    fn lessee(&self) -> Lessee<'_> {
        Lessee { owner: &self.caller.owner, client: self.caller.client, headers: &self.headers }
    }
}
