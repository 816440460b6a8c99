//! The tokens that an upstream has refused.

use std::{fmt, time::Duration};

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderValue;
use moka::{policy::EvictionPolicy, sync::Cache};

use super::{
    Denied,
    token::{BearerToken, Digest},
};

/// How long a refusal is remembered.
const REFUSED_FOR: Duration = Duration::from_hours(1);
/// How many refused tokens are remembered. The one that no request has brought for longest is evicted first.
const MAX_REFUSED: u64 = 50_000;

/// The tokens that one upstream has refused. taskgate refuses them too, since it answers for tasks without the
/// upstream.
pub struct RefusedTokens {
    /// Differs for each upstream and each store, so that a name tells nothing about its token.
    key: hmac::Key,
    refused: Cache<Digest, ()>,
}

impl fmt::Debug for RefusedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedTokens").finish_non_exhaustive()
    }
}

impl RefusedTokens {
    pub(super) fn new(key: hmac::Key) -> Self {
        let refused = Cache::builder().max_capacity(MAX_REFUSED).time_to_live(REFUSED_FOR);
        Self { key, refused: refused.eviction_policy(EvictionPolicy::lru()).build() }
    }

    /// Remembers the token of an `Authorization` header that an upstream has answered with 401.
    pub fn add(&self, authorization: &HeaderValue) {
        if let Ok(token) = BearerToken::within(authorization) {
            self.refused.insert(token.keyed_digest(&self.key), ());
        }
    }

    /// Returns the digest that stands for the token of a request, unless the token was refused.
    pub(super) fn check(&self, token: BearerToken<'_>) -> Result<Digest, Denied> {
        let digest = token.keyed_digest(&self.key);
        // Unlike `contains`, this counts as a use: tokens that requests still bring are evicted last.
        match self.refused.get(&digest) {
            Some(()) => Err(Denied::BadToken("the server behind has refused the token")),
            None => Ok(digest),
        }
    }

    /// Returns whether the token that is a principal by this name was refused.
    pub(super) fn has(&self, name: &str) -> bool {
        let digest = URL_SAFE_NO_PAD.decode(name).ok().and_then(|bytes| Digest::try_from(bytes).ok());
        digest.is_some_and(|digest| self.contains(&digest))
    }

    /// Returns whether a token was refused.
    pub(super) fn contains(&self, token: &Digest) -> bool {
        self.refused.contains_key(token)
    }
}
