//! Verifies tokens that their issuer has signed (RFC 7519).

use std::{fmt, sync::Arc, time::Duration};

use jsonwebtoken::Algorithm;

use super::{
    Denied, Identified, Principal,
    jwks::Jwks,
    keys::KeySet,
    token::{BearerToken, Digest},
};
use crate::{
    config::{self, TokenRules},
    observe::Observer,
    wire::excerpt,
};

/// All that taskgate tells about a token that its issuer has not signed.
const NOT_VALID: Denied = Denied::BadToken("the token is not valid");
/// The types that access tokens have (RFC 7519, section 5.1; RFC 9068, section 2.1), where they have one.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// Finds principals by verifying tokens.
#[derive(Clone, Debug)]
pub(super) struct JwtVerifier {
    rules: Arc<Rules>,
    keys: Arc<Jwks>,
}

#[derive(Debug)]
struct Rules {
    claims: TokenRules,
    algorithms: Vec<Algorithm>,
    leeway: Duration,
}

/// Why a token could not be verified.
enum Unverified {
    Denied(Denied),
    /// No known key fits it.
    NoKey,
}

impl JwtVerifier {
    pub(super) fn start(config: config::Jwt, observer: Arc<Observer>) -> Result<Self, String> {
        let config::Jwt { rules: claims, keys, algorithms, leeway, .. } = config;
        let rules = Arc::new(Rules { claims, algorithms, leeway });
        Ok(Self { rules, keys: Jwks::start(keys, observer)? })
    }

    /// Finds the principal of a token, at once unless the issuer may have newer keys.
    pub(super) fn identify(&self, token: BearerToken<'_>) -> Result<Identified, Denied> {
        let (digest, keys) = (token.digest(), self.keys.current());
        if let Some(principal) = keys.as_ref().and_then(|keys| keys.known(&digest)) {
            return principal.if_live().map(|principal| Identified::Known(Some(principal)));
        }
        let token = token.text()?;
        match self.verify(token, digest, keys.as_deref()) {
            Ok(principal) => Ok(Identified::Known(Some(principal))),
            Err(Unverified::Denied(denied)) => Err(denied),
            Err(Unverified::NoKey) => {
                let (verifier, token) = (self.clone(), token.to_owned());
                let identified = async move { verifier.identify_with_newer_keys(&token, digest, keys).await };
                Ok(Identified::Later(Box::pin(identified)))
            }
        }
    }

    async fn identify_with_newer_keys(
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
            (Err(Unverified::NoKey), Ok(())) => Err(refused(&"the issuer has no such key")),
        }
    }

    fn verify(&self, token: &str, digest: Digest, keys: Option<&KeySet>) -> Result<Principal, Unverified> {
        let header = jsonwebtoken::decode_header(token).map_err(|error| refused(&error))?;
        if header.crit.is_some() {
            return Err(refused(&"it has an extension that must be understood").into());
        }
        if header.typ.is_some_and(|typ| !TYPES.iter().any(|known| known.eq_ignore_ascii_case(&typ))) {
            return Err(refused(&"its type is not that of an access token").into());
        }
        if !self.rules.algorithms.contains(&header.alg) {
            return Err(refused(&"its algorithm is not one of auth.algorithms").into());
        }
        let keys = keys.ok_or(Unverified::NoKey)?;
        let claims = keys.verify(token, header.kid.as_deref(), header.alg).ok_or(Unverified::NoKey)?;
        let claims = claims.map_err(|error| refused(&error))?;
        if claims.iss.is_none() {
            return Err(Denied::BadToken("the token names no issuer").into());
        }
        if claims.exp.is_none() {
            return Err(Denied::BadToken("the token has no end").into());
        }
        let principal = claims.principal(&self.rules.claims, self.rules.leeway)?;
        keys.remember(digest, principal.clone());
        Ok(principal)
    }
}

impl From<Denied> for Unverified {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

/// Logs what is wrong with a token. Its sender does not learn this: without a good signature it may have no right to.
fn refused(why: &dyn fmt::Display) -> Denied {
    tracing::debug!(why = excerpt(&why.to_string()).as_ref(), "a token was refused");
    NOT_VALID
}
