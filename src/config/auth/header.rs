//! The keys of `mode = "header"`.

use std::net::IpAddr;

use http::HeaderName;
use ipnet::IpNet;

use super::super::reader::Section;
use super::super::values::text_as;
use super::{Auth, non_empty_list, required};

pub(super) fn read(section: &mut Section<'_>) -> Option<Auth> {
    const NO_HEADER: &str = "missing; mode \"header\" needs the name of the header, such as \"x-forwarded-user\"";
    const NO_PEERS: &str = "missing; mode \"header\" needs the peers that may set the header, such as [\"127.0.0.1\"]";
    let name = required(section, "header", NO_HEADER).and_then(|entry| entry.convert(text_as(header_name)));
    let peers = required(section, "trusted_peers", NO_PEERS);
    let what = "the peers that may set the header, such as [\"127.0.0.1\"]";
    let trusted_peers = peers.and_then(|entry| non_empty_list(&entry, what, text_as(peer)));
    Some(Auth::Header { name: name?, trusted_peers: trusted_peers? })
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    text.parse().map_err(|_| format!("expected a header name such as \"x-forwarded-user\", found {text:?}"))
}

fn peer(text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    net.ok_or_else(|| {
        format!("expected an address such as \"127.0.0.1\" or a network such as \"10.0.0.0/8\", found {text:?}")
    })
}
