//! The sessions with servers in which calls of an earlier process go on.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use uuid::Uuid;

use crate::{
    identity::Owner,
    upstream::{SavedLink, UpstreamSession},
};

/// The sessions in which calls go on. Calls that shared a session share one again.
#[derive(Debug, Default)]
pub(super) struct Links(HashMap<LinkKey, Vec<LinkUse>>);

/// What calls have in common that may have run in one session.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct LinkKey {
    /// An owner hears nothing of another's calls, whatever ids a server gives.
    owner: Owner,
    /// The server, and the id that it has given the session, if it gives some.
    link: SavedLink,
    /// The session of the client, where the server gives no ids that tell sessions apart.
    client: Option<Uuid>,
}

/// A session in which calls go on.
#[derive(Debug)]
struct LinkUse {
    session: Arc<UpstreamSession>,
    is_clients: bool,
    /// The numbers of its calls. A second call of a number has run in another session.
    numbers: HashSet<u64>,
}

impl LinkKey {
    /// Returns the key of a call of `owner`, created in the session `client`, that ran over `link`.
    pub(super) fn new(owner: Owner, link: SavedLink, client: Option<Uuid>) -> Self {
        let client = client.filter(|_| link.session.is_none());
        Self { owner, link, client }
    }
}

impl Links {
    /// Returns the session in which call `number` goes on: `own`, that of its client, where the call may have run
    /// there; or else one that `restore` makes, for all such calls.
    pub(super) fn find(
        &mut self,
        key: LinkKey,
        number: u64,
        own: Option<&Arc<UpstreamSession>>,
        restore: impl FnOnce() -> UpstreamSession,
    ) -> Arc<UpstreamSession> {
        let own = own.filter(|own| own.saved().link.as_ref() == Some(&key.link));
        let uses = self.0.entry(key).or_default();
        if let Some(own) = own.filter(|own| !uses.iter().any(|one| Arc::ptr_eq(&one.session, own))) {
            let session = Arc::clone(own);
            uses.insert(0, LinkUse { session, is_clients: true, numbers: HashSet::new() });
        }
        if let Some(free) = uses.iter_mut().find(|one| !one.numbers.contains(&number)) {
            free.numbers.insert(number);
            return Arc::clone(&free.session);
        }
        let session = Arc::new(restore());
        uses.push(LinkUse { session: Arc::clone(&session), is_clients: false, numbers: HashSet::from([number]) });
        session
    }

    /// Returns the sessions that are not their clients'.
    pub(super) fn of_calls(self) -> impl Iterator<Item = Arc<UpstreamSession>> {
        let uses = self.0.into_values().flatten();
        uses.filter(|one| !one.is_clients).map(|one| one.session)
    }
}
