//! The keys of `[[upstream]]` that say what goes on to an HTTP server besides the messages.

use http::{HeaderName, HeaderValue, header::AUTHORIZATION};

use super::reader::{Entry, Section};
use super::secret::literal_or_reference;
use super::values::flag;
use super::{Auth, Secret};

/// Returns whether taskgate keeps a header from servers: it belongs to one hop, describes one message or sets conditions
/// for it, tells of a page, or is one that taskgate sets itself. The configuration cannot set it either.
#[must_use]
pub fn is_own_header(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "accept"
            | "accept-encoding"
            | "connection"
            | "content-digest"
            | "content-encoding"
            | "content-length"
            | "content-md5"
            | "content-type"
            | "digest"
            | "expect"
            | "host"
            | "if-match"
            | "if-modified-since"
            | "if-none-match"
            | "if-range"
            | "if-unmodified-since"
            | "keep-alive"
            | "last-event-id"
            | "mcp-protocol-version"
            | "mcp-session-id"
            | "origin"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "range"
            | "repr-digest"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Returns whether a header repeats what stands in one message: it goes on from the client, and no other value is right.
pub(super) fn repeats_message(name: &HeaderName) -> bool {
    matches!(name.as_str(), "mcp-method" | "mcp-name") || name.as_str().starts_with("mcp-param-")
}

/// What goes on to an HTTP server besides the messages.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// Whether the client's `Authorization` goes on.
    pub authorization: bool,
    /// Headers that every request gets, in the place of the client's. Each value is a valid header value.
    pub headers: Vec<(HeaderName, Secret)>,
}

impl Forward {
    /// Returns what holds where nothing is set: a token for taskgate goes no further (revision 2025-11-25,
    /// "Authorization", "Access Token Privilege Restriction").
    pub(super) fn new(auth: &Auth) -> Self {
        let authorization = match auth {
            Auth::None | Auth::Header { .. } | Auth::Bearer(_) | Auth::Mtls => true,
            Auth::Jwt(_) | Auth::Introspect(_) => false,
        };
        Self { authorization, headers: Vec::new() }
    }
}

/// Reads the keys. Each of them is a mistake where `stdio` says that the server is a process.
pub(super) fn read(section: &mut Section<'_>, auth: &Auth, stdio: bool) -> Forward {
    let (authorization, headers) = (section.entry("forward_authorization"), section.entry("headers"));
    let mut forward = Forward::new(auth);
    if stdio {
        for entry in [authorization, headers].iter().flatten() {
            entry.fail("set beside command; only a server with a url gets headers");
        }
        return forward;
    }
    forward.headers = headers.map(named_values).unwrap_or_default();
    let replaced = forward.headers.iter().any(|(name, _)| *name == AUTHORIZATION);
    if let Some(entry) = authorization {
        forward.authorization = entry.convert(flag).unwrap_or(forward.authorization);
        if forward.authorization && replaced {
            entry.fail("true, but headers has an authorization that takes the place of the client's");
        }
    }
    let stopped = [("forward_authorization", !forward.authorization), ("headers", replaced)];
    for (key, _) in stopped.into_iter().filter(|(_, stops)| *stops && matches!(auth, Auth::Bearer(_))) {
        if let Some(entry) = section.entry(key) {
            entry.fail(
                "auth.mode \"bearer\" has the server judge the tokens of clients, so their Authorization has to go on",
            );
        }
    }
    forward.authorization &= !replaced;
    forward
}

fn named_values(entry: Entry<'_>) -> Vec<(HeaderName, Secret)> {
    let Some(section) = entry.section() else { return Vec::new() };
    let mut found: Vec<(HeaderName, Secret)> = Vec::new();
    for (text, entry) in section.entries() {
        let Ok(name) = text.parse::<HeaderName>() else {
            entry.fail("not the name of a header");
            continue;
        };
        if is_own_header(&name) || repeats_message(&name) {
            entry.fail(
                "a header that taskgate sets itself, or that belongs to one connection or one message; remove it",
            );
        }
        if found.iter().any(|(other, _)| *other == name) {
            entry.fail("there twice; the case of a header's name means nothing");
        }
        let value = entry.convert(|value| {
            let secret = literal_or_reference(&entry, value)?;
            match header_value(&secret) {
                Some(_) => Ok(secret),
                None => Err("its value has characters that a header cannot have".to_owned()),
            }
        });
        found.extend(value.map(|value| (name, value)));
    }
    found
}

/// Returns the value as taskgate sends it; `None` if it is not valid in a header.
#[must_use]
pub fn header_value(secret: &Secret) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(secret.expose()).ok()?;
    value.set_sensitive(true);
    Some(value)
}
