//! Why a request gets no principal.

use std::{fmt, net::IpAddr, time::Duration};

/// Why a request gets no principal. No text repeats what the request said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The peer is not one of `trusted_peers`.
    Peer(IpAddr),
    /// The trusted peer did not set the header exactly once, to a name.
    NoHeader(String),
    /// The trusted peer did set the header, to what is no name.
    NotText(String),
    /// The client's certificate has no name that could be the principal.
    NoName,
    /// The name in the client's certificate that would be the principal is empty.
    EmptyName,
    /// The name in the client's certificate that would be the principal has control characters.
    NameNotText,
    /// The client's certificate has ended since the connection began.
    ExpiredCertificate,
    /// There is no bearer token.
    NoToken,
    /// There are several `Authorization` headers.
    SeveralTokens,
    /// The token is not accepted. The text does not say what is wrong with a token that its issuer has not signed.
    BadToken(&'static str),
    /// The token lacks a scope.
    Scope,
    /// taskgate cannot find out now whether the token is good.
    Unavailable {
        /// Why.
        why: &'static str,
        /// After how long to try again.
        after: Duration,
    },
}

impl Denied {
    /// Returns the `error` of a challenge (RFC 6750, section 3.1); `None` where there was no token.
    #[must_use]
    pub const fn challenge_error(&self) -> Option<&'static str> {
        match self {
            Self::SeveralTokens => Some("invalid_request"),
            Self::BadToken(_) => Some("invalid_token"),
            Self::Scope => Some("insufficient_scope"),
            Self::Peer(_)
            | Self::NoHeader(_)
            | Self::NotText(_)
            | Self::NoName
            | Self::EmptyName
            | Self::NameNotText
            | Self::ExpiredCertificate
            | Self::NoToken
            | Self::Unavailable { .. } => None,
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(peer) => {
                write!(f, "requests are only taken from the gateways in auth.trusted_peers, not from {peer}")
            }
            Self::NoHeader(name) => write!(f, "the gateway must set the header {name} exactly once, to the principal"),
            Self::NotText(name) => {
                write!(f, "the gateway must set the header {name} to UTF-8 text without control characters")
            }
            Self::NoName => f.write_str(
                "the client's certificate has no URI, DNS name or email address as subject alternative name",
            ),
            Self::EmptyName => f.write_str(
                "the subject alternative name of the client's certificate that counts (its first URI, else its first \
                 DNS name, else its first email address) is empty",
            ),
            Self::NameNotText => f.write_str(
                "the subject alternative name of the client's certificate that counts has control characters",
            ),
            Self::ExpiredCertificate => f.write_str("the client's certificate has expired"),
            Self::NoToken => f.write_str("a bearer token is needed in the Authorization header"),
            Self::SeveralTokens => f.write_str("there is more than one Authorization header"),
            Self::BadToken(why) | Self::Unavailable { why, .. } => f.write_str(why),
            Self::Scope => f.write_str("the token lacks a scope that is needed here"),
        }
    }
}
