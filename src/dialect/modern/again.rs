//! Sends a request once more that the server has refused, and not run: it has forgotten the session, or was replaced.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    ClientRequest, Modern, discover, hosts,
    run::{Over, Run},
};
use crate::{upstream::Lease, wire::Method};

impl Modern {
    /// Finds out again which generation a server is of, as it has refused a request like one of the other generation.
    /// Returns a lease if it has turned out to be of the other one.
    pub(super) async fn lease_of_other(&self, request: &mut ClientRequest, lease: &Lease, asks: bool) -> Option<Lease> {
        request.opened = None;
        request.caller.upstream.pool.was_replaced(&lease.pooled);
        let other = self.lease(request, asks).await.ok()?;
        (other.pooled.generation.is_modern() != lease.pooled.generation.is_modern()).then_some(other)
    }
}

impl Run {
    /// Sends the request once more, in a new session: the server had forgotten the session, and has refused the request
    /// without running it.
    pub(super) async fn send_again(&mut self) -> Over {
        self.sent_again = true;
        self.request.opened = None;
        self.lease.vacate();
        match self.modern.lease(&self.request, self.asks).await {
            Ok(lease) => self.send_in(lease).await,
            Err(refused) => {
                self.to.refuse(refused, self.request.id());
                Over::Done
            }
        }
    }

    /// Returns whether the server, which was a legacy one, is a modern one now.
    pub(super) fn has_become_modern(&self) -> impl Future<Output = bool> + use<> {
        let (upstream, headers) = (Arc::clone(&self.request.caller.upstream), self.request.headers.clone());
        async move { upstream.pool.turns_out_modern(&upstream.server, &headers).await }
    }

    /// Sends the request once more if the server has turned out to be of the other generation, as it has refused the
    /// request like one of that.
    pub(super) async fn replaced(&mut self) -> Option<Over> {
        self.sent_again = true;
        let lease = self.modern.lease_of_other(&mut self.request, &self.lease, self.asks).await?;
        if self.request.method != Method::Discover || lease.pooled.generation.is_modern() {
            return Some(self.send_in(lease).await);
        }
        let described = discover::described(&self.request, &lease);
        Some(self.respond(described.unwrap_or_else(|why| why.to_response(Some(self.request.id())).into())))
    }

    /// Sends the request with another lease.
    async fn send_in(&mut self, lease: Lease) -> Over {
        self.asked_at = hosts::asked_at(&self.request, &lease);
        match self.modern.start(&self.request, &lease, self.asks, self.adoptable.is_some()).await {
            Ok(call) => {
                (self.lease, self.call, self.since) = (lease, call, Instant::now());
                self.timeout = self.timeout.map(|(limit, _)| (limit, self.since + limit));
                Box::pin(self.follow(None)).await
            }
            Err(error) => self.respond(error.to_response(Some(self.request.id())).into()),
        }
    }
}
