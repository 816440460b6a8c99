//! Whose calls may share a session.

use std::hash::{Hash, Hasher};

use ::http::{HeaderMap, header};
use aws_lc_rs::digest::{SHA256, digest};

use super::Generation;
use crate::{identity::Owner, wire::ClientCapabilities};

/// Whose calls may share a session: one that is asked may see what another one asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolKey {
    /// Who calls.
    pub owner: Owner,
    /// A digest of the credential that goes on to the server, if one does.
    credential: Option<[u8; 32]>,
    /// What the caller can be asked.
    pub client: ClientCapabilities,
}

/// The clients of one credential hardly differ in what they can be asked, and a hash of that takes longer than to
/// compare it.
impl Hash for PoolKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.owner.hash(state);
        self.credential.hash(state);
    }
}

impl PoolKey {
    /// Returns the key of calls of `owner`, whose `headers` go on to the server.
    #[must_use]
    pub fn new(owner: Owner, client: ClientCapabilities, headers: &HeaderMap) -> Self {
        let credential = headers.get(header::AUTHORIZATION).map(|value| {
            let mut hash = [0; 32];
            hash.copy_from_slice(digest(&SHA256, value.as_bytes()).as_ref());
            hash
        });
        Self { owner, credential, client }
    }

    /// Returns the key of calls of `owner` to a modern server: each request tells it who its client is and what it can
    /// be asked.
    #[must_use]
    pub fn of_requests(owner: Owner) -> Self {
        Self { owner, credential: None, client: ClientCapabilities::default() }
    }

    /// Returns whether the slot of the key keeps what was opened with those `headers`: the link to a modern server is
    /// for all requests of its owner, and a session with a server that was taken for a modern one is for its
    /// credential.
    pub(super) fn keeps(&self, opened: Generation, headers: &HeaderMap) -> bool {
        let owner = self.owner.clone();
        let right = if opened.is_modern() { Self::of_requests(owner) } else { Self::new(owner, self.client, headers) };
        *self == right
    }
}
