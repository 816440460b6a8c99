//! Tokens that only the upstream can judge.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use aws_lc_rs::{hmac, rand::SystemRandom};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::HeaderValue;
use moka::{policy::EvictionPolicy, sync::Cache};
use parking_lot::RwLock;

use super::{
    Denied, Identified, Pass, Principal,
    token::{BearerToken, Digest},
};
use crate::config::UpstreamId;

/// How long a refusal is remembered.
const REFUSED_FOR: Duration = Duration::from_hours(1);
/// How many refused tokens are remembered. The one that no request has brought for longest is evicted first.
const MAX_REFUSED: u64 = 50_000;

/// The tokens that each upstream has refused: one may accept what another refuses. They stay when upstreams are
/// replaced.
#[derive(Debug)]
pub(super) struct Refusals {
    /// Random in each process. The keys of the upstreams are derived from it.
    key: hmac::Key,
    refused: RwLock<HashMap<UpstreamId, Arc<RefusedTokens>>>,
}

/// The tokens that one upstream has refused. taskgate refuses them too, since it answers for tasks without the
/// upstream.
pub struct RefusedTokens {
    /// Differs for each upstream and each process, so that a name tells nothing about its token.
    key: hmac::Key,
    refused: Cache<Digest, ()>,
}

impl fmt::Debug for RefusedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedTokens").finish_non_exhaustive()
    }
}

impl Refusals {
    pub(super) fn new() -> Result<Self, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| "the system gives no random bytes".to_owned())?;
        Ok(Self { key, refused: RwLock::default() })
    }

    /// Returns the tokens that an upstream has refused.
    pub(super) fn of(&self, upstream: &UpstreamId) -> Arc<RefusedTokens> {
        if let Some(refused) = self.refused.read().get(upstream) {
            return Arc::clone(refused);
        }
        let key = hmac::sign(&self.key, upstream.as_str().as_bytes());
        let new = || Arc::new(RefusedTokens::new(hmac::Key::new(hmac::HMAC_SHA256, key.as_ref())));
        Arc::clone(self.refused.write().entry(upstream.clone()).or_insert_with(new))
    }
}

impl RefusedTokens {
    fn new(key: hmac::Key) -> Self {
        let refused = Cache::builder().max_capacity(MAX_REFUSED).time_to_live(REFUSED_FOR);
        Self { key, refused: refused.eviction_policy(EvictionPolicy::lru()).build() }
    }

    /// Remembers the token of an `Authorization` header that an upstream has answered with 401.
    pub fn add(&self, authorization: &HeaderValue) {
        if let Ok(token) = BearerToken::within(authorization) {
            self.refused.insert(token.keyed_digest(&self.key), ());
        }
    }

    /// Returns whether the token that is a principal by this name was refused.
    pub(super) fn has(&self, name: &str) -> bool {
        let digest = URL_SAFE_NO_PAD.decode(name).ok().and_then(|bytes| Digest::try_from(bytes).ok());
        digest.is_some_and(|digest| self.contains(&digest))
    }

    pub(super) fn contains(&self, token: &Digest) -> bool {
        self.refused.contains_key(token)
    }

    /// Takes a keyed digest of the token as the name of its principal.
    pub(super) fn identify(self: &Arc<Self>, token: BearerToken<'_>) -> Result<Identified, Denied> {
        token.text()?;
        let digest = token.keyed_digest(&self.key);
        if self.refused.get(&digest).is_some() {
            return Err(Denied::BadToken("the server behind has refused the token"));
        }
        let name = Arc::from(URL_SAFE_NO_PAD.encode(digest));
        Ok(Identified::Known(Some(Principal { name, pass: Pass::UntilRefused(Arc::clone(self), digest) })))
    }
}
