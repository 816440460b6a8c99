//! The keys of `[auth]` about what clients are told (RFC 9728).

use super::super::reader::Section;
use super::super::url::{text_without_secrets, url};
use super::super::values::text_as;
use super::non_empty_list;

/// What taskgate tells clients about the tokens that it accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtectedResource {
    /// The scheme, host and port that clients use, such as `https://mcp.example.com`. If unset, the `Host` header of
    /// each request counts.
    pub origin: Option<String>,
    /// The URLs of the issuers.
    pub authorization_servers: Vec<String>,
    /// The scopes that a token needs.
    pub scopes: Vec<String>,
}

/// Reads the keys. `issuers` are the authorization servers where the section names none.
pub(super) fn read(section: &mut Section<'_>, issuers: Vec<String>, scopes: Vec<String>) -> ProtectedResource {
    let servers = section.entry("authorization_servers");
    let what = "the issuers of tokens, such as [\"https://auth.example.com\"]";
    let named = servers.and_then(|entry| non_empty_list(&entry, what, "", text_as(url_text)));
    ProtectedResource {
        origin: section.get("resource", text_as(origin)),
        authorization_servers: named.unwrap_or(issuers),
        scopes,
    }
}

/// Checks a URL, and returns it as it is written.
pub(super) fn url_text(text: &str) -> Result<String, String> {
    url(text, "https://auth.example.com").map(|_| text.to_owned())
}

fn origin(text: &str) -> Result<String, String> {
    const EXAMPLE: &str = "https://mcp.example.com";
    let uri = url(text, EXAMPLE)?;
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(format!(
            "expected a URL such as \"{EXAMPLE}\", but {:?} has a path; taskgate adds that of the [[upstream]] itself",
            text_without_secrets(text)
        ));
    }
    Ok(text.trim_end_matches('/').to_owned())
}
