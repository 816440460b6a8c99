//! The keys of `[auth]` about what clients are told (RFC 9728).

use super::super::reader::Section;
use super::super::upstream::url;
use super::super::values::text_as;
use super::some_of;

/// What clients are told about whose tokens are accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Protected {
    /// The scheme, host and port that clients use, such as `https://mcp.example.com`; if there is none, what they say
    /// in `Host`.
    pub origin: Option<String>,
    /// The issuers of tokens, as URLs.
    pub authorization_servers: Vec<String>,
    /// The scopes that a token needs.
    pub scopes: Vec<String>,
}

/// Reads them. `issuers` are the authorization servers if none are named.
pub(super) fn read(section: &mut Section<'_>, issuers: Vec<String>, scopes: Vec<String>) -> Protected {
    let servers = section.entry("authorization_servers");
    let what = "the issuers of tokens, such as [\"https://auth.example.com\"]";
    let named = servers.and_then(|entry| some_of(&entry, what, text_as(url_text)));
    Protected {
        origin: section.get("resource", text_as(origin)),
        authorization_servers: named.unwrap_or(issuers),
        scopes,
    }
}

/// A URL, as it is written.
pub(super) fn url_text(text: &str) -> Result<String, String> {
    url(text, "https://auth.example.com").map(|_| text.to_owned())
}

fn origin(text: &str) -> Result<String, String> {
    const EXAMPLE: &str = "https://mcp.example.com";
    let uri = url(text, EXAMPLE)?;
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(format!(
            "expected a URL such as \"{EXAMPLE}\", but {text:?} has a path; that of the [[upstream]] is added to it"
        ));
    }
    Ok(text.trim_end_matches('/').to_owned())
}
