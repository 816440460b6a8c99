//! Decides whether a request comes in: whether it is for this host, from an allowed origin and for a path that is
//! served, and who sends it.

use std::sync::Arc;

use http::{HeaderMap, Uri, header};

use super::respond::{Response, refused};
use crate::{
    gate::{Door, Upstreams, refuse::Refusal},
    identity::{Evidence, Hosts, Identified, Identity, RefusedHeader},
    observe::Observer,
    upstream::Upstream,
};

/// Decides whether a request comes in.
#[derive(Debug)]
pub struct AccessControl {
    /// Which Host and Origin headers are accepted.
    hosts: Hosts,
    identity: Arc<Identity>,
    upstreams: Arc<Upstreams>,
    observer: Arc<Observer>,
}

/// What sends a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientKind {
    /// A program.
    Program,
    /// A page in a browser, which needs CORS.
    Page,
}

impl AccessControl {
    /// Creates the access control of `upstreams`, for clients that `identity` knows.
    #[must_use]
    pub fn new(hosts: Hosts, identity: Arc<Identity>, upstreams: Arc<Upstreams>, observer: Arc<Observer>) -> Arc<Self> {
        Arc::new(Self { hosts, identity, upstreams, observer })
    }

    /// Checks Host and Origin. The metadata is for every page, which gets CORS headers of its own with it.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<ClientKind, Refusal> {
        let page = headers.contains_key(header::ORIGIN);
        match self.hosts.check(uri, headers) {
            // A foreign Origin is the last thing to be found, so that the Host is right.
            Ok(()) | Err(RefusedHeader::Origin(_)) if page && self.is_public(uri.path()) => Ok(ClientKind::Program),
            Ok(()) if page => Ok(ClientKind::Page),
            Ok(()) => Ok(ClientKind::Program),
            Err(refused) => Err(Refusal::foreign(&refused)),
        }
    }

    /// Returns whether a path is for everyone, web pages included.
    fn is_public(&self, path: &str) -> bool {
        matches!(self.upstreams.at(path), Some((_, Door::Metadata)))
    }

    /// Returns the upstream that a path leads to, and by which door.
    pub(super) fn find(&self, path: &str) -> Result<(Arc<Upstream>, Door), Refusal> {
        self.upstreams.at(path).cloned().ok_or_else(|| {
            let streams = |upstream: &Arc<Upstream>| [Some(upstream.id.as_str().to_owned()), upstream.sse_path.clone()];
            let paths: Vec<String> = self.upstreams.all().iter().flat_map(streams).flatten().collect();
            Refusal::no_such_path(path, &paths)
        })
    }

    /// Identifies who sends a request to a door. A client that looks for the issuer has no token yet.
    pub(super) fn identify(&self, door: Door, evidence: &Evidence<'_>) -> Identified {
        match door {
            Door::Metadata => Identified::Known(None),
            _ => self.identity.identify(evidence),
        }
    }

    /// Returns the upstreams that requests come in for.
    pub(super) fn upstreams(&self) -> &Upstreams {
        &self.upstreams
    }

    /// Reports a refusal, and returns it.
    pub(super) fn refuse(&self, refusal: Refusal) -> Response {
        refused(refusal, &self.observer)
    }
}
