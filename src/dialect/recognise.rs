//! Recognises the modern generation of the protocol, revision 2026-07-28 on, which has no `initialize` and no sessions.
//!
//! There are two rules, as only the modern generation names a revision in the `_meta` of a request, and clients of both
//! name one in a header. In `_meta` any name is modern but those of the revisions with sessions that taskgate
//! speaks ([`is_modern_meta`]). In the header an unknown name may also be a mistake of a client with sessions,
//! so it is modern only if it is a date from the first modern revision on.

use crate::{
    upstream::Upstream,
    wire::{
        Kind, Message, Method,
        object::Needle,
        params::{MODERN, is_modern_meta, unambiguous},
    },
};

/// The first revision without the `initialize` handshake; it and all later ones are "modern".
const FIRST_MODERN: &str = "2026-07-28";

/// Returns whether a message belongs to the modern generation. A server that speaks only the legacy generation does not
/// understand it, and must not treat half of it as legacy.
#[must_use]
pub fn is_modern(message: &Message) -> bool {
    message.method() == Method::Discover || message.params().is_some_and(are_modern)
}

/// Returns whether the `_meta` of raw `params` is of the modern generation. Members that are there twice
/// are refused later, and so is a revision whose key is written with an escape.
#[must_use]
pub fn are_modern(params: &str) -> bool {
    static PREFIX: Needle = Needle::new("io.modelcontextprotocol");
    PREFIX.is_in(params) && unambiguous(params).is_ok_and(|(_, meta)| meta.as_ref().is_some_and(is_modern_meta))
}

/// Returns whether a request without a session names an older revision in `_meta` to a server that has none of them. Its
/// client is told those of the server, and not to begin with `initialize`.
#[must_use]
pub fn lacks_revision(upstream: &Upstream, message: &Message) -> bool {
    let needs_one = message.kind() == Kind::Request && !matches!(message.method(), Method::Initialize | Method::Ping);
    let named = |params| unambiguous(params).is_ok_and(|(_, meta)| meta.is_some_and(|meta| meta.get(MODERN).is_some()));
    needs_one && upstream.pool.is_modern_only() && message.params().is_some_and(named)
}

/// Returns whether a `MCP-Protocol-Version` that taskgate does not speak looks like a revision of the modern
/// generation.
#[must_use]
pub fn is_modern_version(name: &str) -> bool {
    let is_dated = || name.len() == 10 && name.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    name == FIRST_MODERN || name > FIRST_MODERN && is_dated()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modern_request_is_known_by_its_method_or_its_meta() {
        let modern = |method: &str, params: &str| {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            is_modern(&Message::parse(text.into()).expect("valid"))
        };
        assert!(modern("server/discover", "{}"));
        assert!(modern("ping", r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#));
        assert!(modern("ping", r#"{"_meta":{"io.modelcontextprotocol\/protocolVersion":"DRAFT-2027"}}"#));
        assert!(!modern("ping", r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}"#));
        assert!(modern("ping", r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":5}}"#), "it is no name");
        assert!(
            modern("ping", r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#),
            "it lacks a revision"
        );
        assert!(!modern("ping", r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a"}}}"#));
        assert!(!modern("ping", r#"{"_meta":{"progressToken":1}}"#));
        assert!(!modern("ping", r#"{"protocolVersion":"2026-07-28"}"#));
    }

    #[test]
    fn in_the_header_only_dates_from_the_first_modern_revision_on_are_modern() {
        assert!(is_modern_version("2026-07-28"));
        assert!(is_modern_version("2027-01-01"));
        assert!(!is_modern_version("2025-11-25"));
        assert!(!is_modern_version("DRAFT-2027"));
    }
}
