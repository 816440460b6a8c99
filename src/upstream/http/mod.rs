//! HTTP towards an upstream: Streamable HTTP (revision 2025-11-25, "Transports", and the two before it), and HTTP+SSE,
//! the transport of revision 2024-11-05.

mod answer;
mod auto;
mod body;
mod connection;
mod endpoint;
mod forward;
mod get_stream;
mod link;
mod lost;
mod pool;
mod reopen;
mod silence;
mod sse;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(super) use self::body::read;
pub use self::pool::AnswerBody;
use self::{
    auto::AutoLink,
    body::http_error,
    forward::AddedHeaders,
    link::HttpLink,
    pool::{Pool, RequestError},
    sse::SseLink,
};
use super::{Failure, Inbound, Link, SavedLink};
use crate::{
    config::{Forward, Transport, UpstreamId},
    identity::RefusedTokens,
    net::{Connector, causes, without_secrets},
};

/// The header of the session.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The header of the revision that was agreed.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Names the method of a request (2026-07-28, "Streamable HTTP", section "Request Metadata").
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// Names what a request is about: a tool, a prompt, a resource, a task.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The header that resumes a stream.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The longest session id of a server that is kept, in bytes: every request carries it.
const MAX_SESSION_ID: usize = 4 * 1024;
/// How long a server may take to accept a message that expects no answer.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The silence on a connection after which TCP probes the other host, and the pause between probes.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// One configured HTTP upstream and its connections.
#[derive(Clone)]
pub struct Server {
    /// Its name, for the log.
    id: UpstreamId,
    uri: Uri,
    /// A digest of `uri` for what is saved of sessions. The address itself may have secrets in it.
    address: Arc<str>,
    transport: Transport,
    /// With [`Transport::Auto`]: whether the last session was opened over HTTP+SSE.
    last_over_sse: Arc<AtomicBool>,
    /// [`Server::asks_apart`]
    asks_apart: Arc<AtomicBool>,
    pool: Arc<Pool>,
    /// Where to report tokens that the upstream refuses, if the upstream checks them.
    refused: Option<Arc<RefusedTokens>>,
    /// The headers that its requests get besides.
    added: Arc<AddedHeaders>,
    /// The tasks that end sessions.
    closings: TaskTracker,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("uri", &without_secrets(&self.uri)).finish_non_exhaustive()
    }
}

impl Server {
    /// Prepares connections to the server of an upstream, at `uri` over `transport`, to which `forward` applies. Makes
    /// none yet.
    ///
    /// # Errors
    /// A sentence that says why TLS cannot be set up for an `https` address.
    pub fn new(
        id: UpstreamId,
        uri: Uri,
        transport: Transport,
        forward: Forward,
        refused: Option<Arc<RefusedTokens>>,
    ) -> Result<Self, String> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        // Only this notices a host that vanishes without closing its connections.
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_keepalive_interval(Some(KEEPALIVE));
        let address = BASE64.encode(digest(&SHA256, uri.to_string().as_bytes())).into();
        let pool = Arc::new(Pool::new(Connector::new(connector, &uri)?, uri.clone())?);
        let added = Arc::new(AddedHeaders::new(forward));
        let (last_over_sse, asks_apart, closings) = (Arc::default(), Arc::default(), TaskTracker::new());
        Ok(Self { id, uri, address, transport, last_over_sse, asks_apart, pool, refused, added, closings })
    }

    pub(super) fn has_get_stream(&self) -> bool {
        self.transport != Transport::Sse && !self.last_over_sse.load(Ordering::Relaxed)
    }

    /// Returns whether the server has asked on a GET stream, which does not say in the course of which call.
    pub(super) fn asks_apart(&self) -> bool {
        self.asks_apart.load(Ordering::Relaxed)
    }

    /// Notes that the server has asked on a GET stream.
    fn note_asks_apart(&self) {
        self.asks_apart.store(true, Ordering::Relaxed);
    }

    pub(super) fn reads_files(&self) -> bool {
        self.added.reads_files()
    }

    /// Reads the headers that come from files again. Blocks for the file system.
    pub(super) fn refresh(&self) {
        self.added.refresh(self.id.as_str());
    }

    fn request(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> impl Future<Output = Result<Response<AnswerBody>, RequestError>> {
        self.added.put(request.headers_mut());
        self.pool.request(request)
    }

    /// Sends a request. After a failure the server may have read the request, and even acted upon it, unless no
    /// connection was made.
    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Response<AnswerBody>, Failure> {
        let judged = self.refused.as_ref().and_then(|refused| {
            let token = request.headers().get(header::AUTHORIZATION)?;
            Some((refused, token.clone()))
        });
        let answered = self.request(request).await;
        if let (Some((refused, token)), Ok(answer)) = (judged, &answered)
            && answer.status() == StatusCode::UNAUTHORIZED
        {
            refused.add(&token);
        }
        answered.map_err(|error| match error {
            RequestError::Connect(error) => {
                Failure::Unreachable(format!("{}: {}", without_secrets(&self.uri), causes(&*error)))
            }
            RequestError::Http(error) if error.is_parse() => Failure::BadAnswer(causes(&error)),
            RequestError::Http(error) => Failure::Incomplete(causes(&error)),
        })
    }

    /// Returns the failure that an HTTP error status stands for, with at most `limit` bytes of its body. Where taskgate
    /// sends credentials of its own, 401 and 403 refuse taskgate and not the client.
    async fn refusal(&self, response: Response<AnswerBody>, limit: usize) -> Failure {
        match http_error(response, limit).await {
            Failure::Http(error) if error.is_authorization() && !self.added.clients_own => {
                Failure::Refused(error.status)
            }
            failure => failure,
        }
    }

    /// Waits until every session that is being ended has ended.
    pub(super) async fn ended(&self) {
        self.closings.close();
        self.closings.wait().await;
    }

    pub(super) fn connect(&self, inbound: Inbound) -> Arc<dyn Link> {
        match self.transport {
            Transport::Auto => Arc::new(AutoLink::new(self.clone(), inbound)),
            Transport::StreamableHttp => Arc::new(HttpLink::new(self.clone(), inbound)),
            Transport::Sse => Arc::new(SseLink::new(self.clone(), inbound, CancellationToken::new())),
        }
    }

    /// Returns whether a session was one with another URL.
    pub(super) fn is_elsewhere(&self, saved: &SavedLink) -> bool {
        *saved.address != *self.address
    }

    /// Makes a link that goes on with a session; `None` if the session is one with another server.
    pub(super) fn reconnect(&self, inbound: Inbound, saved: &SavedLink) -> Option<Arc<dyn Link>> {
        if self.transport == Transport::Sse || self.is_elsewhere(saved) {
            return None;
        }
        Some(Arc::new(HttpLink::restored(self.clone(), inbound, saved)?))
    }
}

/// Copies a server's session id, to be kept.
fn session_id(value: &HeaderValue) -> Result<HeaderValue, Failure> {
    let id = value.as_bytes();
    if id.len() > MAX_SESSION_ID {
        return Err(Failure::BadAnswer(format!("its {SESSION_ID} is longer than {MAX_SESSION_ID} bytes")));
    }
    // A copy, because the value is a part of the buffer that the answer was read into.
    Ok(HeaderValue::from_bytes(id).unwrap_or_else(|_| value.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_over_the_limit_is_refused() {
        let id = |length: usize| session_id(&HeaderValue::from_bytes(&vec![b'x'; length]).expect("a header"));
        assert_eq!(id(MAX_SESSION_ID).expect("kept").len(), MAX_SESSION_ID);
        let refused = id(MAX_SESSION_ID + 1).expect_err("too long").to_string();
        assert!(refused.contains("mcp-session-id is longer than 4096 bytes"), "{refused}");
    }
}
