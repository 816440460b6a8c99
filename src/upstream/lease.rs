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

/// Which session a call gets. Both parts follow from one reading of what the server is, as that may change at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    is_modern: bool,
    sharing: Sharing,
}

impl Plan {
    fn key(self, lessee: Lessee<'_>) -> PoolKey {
        pool_key(lessee, self.is_modern)
    }
}

impl Upstream {
    /// Returns a session for a call. `asks`: the server may ask something in the course of it.
    ///
    /// # Errors
    /// [`NoSession`]
    pub async fn lease(&self, lessee: Lessee<'_>, asks: bool) -> Result<Lease, NoSession> {
        let plan = self.plan(lessee.client, asks);
        let leased = self.pool.lease(&self.server, &plan.key(lessee), plan.sharing, lessee.headers).await?;
        // The handshake has shown what the server is, and which transport it has.
        let seen = self.plan(lessee.client, asks);
        let is_alone = leased.pooled.generation.is_modern() && seen.sharing == Sharing::Once;
        if is_alone || seen == plan {
            return Ok(leased);
        }
        drop(leased);
        Box::pin(self.pool.lease(&self.server, &seen.key(lessee), seen.sharing, lessee.headers)).await
    }

    /// Returns the session that calls share, even those in the course of which the server may ask something, if they
    /// share one and it is open.
    #[must_use]
    pub fn lease_now(&self, lessee: Lessee<'_>) -> Option<Lease> {
        let plan = self.plan(lessee.client, true);
        (plan.sharing == Sharing::Shared).then(|| self.pool.lease_now(&plan.key(lessee))).flatten()
    }

    /// Returns what is known of the server's tools where each call has a session of its own; `None` where sessions know
    /// it.
    #[must_use]
    pub fn tools_apart(&self, lessee: Lessee<'_>) -> Option<Arc<KnownTools>> {
        let plan = self.plan(lessee.client, true);
        (plan.sharing == Sharing::Once).then(|| self.pool.tools(&plan.key(lessee)))
    }

    /// Returns whether calls that may be asked share a session.
    #[must_use]
    pub fn shares(&self, client: ClientCapabilities) -> bool {
        self.plan(client, true).sharing == Sharing::Shared
    }

    fn plan(&self, client: ClientCapabilities, asks: bool) -> Plan {
        let is_modern = self.pool.generation().is_some_and(Generation::is_modern);
        let sharing = match self.sessions {
            // Over HTTP there is nothing that calls could share.
            _ if is_modern && !self.server.is_process() => Sharing::Shared,
            Sessions::Owner if is_modern => Sharing::Shared,
            Sessions::Request => Sharing::Once,
            // Where the transport does not say which call asks, a call that may be asked is alone in its session.
            Sessions::Owner if asks && client.any() && !self.server.attributes_questions() => Sharing::Single,
            Sessions::Owner => Sharing::Shared,
        };
        Plan { is_modern, sharing }
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
