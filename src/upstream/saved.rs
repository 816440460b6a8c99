//! The written form of a session with a server, by which a later process goes on with it.

use serde::{Deserialize, Serialize};

use crate::wire::{ClientCapabilities, Version};

/// A session with a server over Streamable HTTP. The order of the fields is a part of what the store has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedLink {
    /// A digest of the server's address: a session is of no use elsewhere.
    pub address: String,
    /// The server's session id, if the server has sessions.
    pub session: Option<String>,
    /// The revision that was agreed with the server.
    pub version: Version,
}

/// A session with a server, and what was agreed in it. The order of the fields is a part of what the store has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedUpstream {
    /// The link; `None` where it has ended with the process.
    pub link: Option<SavedLink>,
    /// What the server may ask.
    pub client: ClientCapabilities,
    /// The number from which on no request of the session has its id.
    pub next: u64,
    /// Whether the server's own tasks are shown; if so, whether the server lists them.
    pub native: Option<bool>,
}
