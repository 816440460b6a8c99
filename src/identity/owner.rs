//! The owner, to whom a session and its tasks belong.

use std::sync::Arc;

use uuid::Uuid;

use crate::config::UpstreamId;

/// The owner of a task (revision 2025-11-25, "Task Isolation and Access Control"). It has no part that only this
/// process knows, so that a store outside can use it as a key. A clone is a pointer to the same one: each task has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(Arc<OwnerKind>);

/// Who an owner is.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum OwnerKind {
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

impl Owner {
    /// Returns the owner that a session is without a principal.
    #[must_use]
    pub fn session(id: Uuid) -> Self {
        Self(Arc::new(OwnerKind::Session(id)))
    }

    /// Returns the owner that clients of an upstream are without a session and without a name.
    #[must_use]
    pub fn anyone(upstream: UpstreamId) -> Self {
        Self(Arc::new(OwnerKind::Anyone { upstream }))
    }

    /// Returns the owner that a principal is at an upstream.
    #[must_use]
    pub fn principal(upstream: UpstreamId, name: Arc<str>) -> Self {
        Self(Arc::new(OwnerKind::Principal { upstream, name }))
    }

    /// Returns who the owner is.
    #[must_use]
    pub fn kind(&self) -> &OwnerKind {
        &self.0
    }
}
