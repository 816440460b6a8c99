//! The keys of `mode = "jwt"` and `mode = "introspect"`.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use jsonwebtoken::Algorithm;

use super::super::reader::{Entry, Section};
use super::super::secret::{self, Secret};
use super::super::url::url;
use super::super::values::{duration, text, text_as};
use super::protected::{self, ProtectedResource, url_text};
use super::{non_empty_list, required};

/// What every token must claim.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRules {
    /// The issuer, compared byte for byte.
    pub issuer: String,
    /// The audiences, of which a token must name one. Only with [`Introspect`] may there be none; then taskgate
    /// accepts every audience.
    pub audience: Vec<String>,
    /// The scopes, all of which a token must have.
    pub required_scopes: Vec<String>,
}

/// How taskgate verifies tokens that their issuer has signed (RFC 7519).
#[derive(Clone, Debug, PartialEq)]
pub struct Jwt {
    /// What the tokens must claim.
    pub rules: TokenRules,
    /// Where the issuer's keys are.
    pub keys: KeySource,
    /// The signature algorithms that taskgate accepts. Never empty.
    pub algorithms: Vec<Algorithm>,
    /// How far the issuer's clock may be off.
    pub leeway: Duration,
    /// What taskgate tells clients.
    pub protected: ProtectedResource,
}

/// Where a key set (RFC 7517) is.
#[derive(Clone, Debug, PartialEq)]
pub enum KeySource {
    /// Scheme http or https, with a host.
    Url(Uri),
    /// A file that exists.
    File(PathBuf),
}

/// How taskgate asks an issuer about tokens (RFC 7662).
#[derive(Clone, Debug, PartialEq)]
pub struct Introspect {
    /// What the issuer must say about a token.
    pub rules: TokenRules,
    /// Where to ask; scheme http or https, with a host.
    pub endpoint: Uri,
    /// The name that taskgate has as a client of the issuer.
    pub client_id: String,
    /// The password that goes with the name.
    pub client_secret: Secret,
    /// The longest time for which an answer holds.
    pub cache: Duration,
    /// What taskgate tells clients.
    pub protected: ProtectedResource,
}

/// The signature algorithms that may be configured (RFC 7518, RFC 8037), none of them symmetric.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

/// The value of `audience` with which taskgate accepts every audience.
const ANY_AUDIENCE: &str = "any";

pub(super) fn jwt(section: &mut Section<'_>) -> Option<Jwt> {
    const NO_AUDIENCE: &str = "missing; mode \"jwt\" needs the audience that tokens for this server have, such as \
                               [\"https://mcp.example.com/mcp\"], so that those for other servers are refused";
    const NO_KEYS: &str =
        "missing; mode \"jwt\" needs the issuer's keys, a URL such as \"https://auth.example.com/jwks.json\" or a file";
    let issuer = issuer(section);
    let audience = required(section, "audience", NO_AUDIENCE);
    let audience =
        audience.and_then(|entry| non_empty_list(&entry, "the audience that tokens have", "", text_as(not_empty)));
    let keys = required(section, "jwks", NO_KEYS);
    let keys = keys.and_then(|entry| entry.convert(|value| key_source(&entry, &text(value)?)));
    let algorithms = match section.entry("algorithms") {
        Some(entry) => non_empty_list(&entry, "the algorithms of the issuer's keys", "", text_as(algorithm)),
        None => Some(vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA]),
    };
    let leeway = section.get("leeway", duration).unwrap_or(Duration::from_secs(30));
    let (required_scopes, protected) = scopes(section, issuer.as_ref());
    let rules = TokenRules { issuer: issuer?, audience: audience?, required_scopes };
    Some(Jwt { rules, keys: keys?, algorithms: algorithms?, leeway, protected })
}

pub(super) fn introspect(section: &mut Section<'_>) -> Option<Introspect> {
    const NO_AUDIENCE: &str = "missing; mode \"introspect\" needs the audience that tokens for this server have, such as \
                               [\"https://mcp.example.com/mcp\"], or audience = \"any\" to accept those for other \
                               servers of the issuer too";
    const NO_ENDPOINT: &str = "missing; mode \"introspect\" needs the URL where taskgate asks, such as \"https://auth.example.com/introspect\"";
    const NO_ID: &str = "missing; mode \"introspect\" asks as a client of the issuer";
    const NO_SECRET: &str =
        "missing; mode \"introspect\" needs the client's secret, as { env = \"NAME\" } or { file = \"path\" }";
    let issuer = issuer(section);
    let audience = required(section, "audience", NO_AUDIENCE);
    let audience = audience.and_then(|entry| match entry.convert(|value| Ok(value.as_str() == Some(ANY_AUDIENCE))) {
        Some(true) => Some(Vec::new()),
        _ => non_empty_list(&entry, "the audience that tokens have", ", or \"any\"", text_as(not_empty)),
    });
    let endpoint = required(section, "introspection_endpoint", NO_ENDPOINT);
    let endpoint =
        endpoint.and_then(|entry| entry.convert(text_as(|text| url(text, "https://auth.example.com/introspect"))));
    let client_id = required(section, "client_id", NO_ID).and_then(|entry| entry.convert(text_as(not_empty)));
    let client_secret = required(section, "client_secret", NO_SECRET);
    let client_secret = client_secret.and_then(|entry| entry.convert(|value| secret::reference(&entry, value)));
    let cache = section.get("cache", duration).unwrap_or(Duration::from_mins(1));
    let (required_scopes, protected) = scopes(section, issuer.as_ref());
    let rules = TokenRules { issuer: issuer?, audience: audience?, required_scopes };
    let (endpoint, client_id, client_secret) = (endpoint?, client_id?, client_secret?);
    Some(Introspect { rules, endpoint, client_id, client_secret, cache, protected })
}

fn issuer(section: &mut Section<'_>) -> Option<String> {
    const MESSAGE: &str = "missing; give the issuer as tokens name it, such as \"https://auth.example.com\"";
    required(section, "issuer", MESSAGE).and_then(|entry| entry.convert(text_as(url_text)))
}

fn scopes(section: &mut Section<'_>, issuer: Option<&String>) -> (Vec<String>, ProtectedResource) {
    let scopes = section.list("required_scopes", text_as(scope)).unwrap_or_default();
    let protected = protected::read(section, issuer.into_iter().cloned().collect(), scopes.clone());
    (scopes, protected)
}

fn not_empty(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// Checks one scope (RFC 6749, section 3.3).
fn scope(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if !text.is_empty() && text.bytes().all(fits) {
        return Ok(text.to_owned());
    }
    Err(format!("expected one scope such as \"mcp:tools\", without spaces, quotes and backslashes, found {text:?}"))
}

fn key_source(entry: &Entry<'_>, text: &str) -> Result<KeySource, String> {
    if text.starts_with("http://") || text.starts_with("https://") {
        return url(text, "https://auth.example.com/jwks.json").map(KeySource::Url);
    }
    let path = entry.path(text);
    let problem = match std::fs::metadata(&path) {
        Ok(found) if found.is_file() => return Ok(KeySource::File(path)),
        Ok(_) => "is not a file".to_owned(),
        Err(error) => format!("cannot be used: {error}"),
    };
    Err(format!("expected a URL such as \"https://auth.example.com/jwks.json\" or a file, but {text:?} {problem}"))
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    if let Some((_, found)) = ALGORITHMS.into_iter().find(|(name, _)| *name == text) {
        return Ok(found);
    }
    if text.eq_ignore_ascii_case("none") {
        return Err("\"none\" means no signature, so that anyone could make tokens".to_owned());
    }
    if text.starts_with("HS") {
        return Err(format!(
            "{text:?} signs with a shared secret: each server that can check such a token can also make one"
        ));
    }
    let all: Vec<_> = ALGORITHMS.into_iter().map(|(name, _)| format!("{name:?}")).collect();
    Err(format!("expected one of {}, found {text:?}", all.join(", ")))
}
