//! The bearer token of a request (RFC 6750, section 2.1).

use aws_lc_rs::{digest, hmac};
use http::{HeaderMap, HeaderValue, header};

use super::Denied;

const SCHEME: &[u8] = b"bearer";
/// The longest token, in bytes: far beyond those that issuers make.
const MAX_TOKEN: usize = 16 << 10;

/// What taskgate keeps in the place of a token.
pub(super) type Digest = [u8; digest::SHA256_OUTPUT_LEN];

/// The token that a request brings, not yet checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct BearerToken<'h>(&'h [u8]);

const MALFORMED: Denied = Denied::BadToken("the token is malformed");

impl<'h> BearerToken<'h> {
    /// Returns the only token of a request.
    pub(super) fn of(headers: &'h HeaderMap) -> Result<Self, Denied> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => Err(Denied::NoToken),
            (Some(value), None) => Self::within(value),
            (Some(_), Some(_)) => Err(Denied::SeveralTokens),
        }
    }

    /// Returns the token in the value of an `Authorization` header.
    pub(super) fn within(value: &'h HeaderValue) -> Result<Self, Denied> {
        let value = value.as_bytes();
        let (scheme, token) = value.split_at_checked(SCHEME.len()).unwrap_or((value, b""));
        if !scheme.eq_ignore_ascii_case(SCHEME) || token.first().is_some_and(|byte| *byte != b' ') {
            return Err(Denied::NoToken);
        }
        let token = token.trim_ascii();
        if token.len() <= MAX_TOKEN { Ok(Self(token)) } else { Err(MALFORMED) }
    }

    /// Returns the token as text. This checks every byte, so it is not for a token whose digest is already known.
    pub(super) fn text(self) -> Result<&'h str, Denied> {
        let text = std::str::from_utf8(self.0).map_err(|_| MALFORMED)?;
        let body = text.trim_end_matches('=');
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
        if !body.is_empty() && body.bytes().all(fits) { Ok(text) } else { Err(MALFORMED) }
    }

    /// Returns the digest that stands for the token.
    pub(super) fn digest(self) -> Digest {
        array(digest::digest(&digest::SHA256, self.0).as_ref())
    }

    /// Returns the digest under a key.
    pub(super) fn keyed_digest(self, key: &hmac::Key) -> Digest {
        array(hmac::sign(key, self.0).as_ref())
    }
}

/// Returns a digest as an array.
fn array(digest: &[u8]) -> Digest {
    let mut array = Digest::default();
    // Both have the length of SHA-256.
    array.iter_mut().zip(digest).for_each(|(to, from)| *to = *from);
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(values: &[&str]) -> Result<String, Denied> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).expect("a header"));
        }
        BearerToken::of(&headers)?.text().map(str::to_owned)
    }

    #[test]
    fn a_token_is_taken_from_the_only_authorization_header_whatever_the_case_of_its_scheme() {
        for value in ["Bearer a.b-c_d~e+f/g==", "bearer a.b-c_d~e+f/g==", "BEARER   a.b-c_d~e+f/g=="] {
            assert_eq!(token(&[value]).as_deref(), Ok("a.b-c_d~e+f/g=="), "{value}");
        }
        assert_eq!(token(&[]), Err(Denied::NoToken));
        for value in ["Basic YTpi", "Bear", "Bearers a", "Bearer\u{9}a"] {
            assert_eq!(token(&[value]), Err(Denied::NoToken), "{value}");
        }
        assert_eq!(token(&["Bearer a", "Bearer a"]), Err(Denied::SeveralTokens));
    }

    #[test]
    fn other_texts_and_too_long_tokens_are_malformed() {
        let long = format!("Bearer {}", "a".repeat(MAX_TOKEN + 1));
        for value in ["Bearer", "Bearer ", "Bearer ==", "Bearer a b", "Bearer a,b", "Bearer a=b", "Bearer \"a\"", &long]
        {
            assert!(matches!(token(&[value]), Err(Denied::BadToken(_))), "{value}");
        }
        assert!(token(&[&long[..long.len() - 1]]).is_ok());
    }
}
