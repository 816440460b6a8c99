//! The owner, to whom a session and its tasks belong.

use std::sync::Arc;

use uuid::Uuid;

use crate::config::UpstreamId;

/// The owner of a task (revision 2025-11-25, "Task Isolation and Access Control"). It has no part that only this
/// process knows, so that a store outside can use it as a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// No principal is known: tasks belong to the session and end with it.
    Session(Uuid),
    /// Clients without a session and without a name: each task is for those who know its id, and no list shows it.
    Anyone {
        /// The upstream.
        upstream: UpstreamId,
    },
    /// A principal, whose tasks outlive the session.
    Principal {
        /// The upstream. A principal of one upstream may be unknown at another.
        upstream: UpstreamId,
        /// The principal's name.
        name: Arc<str>,
    },
}
