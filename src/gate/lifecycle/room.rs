//! Room for new sessions and children: where there is none, a session is evicted that its client seems to have left.

use std::sync::Arc;

use http::HeaderMap;

use super::Lifecycle;
use crate::{
    config::UpstreamId,
    identity::{Owner, OwnerKind},
    session::{Full, Session, SessionRoom, UnusedSession},
    upstream::{Failure, Upstream, Vacancy},
};

impl Lifecycle {
    /// Takes room for a session of a principal, or of an anonymous client. Where there is none, evicts an unused
    /// session.
    ///
    /// # Errors
    /// [`Full`]
    pub(super) async fn room(
        &self,
        upstream: &UpstreamId,
        principal: Option<&Arc<str>>,
    ) -> Result<SessionRoom<'_>, Full> {
        let owner = principal.map(|name| Owner::principal(upstream.clone(), Arc::clone(name)));
        let full = match self.sessions.room(owner.as_ref()) {
            Ok(room) => return Ok(room),
            Err(full) => full,
        };
        let fits = |session: &Session| match full {
            Full::Limit(_) => true,
            Full::OfOwner(_) => owner.as_ref() == Some(&session.caller.owner),
            Full::OfStreams(_) | Full::Stopping => false,
        };
        for unused in self.sessions.unused(fits) {
            if self.has_no_use(&unused).await
                && let Some(room) = self.sessions.replace(&unused, full.name(), owner.as_ref())
            {
                self.end_unused(&unused);
                return Ok(room);
            }
        }
        Err(full)
    }

    /// Takes room for the link of a new session. Where as many children of the upstream run as may, evicts an unused
    /// session, or has the pool end one.
    ///
    /// # Errors
    /// [`Failure`]
    pub(super) async fn vacancy(&self, upstream: &Arc<Upstream>) -> Result<Vacancy, Failure> {
        let vacancy = upstream.server.vacancy().await?;
        let Some(full) = vacancy.lacking() else { return Ok(vacancy) };
        if self.give_way(upstream).await || upstream.pool.give_way() { Ok(vacancy) } else { Err(full.clone()) }
    }

    /// Evicts an unused session of the upstream, so that its child leaves its place. Returns whether there was one.
    pub async fn give_way(&self, upstream: &Arc<Upstream>) -> bool {
        // A session that is lost has no child any more.
        let has_child = |session: &Session| Arc::ptr_eq(&session.caller.upstream, upstream) && !session.is_lost();
        for unused in self.sessions.unused(has_child) {
            if self.has_no_use(&unused).await && self.sessions.evict(&unused, "max_children") {
                self.end_unused(&unused);
                return true;
            }
        }
        false
    }

    /// Returns whether a session can be evicted without losing an acknowledged task.
    async fn has_no_use(&self, unused: &UnusedSession) -> bool {
        let owner = &unused.session.caller.owner;
        matches!(owner.kind(), OwnerKind::Principal { .. }) || !self.engine.has_tasks(owner).await
    }

    fn end_unused(&self, unused: &UnusedSession) {
        drop(unused.session.end(HeaderMap::new()));
        self.engine.session_ended(&unused.session);
    }
}
