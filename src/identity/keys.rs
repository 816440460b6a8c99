//! The keys of an issuer (RFC 7517), and the tokens that are signed with them.

use std::fmt;

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    errors::Error,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse},
};
use moka::{policy::EvictionPolicy, sync::Cache};
use serde::Deserialize;
use serde_json::Value;

use super::{Principal, claims::Claims, token::Digest};

/// The keys of a set that are looked at.
const MAX_KEYS: usize = 100;
/// The tokens that are remembered as good.
const MAX_VERIFIED: u64 = 10_000;

/// A set of keys, and the tokens that are good because of it.
pub(super) struct KeySet {
    keys: Vec<Key>,
    /// What the tokens say that were verified with these keys. It goes with them.
    pub(super) verified: Cache<Digest, Principal>,
}

struct Key {
    jwk: Jwk,
    /// The same, ready for use.
    key: DecodingKey,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet").field("keys", &self.len()).finish_non_exhaustive()
    }
}

impl KeySet {
    /// Reads a JWK set. Keys of other kinds, or for other uses, are left out.
    ///
    /// # Errors
    /// A sentence, if it is no such set.
    pub(super) fn parse(document: &[u8]) -> Result<Self, String> {
        let Document { keys } =
            serde_json::from_slice(document).map_err(|error| format!("it is no JWK set: {error}"))?;
        let keys = keys.into_iter().take(MAX_KEYS).filter_map(|key| serde_json::from_value(key).ok().and_then(Key::of));
        let verified = Cache::builder().max_capacity(MAX_VERIFIED).eviction_policy(EvictionPolicy::lru()).build();
        Ok(Self { keys: keys.collect(), verified })
    }

    /// How many keys can be used.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the keys are those of `other`.
    pub(super) fn same_keys(&self, other: &Self) -> bool {
        self.keys.iter().map(|key| &key.jwk).eq(other.keys.iter().map(|key| &key.jwk))
    }

    /// What a token says whose signature is good; `None` if there is no key to tell it. Without a key id only one key may
    /// come into question.
    pub(super) fn verify(&self, token: &str, id: Option<&str>, algorithm: Algorithm) -> Option<Result<Claims, Error>> {
        let named = |key: &&Key| id.is_none() || key.jwk.common.key_id.as_deref() == id;
        let mut fitting = self.keys.iter().filter(|key| key.fits(algorithm)).filter(named);
        let key = fitting.next()?;
        if fitting.next().is_some() {
            return None;
        }
        let mut validation = Validation::new(algorithm);
        // What the claims have to say is checked in one place for tokens of every kind.
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        Some(jsonwebtoken::decode(token, &key.key, &validation).map(|token| token.claims))
    }
}

impl Key {
    fn of(jwk: Jwk) -> Option<Self> {
        let common = &jwk.common;
        let signs = common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature);
        let verifies = common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| signs && verifies)?;
        Some(Self { jwk, key })
    }

    /// The kind of the key decides what it can be used for, whatever a token says.
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
