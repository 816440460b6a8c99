//! Finds the principal of a request, as `[auth]` configures it.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use super::{
    Certificate, Denied, Identified, Pass, Principal, RefusedTokens, bearer::Refusals, certificate,
    introspect::Introspector, jwt::JwtVerifier, token::BearerToken, trusted,
};
use crate::{
    config::{Auth, UpstreamId},
    observe::Observer,
};

/// Finds out who sends a request.
#[derive(Debug)]
pub struct Identity(Mode);

#[derive(Debug)]
enum Mode {
    None,
    Header { name: HeaderName, trusted_peers: Vec<IpNet> },
    Jwt(JwtVerifier),
    Introspect(Introspector),
    Bearer(Box<Refusals>),
    Mtls,
}

/// What a request shows of its sender.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The upstream that the request is for.
    pub upstream: &'a UpstreamId,
    /// The other end of the connection.
    pub peer: IpAddr,
    /// What the client's certificate says, if it has one.
    pub certificate: Option<&'a Certificate>,
    /// The headers of the request.
    pub headers: &'a HeaderMap,
}

impl Identity {
    /// Prepares to identify as `auth` says, and begins to fetch key sets. Tokens that only a server can judge get names
    /// under `key`.
    ///
    /// # Errors
    /// A sentence that says what is missing for it.
    pub fn start(auth: Auth, key: &[u8; 32], observer: &Arc<Observer>) -> Result<Self, String> {
        Ok(Self(match auth {
            Auth::None => Mode::None,
            Auth::Header { name, trusted_peers } => Mode::Header { name, trusted_peers },
            Auth::Jwt(config) => Mode::Jwt(JwtVerifier::start(*config, Arc::clone(observer))?),
            Auth::Introspect(config) => Mode::Introspect(Introspector::new(*config, Arc::clone(observer))?),
            Auth::Mtls => Mode::Mtls,
            Auth::Bearer(_) => Mode::Bearer(Box::new(Refusals::new(key))),
        }))
    }

    /// Finds the principal of a request. Only a token that is new here may have to wait for its issuer.
    pub fn identify(&self, evidence: &Evidence<'_>) -> Identified {
        match &self.0 {
            Mode::None => Identified::Known(None),
            Mode::Header { name, trusted_peers } => {
                match trusted::principal(evidence.peer, evidence.headers, name, trusted_peers) {
                    Ok(name) => Identified::Known(Some(Principal { name, pass: Pass::Lasting })),
                    Err(denied) => Identified::Denied(denied),
                }
            }
            Mode::Mtls => match certificate::principal(evidence.certificate) {
                Ok(principal) => Identified::Known(Some(principal)),
                Err(denied) => Identified::Denied(denied),
            },
            Mode::Jwt(jwt) => by_token(evidence.headers, |token| jwt.identify(token)),
            Mode::Introspect(introspect) => by_token(evidence.headers, |token| introspect.identify(token)),
            Mode::Bearer(refusals) => by_token(evidence.headers, |token| refusals.identify(evidence.upstream, token)),
        }
    }

    /// Returns whether an upstream that judges tokens has refused the token that is a principal by this name.
    #[must_use]
    pub fn has_refused(&self, upstream: &UpstreamId, name: &str) -> bool {
        matches!(&self.0, Mode::Bearer(refusals) if refusals.of(upstream).has(name))
    }

    /// Returns where an upstream reports the tokens that it refuses, if it judges tokens.
    #[must_use]
    pub fn refused_tokens(&self, upstream: &UpstreamId) -> Option<Arc<RefusedTokens>> {
        match &self.0 {
            Mode::Bearer(refusals) => Some(refusals.of(upstream)),
            _ => None,
        }
    }
}

fn by_token(headers: &HeaderMap, identify: impl FnOnce(BearerToken<'_>) -> Result<Identified, Denied>) -> Identified {
    BearerToken::of(headers).and_then(identify).unwrap_or_else(Identified::Denied)
}
