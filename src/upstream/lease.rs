//! Which session with the server a call gets that has none of its own.

use std::sync::Arc;

use ::http::HeaderMap;

use super::{
    KnownTools,
    configured::Upstream,
    pool::{Generation, Lease, NoSession, PoolKey, Sharing},
};
use crate::{config::Sessions, identity::Owner, wire::ClientCapabilities};

/// Who a session is leased for.
#[derive(Clone, Copy, Debug)]
pub struct Lessee<'a> {
    /// Who calls.
    pub owner: &'a Owner,
    /// What the caller can be asked.
    pub client: ClientCapabilities,
    /// The headers that go on to the server.
    pub headers: &'a HeaderMap,
}

impl Upstream {
    /// Returns a session for a call. `asks`: the server may ask something in the course of it.
    ///
    /// # Errors
    /// [`NoSession`]
    pub async fn lease(&self, lessee: Lessee<'_>, asks: bool) -> Result<Lease, NoSession> {
        let is_modern = self.is_modern();
        let sharing = self.sharing(is_modern, lessee.client, asks);
        let key = pool_key(lessee, is_modern);
        let leased = self.pool.lease(&self.server, &key, sharing, lessee.headers).await?;
        // The handshake has shown what the server is, and which transport it has.
        let seen = self.is_modern();
        let seen_sharing = self.sharing(seen, lessee.client, asks);
        let is_alone = leased.pooled.generation.is_modern() && seen_sharing == Sharing::Once;
        if is_alone || (seen, seen_sharing) == (is_modern, sharing) {
            return Ok(leased);
        }
        drop(leased);
        Box::pin(self.pool.lease(&self.server, &pool_key(lessee, seen), seen_sharing, lessee.headers)).await
    }

    /// Returns the session that calls share, even those in the course of which the server may ask something, if they
    /// share one and it is open.
    #[must_use]
    pub fn lease_now(&self, lessee: Lessee<'_>) -> Option<Lease> {
        // Read once: a server may be replaced at any time, and the session of a key is shared as its generation says.
        let is_modern = self.is_modern();
        let shares = self.sharing(is_modern, lessee.client, true) == Sharing::Shared;
        shares.then(|| self.pool.lease_now(&pool_key(lessee, is_modern))).flatten()
    }

    /// Returns what is known of the server's tools where each call has a session of its own; `None` where sessions know
    /// it.
    #[must_use]
    pub fn tools_apart(&self, lessee: Lessee<'_>) -> Option<Arc<KnownTools>> {
        let is_modern = self.is_modern();
        let is_apart = self.sharing(is_modern, lessee.client, true) == Sharing::Once;
        is_apart.then(|| self.pool.tools(&pool_key(lessee, is_modern)))
    }

    /// Returns whether calls that may be asked share a session.
    #[must_use]
    pub fn shares(&self, client: ClientCapabilities) -> bool {
        self.sharing(self.is_modern(), client, true) == Sharing::Shared
    }

    fn sharing(&self, is_modern: bool, client: ClientCapabilities, asks: bool) -> Sharing {
        match self.sessions {
            // Over HTTP there is nothing that calls could share.
            _ if is_modern && !self.server.is_process() => Sharing::Shared,
            Sessions::Owner if is_modern => Sharing::Shared,
            Sessions::Request => Sharing::Once,
            // Where the transport does not say which call asks, a call that may be asked is alone in its session.
            Sessions::Owner if asks && client.any() && !self.server.attributes_questions() => Sharing::Single,
            Sessions::Owner => Sharing::Shared,
        }
    }

    fn is_modern(&self) -> bool {
        self.pool.generation().is_some_and(Generation::is_modern)
    }

    /// Returns a session that serves one call of a client with a session of its own.
    ///
    /// # Errors
    /// [`NoSession`]
    pub async fn lease_apart(&self, lessee: Lessee<'_>) -> Result<Lease, NoSession> {
        self.pool.lease_apart(&self.server, &pool_key(lessee, false), lessee.headers).await
    }
}

fn pool_key(lessee: Lessee<'_>, is_modern: bool) -> PoolKey {
    if is_modern {
        PoolKey::of_requests(lessee.owner.clone())
    } else {
        PoolKey::new(lessee.owner.clone(), lessee.client, lessee.headers)
    }
}
