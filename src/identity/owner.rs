//! To whom a session and its tasks belong.

use std::sync::Arc;

use uuid::Uuid;

use crate::config::UpstreamId;

/// The owner of a task (revision 2025-11-25, "Task Isolation and Access Control"). It names
/// nothing of this process, so that a store outside can use it as a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Nobody is known: tasks belong to the session and end with it.
    Session(Uuid),
    /// A principal, whose tasks outlive the session.
    Principal {
        /// The upstream: who may use one upstream may be nobody at another.
        upstream: UpstreamId,
        /// The name.
        name: Arc<str>,
    },
}
