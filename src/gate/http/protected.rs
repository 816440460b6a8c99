//! Whose tokens are accepted (RFC 9728), and the challenge that leads clients there.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Uri,
    header::{self, HeaderName},
    uri::Authority,
};
use serde_json::json;

use super::{
    Body,
    respond::{Response, json},
};
use crate::{
    config::ProtectedResource,
    gate::{Door, Upstreams, refuse::Refusal, upstreams::well_known},
    identity::Denied,
};

/// For every web page: it tells nothing about any client.
const CORS: [(HeaderName, &str); 3] = [
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET"),
    (header::ACCESS_CONTROL_ALLOW_HEADERS, "*"),
];

/// Tells clients whose tokens are accepted.
#[derive(Debug)]
pub struct ResourceMetadata {
    /// What the URLs of the endpoints begin with: `http` or `https`.
    scheme: &'static str,
    /// What clients are told; `None` where no tokens are accepted, or no one knows where they come from.
    protected: Option<ProtectedResource>,
    upstreams: Arc<Upstreams>,
}

impl ResourceMetadata {
    /// Creates what tells clients about `upstreams`, whose URLs begin with `scheme`.
    #[must_use]
    pub fn new(scheme: &'static str, protected: Option<ProtectedResource>, upstreams: Arc<Upstreams>) -> Self {
        Self { scheme, protected, upstreams }
    }

    /// Refuses who sends a request to `uri`, with the challenge that it calls for (RFC 6750, section 3).
    pub(super) fn denied(&self, denied: &Denied, uri: &Uri, headers: &HeaderMap) -> Refusal {
        let challenge = match denied {
            Denied::NoToken | Denied::SeveralTokens | Denied::BadToken(_) | Denied::Scope => {
                HeaderValue::try_from(self.challenge(denied, uri, headers)).ok()
            }
            Denied::Peer(_)
            | Denied::NoHeader(_)
            | Denied::NotText(_)
            | Denied::NoName
            | Denied::EmptyName
            | Denied::NameNotText
            | Denied::ExpiredCertificate
            | Denied::Unavailable { .. } => None,
        };
        Refusal::denied(denied, challenge)
    }

    fn challenge(&self, denied: &Denied, uri: &Uri, headers: &HeaderMap) -> String {
        let mut parts = Vec::new();
        if let Some(code) = denied.challenge_error() {
            parts.push(format!("error=\"{code}\", error_description=\"{denied}\""));
        }
        if let Some(protected) = &self.protected {
            if !protected.scopes.is_empty() {
                parts.push(format!("scope=\"{}\"", protected.scopes.join(" ")));
            }
            if let Some(origin) = self.own_origin(uri, headers) {
                let path = self.upstreams.resource_path(uri.path());
                parts.push(format!("resource_metadata=\"{origin}{}\"", well_known(path)));
            }
        }
        if parts.is_empty() { "Bearer".to_owned() } else { format!("Bearer {}", parts.join(", ")) }
    }

    /// Returns the scheme, host and port that clients use: as configured, or as in the request, whose Host has been
    /// checked.
    fn own_origin(&self, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        let configured = self.protected.as_ref().and_then(|protected| protected.origin.clone());
        configured.or_else(|| {
            let named = || headers.get(header::HOST)?.to_str().ok()?.parse::<Authority>().ok();
            let host = uri.authority().cloned().or_else(named)?;
            Some(format!("{}://{host}", self.scheme))
        })
    }

    /// Answers with the protected-resource metadata behind a path (RFC 9728, section 3.2).
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
                let path = self.upstreams.resource_path(uri.path()).trim_end_matches('/');
                let mut metadata = json!({
                    "resource": format!("{origin}{path}"),
                    "authorization_servers": protected.authorization_servers,
                    "bearer_methods_supported": ["header"],
                });
                if !protected.scopes.is_empty() {
                    metadata["scopes_supported"] = json!(protected.scopes);
                }
                json(Bytes::from(metadata.to_string()))
            }
            _ => return Err(Refusal::method(Door::Metadata)),
        };
        for (name, value) in CORS {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(response)
    }
}
