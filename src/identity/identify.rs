//! The principal of a request, as `[auth]` configures it.

use std::{future::Future, net::IpAddr, pin::Pin, sync::Arc};

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use super::{
    Certificate, Denied, Pass, Principal, RefusedTokens, bearer::Judges, certificate, introspect::Introspect, jwt::Jwt,
    token::Token, trusted,
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
    Jwt(Jwt),
    Introspect(Introspect),
    Bearer(Box<Judges>),
    Mtls,
}

/// What tells who sends a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The upstream that the request is for.
    pub upstream: &'a UpstreamId,
    /// The other end of the connection.
    pub peer: IpAddr,
    /// What its certificate says, if it has one.
    pub certificate: Option<&'a Certificate>,
    /// The headers of the request.
    pub headers: &'a HeaderMap,
}

/// Who sends a request.
pub enum Identified {
    /// This principal; `None` where there is no authentication.
    Known(Option<Principal>),
    /// Nobody who may.
    Denied(Denied),
    /// The issuer of a token has to be asked first.
    Later(Pin<Box<dyn Future<Output = Result<Principal, Denied>> + Send>>),
}

impl Identity {
    /// Identifies as `auth` says. Key sets begin to be fetched.
    ///
    /// # Errors
    /// A sentence, if the means for it are missing.
    pub fn start(auth: Auth, observer: &Arc<Observer>) -> Result<Self, String> {
        Ok(Self(match auth {
            Auth::None => Mode::None,
            Auth::Header { name, trusted_peers } => Mode::Header { name, trusted_peers },
            Auth::Jwt(config) => Mode::Jwt(Jwt::start(*config, Arc::clone(observer))?),
            Auth::Introspect(config) => Mode::Introspect(Introspect::new(*config, Arc::clone(observer))?),
            Auth::Mtls => Mode::Mtls,
            Auth::Bearer(_) => Mode::Bearer(Box::new(Judges::new()?)),
        }))
    }

    /// The principal of a request. Only a token that was not seen before may have to wait for its issuer.
    pub fn identify(&self, caller: &Caller<'_>) -> Identified {
        match &self.0 {
            Mode::None => Identified::Known(None),
            Mode::Header { name, trusted_peers } => match trusted::principal(caller, name, trusted_peers) {
                Ok(name) => Identified::Known(Some(Principal { name, pass: Pass::Lasting })),
                Err(denied) => Identified::Denied(denied),
            },
            Mode::Mtls => match certificate::principal(caller.certificate) {
                Ok(principal) => Identified::Known(Some(principal)),
                Err(denied) => Identified::Denied(denied),
            },
            Mode::Jwt(jwt) => by_token(caller, |token| jwt.identify(token)),
            Mode::Introspect(introspect) => by_token(caller, |token| introspect.identify(token)),
            Mode::Bearer(judges) => by_token(caller, |token| judges.of(caller.upstream).identify(token)),
        }
    }

    /// Whether an upstream that judges tokens has refused the token that is a principal by this name.
    #[must_use]
    pub fn has_refused(&self, upstream: &UpstreamId, name: &str) -> bool {
        matches!(&self.0, Mode::Bearer(judges) if judges.of(upstream).has(name))
    }

    /// Where an upstream reports the tokens that it refuses, if it is the judge of them.
    #[must_use]
    pub fn refused_tokens(&self, upstream: &UpstreamId) -> Option<Arc<RefusedTokens>> {
        match &self.0 {
            Mode::Bearer(judges) => Some(judges.of(upstream)),
            _ => None,
        }
    }
}

fn by_token(caller: &Caller<'_>, identify: impl FnOnce(Token<'_>) -> Result<Identified, Denied>) -> Identified {
    Token::of(caller.headers).and_then(identify).unwrap_or_else(Identified::Denied)
}
