//! Tokens that only the upstream can judge.

use std::{collections::HashMap, sync::Arc};

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::RwLock;

use super::{Denied, Identified, Pass, Principal, RefusedTokens, token::BearerToken};
use crate::config::UpstreamId;

/// The tokens that each upstream has refused: one may accept what another refuses.
#[derive(Debug)]
pub(super) struct Refusals {
    /// Lives as long as the tasks of the names. The keys of the upstreams are derived from it.
    key: hmac::Key,
    refused: RwLock<HashMap<UpstreamId, Arc<RefusedTokens>>>,
}

impl Refusals {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key), refused: RwLock::default() }
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

    /// Takes a keyed digest of the token as the name of its principal.
    pub(super) fn identify(&self, upstream: &UpstreamId, token: BearerToken<'_>) -> Result<Identified, Denied> {
        let refused = self.of(upstream);
        token.text()?;
        let digest = refused.check(token)?;
        let name = Arc::from(URL_SAFE_NO_PAD.encode(digest));
        Ok(Identified::Known(Some(Principal { name, pass: Pass::UntilRefused(refused, digest) })))
    }
}
