//! The headers of a request by which a server may know who sends it.

use aws_lc_rs::digest::{Context, SHA256};
use http::{HeaderMap, HeaderName, HeaderValue};

/// What the names of headers with credentials have in them.
const WORDS: [&str; 12] = [
    "auth",
    "token",
    "secret",
    "key",
    "password",
    "credential",
    "cookie",
    "session",
    "signature",
    "jwt",
    "assertion",
    "oidc",
];
/// Names a request, and not who sends it.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Returns whether a header may prove who the client is.
#[must_use]
pub fn is_credential(name: &HeaderName) -> bool {
    let name = name.as_str();
    name != IDEMPOTENCY_KEY && WORDS.iter().any(|word| name.contains(word))
}

/// Returns the headers that may prove who the client is.
pub fn credentials(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers.iter().filter(|(name, _)| is_credential(name))
}

/// Returns a digest of the headers that may prove who the client is, whatever their order, if there are any.
#[must_use]
pub fn digest_of_credentials(headers: &HeaderMap) -> Option<[u8; 32]> {
    let mut credentials: Vec<_> = credentials(headers).collect();
    if credentials.is_empty() {
        return None;
    }
    // Those of one name keep their order.
    credentials.sort_by_key(|(name, _)| name.as_str());
    let mut context = Context::new(&SHA256);
    for (name, value) in credentials {
        for part in [name.as_str().as_bytes(), value.as_bytes()] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(headers: &[(&'static str, &'static str)]) -> Option<[u8; 32]> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        digest_of_credentials(&map)
    }

    #[test]
    fn each_header_that_may_prove_who_the_client_is_counts_and_no_other() {
        let ann = digest(&[("authorization", "ann")]);
        for name in ["cookie", "x-api-key", "x-amzn-oidc-data", "x-auth-user"] {
            let both = digest(&[(name, "one"), ("authorization", "ann")]);
            assert!(both.is_some() && both != ann, "{name}");
            assert_eq!(both, digest(&[("authorization", "ann"), (name, "one")]), "{name}");
            assert_ne!(both, digest(&[("authorization", "ann"), (name, "two")]), "{name}");
        }
        for name in ["traceparent", "user-agent", "idempotency-key"] {
            assert_eq!(digest(&[(name, "one"), ("authorization", "ann")]), ann, "{name}");
            assert_eq!(digest(&[(name, "one")]), None, "{name}");
        }
    }

    #[test]
    fn credentials_that_are_cut_elsewhere_are_others() {
        assert_ne!(digest(&[("cookie", "ab")]), digest(&[("cookie", "a"), ("cookie", "b")]));
        assert_ne!(digest(&[("cookie", "a"), ("cookie", "b")]), digest(&[("cookie", "b"), ("cookie", "a")]));
    }
}
