//! The sender of a request, as rooms below the dialects know it.

use std::sync::Arc;

use uuid::Uuid;

use crate::{identity::Owner, limit::Account, observe::Who, upstream::Upstream, wire::ClientCapabilities};

/// The sender of a request. The requests of one client session share one. So do requests without a session that follow
/// each other on a connection, while they come from the same caller.
#[derive(Debug)]
pub struct Caller {
    /// The owner of the tasks that it creates.
    pub owner: Owner,
    /// How audit lines name the owner and the session.
    pub who: Arc<Who>,
    /// What the owner has left of its rates.
    pub account: Arc<Account>,
    /// The upstream that the client has come to.
    pub upstream: Arc<Upstream>,
    /// What the client can be asked.
    pub client: ClientCapabilities,
    /// The client's session, whose streams come first for what belongs to its tasks; `None` for a client that has none
    /// and polls.
    pub session: Option<Uuid>,
}
