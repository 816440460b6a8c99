//! The principal of a request, as `[auth]` configures it.

use std::{fmt, net::IpAddr, sync::Arc};

use http::HeaderMap;

use crate::config::Auth;

/// Finds out who sends a request.
#[derive(Debug)]
pub struct Identity {
    auth: Auth,
}

/// Why a request gets no principal.
#[derive(Debug, PartialEq, Eq)]
pub enum Untrusted {
    /// The peer is not one of `trusted_peers`.
    Peer(IpAddr),
    /// The trusted peer did not set the header, or not to a text.
    NoHeader(String),
}

impl Identity {
    /// Identifies as `auth` says.
    #[must_use]
    pub fn new(auth: Auth) -> Self {
        Self { auth }
    }

    /// The principal of a request; `None` where there is no authentication.
    ///
    /// # Errors
    /// [`Untrusted`]
    pub fn principal(&self, peer: IpAddr, headers: &HeaderMap) -> Result<Option<Arc<str>>, Untrusted> {
        match &self.auth {
            Auth::None => Ok(None),
            Auth::Header { name, trusted_peers } => {
                let peer = peer.to_canonical();
                if !trusted_peers.iter().any(|net| net.contains(&peer)) {
                    return Err(Untrusted::Peer(peer));
                }
                let mut values = headers.get_all(name).iter();
                // Two values: one may be the gateway's, the other the client's own.
                match (values.next().map(|value| value.to_str()), values.next()) {
                    (Some(Ok(value)), None) if !value.is_empty() => Ok(Some(value.into())),
                    _ => Err(Untrusted::NoHeader(name.to_string())),
                }
            }
        }
    }
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(peer) => {
                write!(f, "requests are only taken from the gateways in auth.trusted_peers, not from {peer}")
            }
            Self::NoHeader(name) => write!(f, "the gateway must set the header {name} exactly once, to the principal"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const NAME: HeaderName = HeaderName::from_static("x-user");

    fn identity() -> Identity {
        let trusted_peers = vec!["10.0.0.0/8".parse().expect("a network")];
        Identity::new(Auth::Header { name: NAME, trusted_peers })
    }

    #[test]
    fn the_header_counts_only_from_a_trusted_peer_and_only_once() {
        let (gateway, stranger) = ([10, 0, 0, 1].into(), [192, 168, 0, 1].into());
        let mut headers = HeaderMap::new();
        assert!(matches!(identity().principal(gateway, &headers), Err(Untrusted::NoHeader(_))));
        headers.insert(NAME, HeaderValue::from_static("ann"));
        assert_eq!(identity().principal(gateway, &headers), Ok(Some("ann".into())));
        assert_eq!(identity().principal(stranger, &headers), Err(Untrusted::Peer(stranger)));
        headers.append(NAME, HeaderValue::from_static("bob"));
        assert!(matches!(identity().principal(gateway, &headers), Err(Untrusted::NoHeader(_))));
    }
}
