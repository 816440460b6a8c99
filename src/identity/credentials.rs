//! The headers of a request by which a server may know who sends it.

use aws_lc_rs::digest::{Context, SHA256};
use http::{HeaderMap, HeaderName, HeaderValue};

/// What the names of headers with credentials have in them.
const CREDENTIALS: [&str; 12] = [
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
/// What the names of headers have in them by which a gateway tells who the client is.
const NAMES: [&str; 5] = ["user", "email", "identity", "principal", "cert"];
/// How the names of headers end that have one of these words, and say nothing of the client: they differ from request to
/// request, or name a program.
const OTHERS: [&str; 4] = ["idempotency-key", "signature", "signature-input", "user-agent"];

/// What the names of headers have in them that a browser or a gateway renews by itself, with `-` for `_`.
const RENEWED: [&str; 11] = [
    "cookie",
    "jwt",
    "assertion",
    "signature",
    "oidc-data",
    "oidc-access",
    "oidc-claim-exp",
    "oidc-claim-iat",
    "x-forwarded-access-token",
    "x-auth-request-access-token",
    "x-ms-token",
];

/// Returns whether a header may have a credential.
#[must_use]
pub fn is_credential(name: &HeaderName) -> bool {
    has_one_of(name, &CREDENTIALS)
}

/// Returns the headers by which a server may know who the client is.
pub fn senders(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers.iter().filter(|(name, _)| {
        let differs = OTHERS.iter().any(|other| name.as_str().ends_with(other));
        !differs && (is_credential(name) || has_one_of(name, &NAMES))
    })
}

/// Returns those of [`senders`] that a client sends again with its next request as they are.
pub fn lasting_senders(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    senders(headers).filter(|(name, _)| {
        let name = name.as_str().replace('_', "-");
        !RENEWED.iter().any(|part| name.contains(part))
    })
}

/// Returns a digest of headers, whatever the order of their names, if there are any.
pub fn digest_of<'h>(headers: impl Iterator<Item = (&'h HeaderName, &'h HeaderValue)>) -> Option<[u8; 32]> {
    let mut headers: Vec<_> = headers.collect();
    if headers.is_empty() {
        return None;
    }
    // Those of one name keep their order.
    headers.sort_by_key(|(name, _)| name.as_str());
    let mut context = Context::new(&SHA256);
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), value.as_bytes()] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    Some(digest)
}

fn has_one_of(name: &HeaderName, words: &[&str]) -> bool {
    words.iter().any(|word| name.as_str().contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(headers: &[(&'static str, &'static str)]) -> Option<[u8; 32]> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        digest_of(senders(&map))
    }

    #[test]
    fn each_header_that_may_tell_who_the_client_is_counts_and_no_other() {
        let ann = digest(&[("authorization", "ann")]);
        for name in ["cookie", "x-api-key", "x-amzn-oidc-data", "x-auth-user", "x-forwarded-user", "x-client-cert"] {
            let both = digest(&[(name, "one"), ("authorization", "ann")]);
            assert!(both.is_some() && both != ann, "{name}");
            assert_eq!(both, digest(&[("authorization", "ann"), (name, "one")]), "{name}");
            assert_ne!(both, digest(&[("authorization", "ann"), (name, "two")]), "{name}");
        }
        for name in ["traceparent", "user-agent", "x-idempotency-key", "signature", "signature-input"] {
            assert_eq!(digest(&[(name, "one"), ("authorization", "ann")]), ann, "{name}");
            assert_eq!(digest(&[(name, "one")]), None, "{name}");
        }
    }

    #[test]
    fn what_is_renewed_by_itself_does_not_last_and_what_names_the_client_does() {
        let lasts = |name: &'static str| {
            let headers = [(HeaderName::from_static(name), HeaderValue::from_static("one"))].into_iter().collect();
            lasting_senders(&headers).count() == 1
        };
        let known = ["authorization", "x-api-key", "private-token", "x-access-token", "x-uid-token", "x-session-token"];
        for name in known.into_iter().chain(["x-forwarded-user", "x-auth-request-email", "x-amzn-oidc-identity"]) {
            assert!(lasts(name), "{name}");
        }
        let renewed = ["cookie", "x-goog-iap-jwt-assertion", "x-amzn-oidc-data", "x-amzn-oidc-accesstoken"];
        let tokens = ["x-forwarded-access-token", "x-ms-token-aad-id-token", "oidc_access_token", "oidc_claim_exp"];
        for name in renewed.into_iter().chain(tokens) {
            assert!(!lasts(name), "{name}");
        }
    }

    #[test]
    fn headers_that_are_cut_elsewhere_are_others() {
        assert_ne!(digest(&[("cookie", "ab")]), digest(&[("cookie", "a"), ("cookie", "b")]));
        assert_ne!(digest(&[("cookie", "a"), ("cookie", "b")]), digest(&[("cookie", "b"), ("cookie", "a")]));
    }
}
