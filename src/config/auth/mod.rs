//! The `[auth]` section.

mod header;
mod protected;
mod tokens;

use http::HeaderName;
use ipnet::IpNet;

use super::reader::{Entry, Section};
use super::values::one_of;

pub use protected::ProtectedResource;
pub use tokens::{Introspect, Jwt, KeySource, TokenRules};

/// The `[auth]` section: how taskgate finds the principal of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Auth {
    /// taskgate authenticates no request; a task belongs to its session.
    None,
    /// A proxy in front authenticates the user, and names them in a header.
    Header {
        /// The header whose value is the principal.
        name: HeaderName,
        /// The peers whose header taskgate believes. Never empty.
        trusted_peers: Vec<IpNet>,
    },
    /// Tokens that name their sender, signed by an issuer.
    Jwt(Box<Jwt>),
    /// Tokens about which taskgate asks their issuer.
    Introspect(Box<Introspect>),
    /// Tokens that the upstream judges.
    Bearer(ProtectedResource),
    /// Certificates of clients.
    Mtls,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    None,
    Header,
    Jwt,
    Introspect,
    Bearer,
    Mtls,
}

const MODES: [(&str, Mode); 6] = [
    ("none", Mode::None),
    ("header", Mode::Header),
    ("jwt", Mode::Jwt),
    ("introspect", Mode::Introspect),
    ("bearer", Mode::Bearer),
    ("mtls", Mode::Mtls),
];

/// The other keys, and the modes that use them.
const USES: [(&str, &[Mode]); 14] = [
    ("header", &[Mode::Header]),
    ("trusted_peers", &[Mode::Header]),
    ("issuer", &[Mode::Jwt, Mode::Introspect]),
    ("audience", &[Mode::Jwt, Mode::Introspect]),
    ("required_scopes", &[Mode::Jwt, Mode::Introspect]),
    ("jwks", &[Mode::Jwt]),
    ("algorithms", &[Mode::Jwt]),
    ("leeway", &[Mode::Jwt]),
    ("introspection_endpoint", &[Mode::Introspect]),
    ("client_id", &[Mode::Introspect]),
    ("client_secret", &[Mode::Introspect]),
    ("cache", &[Mode::Introspect]),
    ("resource", &[Mode::Jwt, Mode::Introspect, Mode::Bearer]),
    ("authorization_servers", &[Mode::Jwt, Mode::Introspect, Mode::Bearer]),
];

impl Auth {
    /// Returns what taskgate tells clients about the tokens that it accepts; `None` where it tells nothing.
    #[must_use]
    pub fn protected(&self) -> Option<ProtectedResource> {
        match self {
            Self::None | Self::Header { .. } | Self::Mtls => None,
            Self::Jwt(jwt) => Some(jwt.protected.clone()),
            Self::Introspect(introspect) => Some(introspect.protected.clone()),
            // Without authorization servers only the upstream knows where its tokens come from.
            Self::Bearer(protected) => Some(protected.clone()).filter(|own| !own.authorization_servers.is_empty()),
        }
    }
}

/// Reads the section. `certificates` says that every client needs a certificate.
pub(super) fn read(mut section: Section<'_>, certificates: bool) -> Auth {
    let mode_entry = section.entry("mode");
    let mode = mode_entry.as_ref().map_or(Some(Mode::None), |entry| entry.convert(one_of(&MODES)));
    if let (Some(Mode::Mtls), Some(entry), false) = (mode, mode_entry, certificates) {
        entry.fail("\"mtls\" needs server.tls with a client_ca, or no client has a certificate");
    }
    for (key, modes) in USES {
        if let (Some(entry), Some(mode)) = (section.entry(key), mode)
            && !modes.contains(&mode)
        {
            let words = MODES.iter().filter(|(_, mode)| modes.contains(mode)).map(|(word, _)| format!("{word:?}"));
            entry.fail(format!("only used with mode = {}", words.collect::<Vec<_>>().join(" or ")));
        }
    }
    let read = match mode {
        None | Some(Mode::None) => None,
        Some(Mode::Header) => header::read(&mut section),
        Some(Mode::Jwt) => tokens::jwt(&mut section).map(|config| Auth::Jwt(Box::new(config))),
        Some(Mode::Introspect) => tokens::introspect(&mut section).map(|config| Auth::Introspect(Box::new(config))),
        Some(Mode::Mtls) => Some(Auth::Mtls),
        Some(Mode::Bearer) => Some(Auth::Bearer(protected::read(&mut section, Vec::new(), Vec::new()))),
    };
    section.finish();
    read.unwrap_or(Auth::None)
}

/// Returns the value of a key that the mode needs. Reports `message` if the key is unset.
fn required<'t>(section: &mut Section<'t>, key: &'static str, message: &str) -> Option<Entry<'t>> {
    let entry = section.entry(key);
    if entry.is_none() {
        section.missing(key, message);
    }
    entry
}

/// Returns the items of a list. Reports an empty one; `what` says what it should name, and `or` what else may stand in
/// its place.
fn non_empty_list<T>(
    entry: &Entry<'_>,
    what: &str,
    or: &str,
    convert: impl Fn(&toml::de::DeValue<'_>) -> Result<T, String>,
) -> Option<Vec<T>> {
    let items = entry.list(or)?;
    if items.is_empty() {
        entry.fail(format!("empty; name {what}"));
    }
    Some(items.iter().filter_map(|item| item.convert(&convert)).collect())
}
