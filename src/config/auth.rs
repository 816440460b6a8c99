//! The `[auth]` section.

use std::net::IpAddr;

use http::HeaderName;
use ipnet::IpNet;
use toml::de::DeValue;

use super::reader::{Section, describe};
use super::values::text_as;

/// The `[auth]` section: how the owner of a request is found.
#[derive(Clone, Debug, PartialEq)]
pub enum Auth {
    /// Nobody is known; a task belongs to its session.
    None,
    /// A proxy in front has authenticated the user and names them in a header.
    Header {
        /// The header whose value is the owner.
        name: HeaderName,
        /// Peers whose header is believed. Never empty.
        trusted_peers: Vec<IpNet>,
    },
}

#[derive(Clone, Copy)]
enum Mode {
    None,
    Header,
}

pub(super) fn read(mut section: Section<'_>) -> Auth {
    let mode_entry = section.entry("mode");
    let mode = mode_entry.as_ref().map_or(Some(Mode::None), |entry| entry.convert(mode));
    let header = section.entry("header");
    let peers = section.entry("trusted_peers");
    let auth = match mode {
        Some(Mode::Header) => {
            for (entry, key, message) in [
                (
                    &header,
                    "header",
                    "missing; mode \"header\" needs the name of the header, such as \"x-forwarded-user\"",
                ),
                (
                    &peers,
                    "trusted_peers",
                    "missing; mode \"header\" needs the peers that may set the header, such as [\"127.0.0.1\"]",
                ),
            ] {
                if entry.is_none() {
                    section.missing(key, message);
                }
            }
            let name = header.and_then(|entry| entry.convert(text_as(header_name)));
            let trusted_peers = peers.and_then(|entry| {
                let items = entry.items("an array")?;
                if items.is_empty() {
                    entry.fail("empty; name the peers that may set the header, such as [\"127.0.0.1\"]");
                }
                Some(items.iter().filter_map(|item| item.convert(text_as(peer))).collect())
            });
            name.zip(trusted_peers).map_or(Auth::None, |(name, trusted_peers)| Auth::Header { name, trusted_peers })
        }
        Some(Mode::None) => {
            for entry in [header, peers].iter().flatten() {
                entry.fail("only used with mode = \"header\"");
            }
            Auth::None
        }
        None => Auth::None,
    };
    section.finish();
    auth
}

fn mode(value: &DeValue<'_>) -> Result<Mode, String> {
    match value.as_str() {
        Some("none") => Ok(Mode::None),
        Some("header") => Ok(Mode::Header),
        Some(later @ ("jwt" | "bearer" | "introspect")) => {
            Err(format!("{later:?} is not built yet; expected one of \"none\", \"header\""))
        }
        _ => Err(format!("expected one of \"none\", \"header\", found {}", describe(value))),
    }
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
