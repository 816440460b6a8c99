//! Whose calls may share a session.

use std::hash::{Hash, Hasher};

use ::http::{HeaderMap, header::AUTHORIZATION};

use super::Generation;
use crate::{
    identity::{Owner, OwnerKind, digest_of, senders},
    wire::ClientCapabilities,
};

/// Whose calls may share a session: one that is asked may see what another one asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolKey {
    /// Who calls.
    pub owner: Owner,
    /// Whether they are calls to a modern server.
    is_modern: bool,
    /// A digest of the headers that tell the server who calls, if any do.
    sender: Option<[u8; 32]>,
    /// What the caller can be asked.
    pub client: ClientCapabilities,
}

/// The clients of the same sender hardly differ in what they can be asked, and a hash of that takes longer than to
/// compare it.
impl Hash for PoolKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.owner.hash(state);
        self.sender.hash(state);
    }
}

impl PoolKey {
    /// Returns the key of calls of `owner`, whose `headers` go on to the server.
    #[must_use]
    pub fn new(owner: Owner, client: ClientCapabilities, headers: &HeaderMap) -> Self {
        let sender = match owner.kind() {
            OwnerKind::Anyone { .. } => digest_of(senders(headers)),
            // Other headers may differ from request to request, and the name keeps users apart.
            OwnerKind::Principal { .. } | OwnerKind::Session(_) => {
                digest_of(headers.get(AUTHORIZATION).map(|credential| (&AUTHORIZATION, credential)).into_iter())
            }
        };
        Self { owner, is_modern: false, sender, client }
    }

    /// Returns the key of calls of `owner` to a modern server: each request tells it who its client is and what it can
    /// be asked.
    #[must_use]
    pub fn of_requests(owner: Owner) -> Self {
        Self { owner, is_modern: true, sender: None, client: ClientCapabilities::default() }
    }

    /// Returns the key whose slot keeps what was opened for this one with those `headers`: the link to a modern server is
    /// for all requests of its owner, and a session with a server that was taken for a modern one is for its sender.
    pub(super) fn that_keeps(&self, opened: Generation, headers: &HeaderMap) -> Self {
        let owner = self.owner.clone();
        if opened.is_modern() { Self::of_requests(owner) } else { Self::new(owner, self.client, headers) }
    }
}
