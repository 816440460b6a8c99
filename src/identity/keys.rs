//! The keys of an issuer (RFC 7517), and the tokens that they have verified.

use std::fmt;

use hashlink::LruCache;
use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    errors::Error,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse},
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use super::{Principal, claims::Claims, token::Digest};

/// How many keys of a set are read.
const MAX_KEYS: usize = 100;
/// How many verified tokens are remembered.
const MAX_VERIFIED: usize = 10_000;

/// A set of keys, and the tokens that they have verified.
pub(super) struct KeySet {
    keys: Vec<VerifyingKey>,
    /// The principals of the tokens that these keys have verified. They are forgotten with the keys.
    verified: Mutex<LruCache<Digest, Principal>>,
}

struct VerifyingKey {
    jwk: Jwk,
    /// The same key, ready for use.
    key: DecodingKey,
}

#[derive(Deserialize)]
struct KeySetDocument {
    keys: Vec<Value>,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet").field("keys", &self.len()).finish_non_exhaustive()
    }
}

impl KeySet {
    /// Reads a JWK set without the keys of other kinds or for other uses.
    ///
    /// # Errors
    /// A sentence that says why it is not a JWK set.
    pub(super) fn parse(document: &[u8]) -> Result<Self, String> {
        let KeySetDocument { keys } =
            serde_json::from_slice(document).map_err(|error| format!("it is not a JWK set: {error}"))?;
        let keys = keys
            .into_iter()
            .take(MAX_KEYS)
            .filter_map(|key| serde_json::from_value(key).ok().and_then(VerifyingKey::of));
        Ok(Self { keys: keys.collect(), verified: Mutex::new(LruCache::new(MAX_VERIFIED)) })
    }

    /// Returns how many keys can be used.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether the keys are those of `other`.
    pub(super) fn same_keys(&self, other: &Self) -> bool {
        self.keys.iter().map(|key| &key.jwk).eq(other.keys.iter().map(|key| &key.jwk))
    }

    /// Returns the principal of a token that these keys have verified, unless it was forgotten.
    pub(super) fn known(&self, token: &Digest) -> Option<Principal> {
        self.verified.lock().get(token).cloned()
    }

    /// Remembers the principal of a token that these keys have verified. The one that no request has brought for longest
    /// is forgotten first.
    pub(super) fn remember(&self, token: Digest, principal: Principal) {
        self.verified.lock().insert(token, principal);
    }

    /// Verifies the signature of a token, and returns what it claims. `None` if no key fits, or several fit a token
    /// without a key id.
    pub(super) fn verify(&self, token: &str, id: Option<&str>, algorithm: Algorithm) -> Option<Result<Claims, Error>> {
        let named = |key: &&VerifyingKey| id.is_none() || key.jwk.common.key_id.as_deref() == id;
        let mut fitting = self.keys.iter().filter(|key| key.fits(algorithm)).filter(named);
        let key = fitting.next()?;
        if fitting.next().is_some() {
            return None;
        }
        let mut validation = Validation::new(algorithm);
        // The claims of every kind of token are checked in one place, `Claims::principal`.
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        Some(jsonwebtoken::decode(token, &key.key, &validation).map(|token| token.claims))
    }
}

impl VerifyingKey {
    fn of(jwk: Jwk) -> Option<Self> {
        let common = &jwk.common;
        let signs = common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature);
        let verifies = common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| signs && verifies)?;
        Some(Self { jwk, key })
    }

    /// Returns whether the key can verify signatures of an algorithm. Its kind decides that, and not what a token says.
    fn fits(&self, algorithm: Algorithm) -> bool {
        use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
        let kind = match &self.jwk.algorithm {
            AlgorithmParameters::RSA(_) => matches!(algorithm, RS256 | RS384 | RS512 | PS256 | PS384 | PS512),
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => algorithm == ES256,
                EllipticCurve::P384 => algorithm == ES384,
                _ => false,
            },
            AlgorithmParameters::OctetKeyPair(key) => key.curve == EllipticCurve::Ed25519 && algorithm == EdDSA,
            _ => false,
        };
        kind && self.jwk.common.key_algorithm.as_ref().is_none_or(|own| *own == KeyAlgorithm::from(algorithm))
    }
}
