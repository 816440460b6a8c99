//! Reads the principal from a trusted gateway's header.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use super::Denied;

/// Returns the name that the gateway has set.
pub(super) fn principal(
    peer: IpAddr,
    headers: &HeaderMap,
    name: &HeaderName,
    trusted: &[IpNet],
) -> Result<Arc<str>, Denied> {
    let peer = peer.to_canonical();
    if !trusted.iter().any(|net| net.contains(&peer)) {
        return Err(Denied::Peer(peer));
    }
    let mut values = headers.get_all(name).iter();
    // Of two values one may be the gateway's, and the other the client's own.
    let (Some(value), None) = (values.next(), values.next()) else { return Err(Denied::NoHeader(name.to_string())) };
    match std::str::from_utf8(value.as_bytes()) {
        Ok("") => Err(Denied::NoHeader(name.to_string())),
        Ok(principal) if !principal.chars().any(char::is_control) => Ok(principal.into()),
        _ => Err(Denied::NotText(name.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NAME: HeaderName = HeaderName::from_static("x-user");

    fn name(peer: [u8; 4], headers: &HeaderMap) -> Result<Arc<str>, Denied> {
        let trusted = ["10.0.0.0/8".parse().expect("a network")];
        principal(peer.into(), headers, &NAME, &trusted)
    }

    #[test]
    fn the_header_counts_only_from_a_trusted_peer_and_only_once() {
        let (gateway, stranger) = ([10, 0, 0, 1], [192, 168, 0, 1]);
        let mut headers = HeaderMap::new();
        assert!(matches!(name(gateway, &headers), Err(Denied::NoHeader(_))));
        headers.insert(NAME, HeaderValue::from_static("ann"));
        assert_eq!(name(gateway, &headers), Ok("ann".into()));
        assert_eq!(name(stranger, &headers), Err(Denied::Peer(stranger.into())));
        headers.append(NAME, HeaderValue::from_static("bob"));
        assert!(matches!(name(gateway, &headers), Err(Denied::NoHeader(_))));
    }

    #[test]
    fn the_name_is_utf_8_without_control_characters() {
        let named = |value: &[u8]| {
            let value = HeaderValue::from_bytes(value).expect("a header");
            name([10, 0, 0, 1], &HeaderMap::from_iter([(NAME, value)]))
        };
        assert_eq!(named("José Müller".as_bytes()), Ok("José Müller".into()));
        for wrong in [&b"jos\xe9"[..], b"a\tb", "a\u{85}b".as_bytes()] {
            assert_eq!(named(wrong), Err(Denied::NotText("x-user".to_owned())), "{wrong:?}");
        }
    }
}
