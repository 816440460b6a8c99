//! How many requests are in flight, and how many bytes are kept of them.

/// What some requests take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) requests: usize,
    pub(super) bytes: usize,
}

impl Count {
    pub(super) fn and(self, more: Self) -> Self {
        Self { requests: self.requests + more.requests, bytes: self.bytes + more.bytes }
    }

    pub(super) fn without(self, less: Self) -> Self {
        Self { requests: self.requests - less.requests, bytes: self.bytes - less.bytes }
    }
}
