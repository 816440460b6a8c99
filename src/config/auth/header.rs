//! The keys of `mode = "header"`.

use std::net::IpAddr;

use http::HeaderName;
use ipnet::IpNet;

use super::super::forward::{is_own_header, repeats_message};
use super::super::reader::Section;
use super::super::values::text_as;
use super::{Auth, non_empty_list, required};

pub(super) fn read(section: &mut Section<'_>) -> Option<Auth> {
    const NO_HEADER: &str = "missing; mode \"header\" needs the name of the header, such as \"x-forwarded-user\"";
    const NO_PEERS: &str = "missing; mode \"header\" needs the peers that may set the header, such as [\"127.0.0.1\"]";
    let name = required(section, "header", NO_HEADER).and_then(|entry| entry.convert(text_as(header_name)));
    let peers = required(section, "trusted_peers", NO_PEERS);
    let what = "the peers that may set the header, such as [\"127.0.0.1\"]";
    let trusted_peers = peers.and_then(|entry| non_empty_list(&entry, what, "", text_as(peer)));
    Some(Auth::Header { name: name?, trusted_peers: trusted_peers? })
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    let wrong = |why| Err(format!("expected a header name such as \"x-forwarded-user\", found {text:?}{why}"));
    match text.parse() {
        Ok(name) if is_own_header(&name) || repeats_message(&name) => {
            wrong(", which HTTP or MCP itself uses for something else")
        }
        Ok(name) => Ok(name),
        Err(_) => wrong(""),
    }
}

fn peer(text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    net.map(canonical).ok_or_else(|| {
        format!("expected an address such as \"127.0.0.1\" or a network such as \"10.0.0.0/8\", found {text:?}")
    })
}

/// Returns a network of IPv4 addresses that are written as IPv6 ones as what it is: a peer is compared so.
fn canonical(net: IpNet) -> IpNet {
    let mapped = net.prefix_len().checked_sub(96).filter(|_| net.addr().to_canonical().is_ipv4());
    mapped.and_then(|length| IpNet::new(net.addr().to_canonical(), length).ok()).unwrap_or(net)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_address_is_the_peer_that_it_stands_for() {
        for (text, canonical) in [
            ("::ffff:127.0.0.1", "127.0.0.1/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("::1", "::1/128"),
            ("fd00::/8", "fd00::/8"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(peer(text).map(|net| net.to_string()).as_deref(), Ok(canonical));
        }
    }

    #[test]
    fn a_header_of_http_or_mcp_itself_names_no_user() {
        for name in
            ["Host", "content-length", "accept", "connection", "transfer-encoding", "Mcp-Session-Id", "mcp-name"]
        {
            assert!(header_name(name).is_err_and(|why| why.contains("for something else")), "{name}");
        }
        for name in ["x-forwarded-user", "Remote-User", "authorization"] {
            assert!(header_name(name).is_ok(), "{name}");
        }
    }
}
