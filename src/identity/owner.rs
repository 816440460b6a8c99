//! To whom a session and its tasks belong.

use std::sync::Arc;

use uuid::Uuid;

/// The owner of a task (revision 2025-11-25, "Task Isolation and Access Control").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Nobody is known: tasks belong to the session and end with it.
    Session(Uuid),
    /// A principal, whose tasks outlive the session.
    Principal {
        /// The upstream's place in the configuration: who may use one upstream may be nobody at another.
        upstream: usize,
        /// The name.
        name: Arc<str>,
    },
}
