//! The keys of an issuer (RFC 7517), and signatures made with them (RFC 7518, RFC 8037).

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use moka::{policy::EvictionPolicy, sync::Cache};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

use super::{Principal, token::Digest};
use crate::config::Algorithm;

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

#[derive(Debug, PartialEq, Eq)]
struct Key {
    id: Option<String>,
    /// The only algorithm that it is for, if it is for one.
    algorithm: Option<String>,
    material: Material,
}

#[derive(Debug, PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet").field("keys", &self.keys).finish_non_exhaustive()
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
        self.keys == other.keys
    }

    /// Whether `signature` is one of `message`; `None` if there is no key to tell it. Without an id only one key may come
    /// into question.
    pub(super) fn verify(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Option<bool> {
        let mut fitting =
            self.keys.iter().filter(|key| key.fits(algorithm) && (id.is_none() || key.id.as_deref() == id));
        let key = fitting.next()?;
        if fitting.next().is_some() {
            return None;
        }
        Some(key.verify(algorithm, message, signature))
    }
}

impl Key {
    fn of(jwk: Jwk) -> Option<Self> {
        if jwk.usage.is_some_and(|usage| usage != "sig")
            || jwk.key_ops.is_some_and(|operations| !operations.iter().any(|operation| operation == "verify"))
        {
            return None;
        }
        let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let material = match (&*jwk.kty, jwk.crv.as_deref()) {
            ("RSA", _) => Material::Rsa { n: bytes(jwk.n)?, e: bytes(jwk.e)? },
            ("EC", Some("P-256")) => Material::P256(point(&bytes(jwk.x)?, &bytes(jwk.y)?, 32)?),
            ("EC", Some("P-384")) => Material::P384(point(&bytes(jwk.x)?, &bytes(jwk.y)?, 48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(jwk.x)?),
            _ => return None,
        };
        Some(Self { id: jwk.kid, algorithm: jwk.alg, material })
    }

    /// The kind of the key decides what it can be used for, whatever a token says.
    fn fits(&self, algorithm: Algorithm) -> bool {
        use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
        let kind = match self.material {
            Material::Rsa { .. } => matches!(algorithm, RS256 | RS384 | RS512 | PS256 | PS384 | PS512),
            Material::P256(_) => algorithm == ES256,
            Material::P384(_) => algorithm == ES384,
            Material::Ed25519(_) => algorithm == EdDSA,
        };
        kind && self.algorithm.as_deref().is_none_or(|own| own == algorithm.as_str())
    }

    fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.material {
            Material::Rsa { n, e } => {
                let parameters = match algorithm {
                    Algorithm::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
                    Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
                    Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
                    Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
                    Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
                    Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
                    Algorithm::ES256 | Algorithm::ES384 | Algorithm::EdDSA => return false,
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            Material::P256(key) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, key).verify(message, signature)
            }
            Material::P384(key) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, key).verify(message, signature)
            }
            Material::Ed25519(key) => UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature),
        };
        verified.is_ok()
    }
}

/// A point of a curve, uncompressed. Each coordinate has the full length (RFC 7518, section 6.2.1.2).
fn point(x: &[u8], y: &[u8], length: usize) -> Option<Vec<u8>> {
    (x.len() == length && y.len() == length).then(|| [&[4], x, y].concat())
}
