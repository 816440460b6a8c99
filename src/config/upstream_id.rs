//! The name of an upstream, under which taskgate keeps what belongs to it.

use std::sync::Arc;

/// Names an upstream by the path of its endpoint. It stays the same when the file is edited and when the process starts
/// again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpstreamId(Arc<str>);

impl UpstreamId {
    /// Returns the path of the endpoint.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for UpstreamId {
    fn from(path: &str) -> Self {
        Self(path.into())
    }
}
