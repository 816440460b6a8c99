//! Whose tokens are accepted (RFC 9728), and the challenge that leads clients there.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Uri,
    header::{self, HeaderName},
    uri::Authority,
};
use serde_json::json;

use super::Body;
use crate::{
    gate::{
        Door, Gate, Response, Served,
        refuse::{self, Refusal},
    },
    identity::Denied,
    upstream::Upstream,
};

/// What stands before the path of the resource (RFC 9728, section 3.1).
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// For every web page: it tells nothing about anybody.
const CORS: [(HeaderName, &str); 3] = [
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET"),
    (header::ACCESS_CONTROL_ALLOW_HEADERS, "*"),
];

/// Where the metadata of each endpoint is. That of the only upstream is at the root, too, where clients look next.
pub(in crate::gate) fn doors(upstreams: &[Arc<Upstream>]) -> impl Iterator<Item = (String, (&Arc<Upstream>, Door))> {
    let only = if let [only] = upstreams { Some(only) } else { None };
    let root = only.map(|only| (WELL_KNOWN.to_owned(), (only, Door::Metadata)));
    let each = upstreams.iter().flat_map(|upstream| {
        let paths = std::iter::once(upstream.id.as_str()).chain(upstream.sse_path.as_deref());
        paths.map(move |path| (well_known(path), (upstream, Door::Metadata)))
    });
    root.into_iter().chain(each)
}

/// Returns the path of the endpoint that a path belongs to.
fn resource_path<'p>(served: &'p Served, path: &'p str) -> &'p str {
    match served.at(path) {
        Some((upstream, Door::OldMessages)) => upstream.sse_path.as_deref().unwrap_or(path),
        Some((upstream, Door::Metadata)) if path == WELL_KNOWN => upstream.id.as_str(),
        Some((_, Door::Metadata)) => path.strip_prefix(WELL_KNOWN).unwrap_or(path),
        _ => path,
    }
}

fn well_known(path: &str) -> String {
    format!("{WELL_KNOWN}{}", path.trim_end_matches('/'))
}

impl Gate {
    /// Whether a path is for everyone, web pages included.
    pub(super) fn is_public(&self, path: &str) -> bool {
        matches!(self.upstreams.now().at(path), Some((_, Door::Metadata)))
    }

    /// The refusal of who sends a request to `path`, with the challenge that it calls for (RFC 6750, section 3).
    pub(super) fn denied(&self, denied: &Denied, uri: &Uri, headers: &HeaderMap) -> Refusal {
        let challenge = match denied {
            Denied::NoToken | Denied::SeveralTokens | Denied::BadToken(_) | Denied::Scope => {
                HeaderValue::try_from(self.challenge(denied, uri, headers)).ok()
            }
            Denied::Peer(_)
            | Denied::NoHeader(_)
            | Denied::NoName
            | Denied::ExpiredCertificate
            | Denied::Unavailable { .. } => None,
        };
        Refusal::denied(denied, challenge)
    }

    fn challenge(&self, denied: &Denied, uri: &Uri, headers: &HeaderMap) -> String {
        let mut parts = Vec::new();
        if let Some(code) = denied.code() {
            parts.push(format!("error=\"{code}\", error_description=\"{denied}\""));
        }
        if let Some(protected) = &self.protected {
            if !protected.scopes.is_empty() {
                parts.push(format!("scope=\"{}\"", protected.scopes.join(" ")));
            }
            if let Some(origin) = self.own_origin(uri, headers) {
                let served = self.upstreams.now();
                let path = resource_path(&served, uri.path());
                parts.push(format!("resource_metadata=\"{origin}{}\"", well_known(path)));
            }
        }
        if parts.is_empty() { "Bearer".to_owned() } else { format!("Bearer {}", parts.join(", ")) }
    }

    /// The scheme, host and port that clients use: as configured, or as in the request, whose Host has been checked.
    fn own_origin(&self, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        let configured = self.protected.as_ref().and_then(|protected| protected.origin.clone());
        configured.or_else(|| {
            let named = || headers.get(header::HOST)?.to_str().ok()?.parse::<Authority>().ok();
            let host = uri.authority().cloned().or_else(named)?;
            Some(format!("{}://{host}", self.scheme))
        })
    }

    /// The protected-resource metadata behind a path (RFC 9728, section 3.2).
    pub(super) fn metadata(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Response, Refusal> {
        let mut response = match *method {
            Method::OPTIONS => {
                let mut response = Response::new(Body::default());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Method::GET | Method::HEAD => {
                let found = self.protected.as_ref().zip(self.own_origin(uri, headers));
                let (protected, origin) = found.ok_or_else(|| Refusal::method(Door::Metadata))?;
                let served = self.upstreams.now();
                let path = resource_path(&served, uri.path()).trim_end_matches('/');
                let mut metadata = json!({
                    "resource": format!("{origin}{path}"),
                    "authorization_servers": protected.authorization_servers,
                    "bearer_methods_supported": ["header"],
                });
                if !protected.scopes.is_empty() {
                    metadata["scopes_supported"] = json!(protected.scopes);
                }
                refuse::json(Bytes::from(metadata.to_string()))
            }
            _ => return Err(Refusal::method(Door::Metadata)),
        };
        for (name, value) in CORS {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(response)
    }
}
