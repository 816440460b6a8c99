//! Who sends a request, and how long that is known.

use std::{sync::Arc, time::SystemTime};

use super::{Denied, RefusedTokens, token::Digest};

/// Who sends a request.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The name, which stays the same while tokens change, as far as the mode can know it.
    pub name: Arc<str>,
    /// How long that holds.
    pub pass: Pass,
}

impl Principal {
    /// The principal of a token that was good when it was looked at.
    pub(super) fn if_live(self) -> Result<Self, Denied> {
        if self.pass.is_live() { Ok(self) } else { Err(Denied::BadToken("the token has expired")) }
    }
}

/// How long what proved a principal holds.
#[derive(Clone, Debug)]
pub enum Pass {
    /// As long as the request lasts.
    Lasting,
    /// Until the token ends. Wall-clock time, which goes on while a machine sleeps.
    Until(SystemTime),
    /// Until the upstream refuses the token.
    UntilRefused(Arc<RefusedTokens>, Digest),
}

impl Pass {
    /// Whether it still holds.
    #[must_use]
    pub fn is_live(&self) -> bool {
        match self {
            Self::Lasting => true,
            Self::Until(end) => SystemTime::now() < *end,
            Self::UntilRefused(refused, token) => !refused.contains(token),
        }
    }

    /// Takes the place of this one, where it does not end sooner: a request with an old token may come behind one with the new.
    pub fn renew(&mut self, other: Self) {
        match (&self, &other) {
            (Self::Until(end), Self::Until(other)) if other < end => {}
            _ => *self = other,
        }
    }
}
