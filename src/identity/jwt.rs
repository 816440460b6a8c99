//! Tokens that are signed by their issuer (RFC 7519 in the compact form of RFC 7515). ring checks the signatures; what
//! is around them is little enough to be read here, and stricter than libraries are.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Denied, Identified, Principal,
    claims::Claims,
    jwks::Jwks,
    keys::KeySet,
    token::{Digest, Token},
};
use crate::{
    config::{self, Algorithm, TokenRules},
    observe::Observer,
};

/// Of a token that its issuer has not signed, nothing more is told.
const NOT_VALID: Denied = Denied::BadToken("the token is not valid");
/// The types that access tokens have (RFC 7519, section 5.1; RFC 9068, section 2.1), where they have one.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// Verifies tokens.
#[derive(Clone, Debug)]
pub(super) struct Jwt {
    rules: Arc<Rules>,
    keys: Arc<Jwks>,
}

#[derive(Debug)]
struct Rules {
    claims: TokenRules,
    algorithms: Vec<Algorithm>,
    leeway: Duration,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    /// Extensions that must be understood.
    crit: Option<Value>,
}

/// Why a token is not verified.
enum Unverified {
    Denied(Denied),
    /// There is no key to tell it.
    NoKey,
}

impl Jwt {
    pub(super) fn start(config: config::Jwt, observer: Arc<Observer>) -> Result<Self, String> {
        let config::Jwt { rules: claims, keys, algorithms, leeway, .. } = config;
        let rules = Arc::new(Rules { claims, algorithms, leeway });
        Ok(Self { rules, keys: Jwks::start(keys, observer)? })
    }

    /// The principal of a token: at once, unless the issuer has to be asked for new keys.
    pub(super) fn identify(&self, token: Token<'_>) -> Result<Identified, Denied> {
        let (digest, keys) = (token.digest(), self.keys.current());
        if let Some(principal) = keys.as_ref().and_then(|keys| keys.verified.get(&digest)) {
            return principal.if_live().map(|principal| Identified::Known(Some(principal)));
        }
        let token = token.text()?;
        match self.verify(token, digest, keys.as_deref()) {
            Ok(principal) => Ok(Identified::Known(Some(principal))),
            Err(Unverified::Denied(denied)) => Err(denied),
            Err(Unverified::NoKey) => {
                let (jwt, token) = (self.clone(), token.to_owned());
                let identified = async move { jwt.with_newer_keys(&token, digest, keys).await };
                Ok(Identified::Later(Box::pin(identified)))
            }
        }
    }

    async fn with_newer_keys(
        &self,
        token: &str,
        digest: Digest,
        known: Option<Arc<KeySet>>,
    ) -> Result<Principal, Denied> {
        let newer = self.keys.newer(known).await;
        match (self.verify(token, digest, self.keys.current().as_deref()), newer) {
            (Ok(principal), _) => Ok(principal),
            (Err(Unverified::Denied(denied)), _) => Err(denied),
            (Err(Unverified::NoKey), Err(after)) => {
                Err(Denied::Unavailable { why: "the issuer's keys cannot be fetched; try again later", after })
            }
            (Err(Unverified::NoKey), Ok(())) => Err(refused("the issuer has no such key")),
        }
    }

    fn verify(&self, token: &str, digest: Digest, keys: Option<&KeySet>) -> Result<Principal, Unverified> {
        let (signed, signature) = token.rsplit_once('.').ok_or_else(|| refused("it is no JWS"))?;
        let (header, claims) = signed.split_once('.').ok_or_else(|| refused("it is no JWS"))?;
        let header: Header = part(header).ok_or_else(|| refused("its header cannot be read"))?;
        if header.crit.is_some() {
            return Err(refused("it has an extension that must be understood").into());
        }
        if header.typ.is_some_and(|typ| !TYPES.iter().any(|known| known.eq_ignore_ascii_case(&typ))) {
            return Err(refused("its type is not that of an access token").into());
        }
        let pinned = self.rules.algorithms.iter().find(|algorithm| algorithm.as_str() == header.alg);
        let algorithm = *pinned.ok_or_else(|| refused("its algorithm is not one of auth.algorithms"))?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| refused("its signature cannot be read"))?;
        let keys = keys.ok_or(Unverified::NoKey)?;
        let signed = keys.verify(header.kid.as_deref(), algorithm, signed.as_bytes(), &signature);
        if !signed.ok_or(Unverified::NoKey)? {
            return Err(refused("its signature is wrong").into());
        }
        let claims: Claims = part(claims).ok_or_else(|| refused("its claims cannot be read"))?;
        if claims.iss.is_none() {
            return Err(Denied::BadToken("the token names no issuer").into());
        }
        if claims.exp.is_none() {
            return Err(Denied::BadToken("the token has no end").into());
        }
        let principal = claims.principal(&self.rules.claims, self.rules.leeway)?;
        keys.verified.insert(digest, principal.clone());
        Ok(principal)
    }
}

impl From<Denied> for Unverified {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

/// What is wrong with a token is for the operator only: the signature says whether its sender may know.
fn refused(why: &'static str) -> Denied {
    tracing::debug!(why, "a token was refused");
    NOT_VALID
}

/// A part of a token; a part with more than ASCII is none, and so is one with padding.
fn part<T: for<'de> Deserialize<'de>>(encoded: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
}
