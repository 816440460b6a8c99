//! Room for new sessions and children: where there is none, a session gives way that its client seems to have left.

use std::sync::Arc;

use http::HeaderMap;

use super::Gate;
use crate::{
    identity::Owner,
    session::{Full, Room, Session, Unused},
    upstream::{Failure, Vacancy},
};

impl Gate {
    /// Room for a session of a principal, or of an anonymous client, taken from an unused session if there is no other.
    ///
    /// # Errors
    /// [`Full`]
    pub(super) async fn room(&self, upstream: usize, principal: Option<&Arc<str>>) -> Result<Room<'_>, Full> {
        let full = match self.sessions.room(upstream, principal) {
            Ok(room) => return Ok(room),
            Err(full) => full,
        };
        let is_own = |session: &Session| match &session.owner {
            Owner::Principal { upstream: at, name } => *at == upstream && principal == Some(name),
            Owner::Session(_) => false,
        };
        let fits = |session: &Session| match full {
            Full::Limit(_) => true,
            Full::OfOwner(_) => is_own(session),
            Full::OfStreams(_) | Full::Stopping => false,
        };
        for unused in self.sessions.unused(fits) {
            if self.has_no_use(&unused).await
                && let Some(room) = self.sessions.exchange(&unused, full.name(), upstream, principal)
            {
                self.end_unused(&unused);
                return Ok(room);
            }
        }
        Err(full)
    }

    /// Where the link of a new session may be. If as many children of the upstream run as may, an unused session ends for it.
    ///
    /// # Errors
    /// [`Failure`]
    pub(super) async fn vacancy(&self, upstream: usize) -> Result<Vacancy, Failure> {
        let vacancy = self.upstreams[upstream].server.vacancy().await?;
        let Some(full) = vacancy.lacking() else { return Ok(vacancy) };
        // A session that is lost has no child any more.
        for unused in self.sessions.unused(|session| session.upstream == upstream && !session.is_lost()) {
            if self.has_no_use(&unused).await && self.sessions.give_way(&unused, "max_children") {
                self.end_unused(&unused);
                return Ok(vacancy);
            }
        }
        Err(full.clone())
    }

    /// Whether nothing is lost with a session but its agreements: an acknowledged task never is.
    async fn has_no_use(&self, unused: &Unused) -> bool {
        let owner = &unused.session.owner;
        matches!(owner, Owner::Principal { .. }) || !self.engine.has_tasks(owner).await
    }

    fn end_unused(&self, unused: &Unused) {
        unused.session.end(HeaderMap::new());
        self.engine.session_ended(&unused.session);
    }
}
