//! The principal that sends a request, and how long that holds.

use std::{sync::Arc, time::SystemTime};

use super::{Denied, RefusedTokens, token::Digest};

/// The user or program that sends a request.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The name, which stays the same while tokens change, as far as the mode can know it.
    pub name: Arc<str>,
    /// How long the proof of it holds.
    pub pass: Pass,
}

impl Principal {
    /// Returns the principal, if the token that named it has not expired since.
    pub(super) fn if_live(self) -> Result<Self, Denied> {
        if self.pass.is_live() { Ok(self) } else { Err(Denied::BadToken("the token has expired")) }
    }
}

/// How long the proof of a principal holds.
#[derive(Clone, Debug)]
pub enum Pass {
    /// As long as the request and its answer last.
    Lasting,
    /// Until the token or the certificate ends. In wall-clock time, which goes on while a machine sleeps.
    Until(SystemTime),
    /// Until the upstream refuses the token.
    UntilRefused(Arc<RefusedTokens>, Digest),
}

impl Pass {
    /// Returns whether the proof still holds.
    #[must_use]
    pub fn is_live(&self) -> bool {
        match self {
            Self::Lasting => true,
            Self::Until(end) => SystemTime::now() < *end,
            Self::UntilRefused(refused, token) => !refused.contains(token),
        }
    }

    /// Replaces this one by `other`, unless that ends sooner: a request with an old token may come after one with a new
    /// token.
    pub fn renew(&mut self, other: Self) {
        match (&self, &other) {
            (Self::Until(end), Self::Until(other)) if other < end => {}
            _ => *self = other,
        }
    }
}
