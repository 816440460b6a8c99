//! Requests that are refused as HTTP requests: the status, the JSON-RPC error that explains it, and the headers.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use super::Door;
use crate::{
    identity::{Denied, RefusedHeader},
    observe::{Observer, Who, events},
    session::Full,
    wire::{HEADER, Malformed, RpcError, Version, excerpt},
};

/// A refusal with its reason as a short constant for metrics.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    reason: &'static str,
    error: RpcError,
    id: Option<String>,
    header: Option<(HeaderName, HeaderValue)>,
    who: Option<Arc<Who>>,
    /// The Host or Origin that is refused, for the log.
    foreign: Option<String>,
}

impl Refusal {
    fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        let error = RpcError::invalid_request(message);
        Self { status, reason, error, id: None, header: None, who: None, foreign: None }
    }

    fn unavailable(reason: &'static str, message: impl Into<String>) -> Self {
        Self::retry_after(1, StatusCode::SERVICE_UNAVAILABLE, reason, message)
    }

    /// Refuses with `status` what may succeed after so many seconds.
    pub(super) fn retry_after(
        seconds: u64,
        status: StatusCode,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        let (error, header) = (RpcError::internal(message), Some((header::RETRY_AFTER, seconds.into())));
        Self { error, header, ..Self::new(status, reason, "") }
    }

    /// Refuses with 403 a foreign Host or Origin (section "Security Warning"), and with 400 a request that names no
    /// host or several.
    pub(super) fn foreign(refused: &RefusedHeader) -> Self {
        let forbidden = |reason, foreign: &str, message| Self {
            foreign: Some(excerpt(foreign).into()),
            ..Self::new(StatusCode::FORBIDDEN, reason, message)
        };
        match refused {
            RefusedHeader::Host(host) => {
                let message =
                    format!("Forbidden: the Host {host:?} is not served here; add it to server.allowed_hosts");
                forbidden("host", host, message)
            }
            RefusedHeader::Origin(origin) => {
                let message =
                    format!("Forbidden: the Origin {origin:?} is not allowed; add it to server.allowed_origins");
                forbidden("origin", origin, message)
            }
            RefusedHeader::NotOneHost => {
                Self::new(StatusCode::BAD_REQUEST, "host", "Bad request: it must have exactly one Host header")
            }
            RefusedHeader::SeveralOrigins => Self::said_twice(&header::ORIGIN),
        }
    }

    /// Refuses with 401 a request without a principal, with 403 one whose principal may not send it, and with 503 one
    /// whose principal cannot be found out.
    pub(super) fn denied(denied: &Denied, challenge: Option<HeaderValue>) -> Self {
        let (status, reason, word) = match denied {
            Denied::Peer(_) => (StatusCode::FORBIDDEN, "peer", "Forbidden"),
            Denied::NoHeader(_) | Denied::NotText(_) => (StatusCode::UNAUTHORIZED, "principal", "Unauthorized"),
            Denied::NoName | Denied::EmptyName | Denied::NameNotText | Denied::ExpiredCertificate => {
                (StatusCode::UNAUTHORIZED, "certificate", "Unauthorized")
            }
            Denied::NoToken => (StatusCode::UNAUTHORIZED, "no_token", "Unauthorized"),
            Denied::SeveralTokens => (StatusCode::BAD_REQUEST, "several_tokens", "Bad request"),
            Denied::BadToken(_) => (StatusCode::UNAUTHORIZED, "token", "Unauthorized"),
            Denied::Scope => (StatusCode::FORBIDDEN, "scope", "Forbidden"),
            Denied::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, "issuer", "Unavailable"),
        };
        let header = match denied {
            // Up to the next whole second, as the header counts.
            Denied::Unavailable { after, .. } => Some((header::RETRY_AFTER, HeaderValue::from(after.as_secs() + 1))),
            _ => challenge.map(|challenge| (header::WWW_AUTHENTICATE, challenge)),
        };
        Self { header, ..Self::new(status, reason, format!("{word}: {denied}")) }
    }

    /// Refuses with 404 a path that no upstream has.
    pub(super) fn no_such_path(path: &str, paths: &[String]) -> Self {
        let paths = paths.join(", ");
        Self::new(
            StatusCode::NOT_FOUND,
            "path",
            format!("Not found: no endpoint at {path:?}; the endpoints are {paths}"),
        )
    }

    /// Refuses with 405 a method that a door does not take.
    pub(super) fn method(door: Door) -> Self {
        let (message, allowed) = match door {
            Door::Streamable => {
                ("Method not allowed: the MCP endpoint takes POST, GET and DELETE", "GET, POST, DELETE")
            }
            Door::OldStream => ("Method not allowed: the stream of the HTTP+SSE transport takes GET", "GET"),
            Door::OldMessages => ("Method not allowed: messages of the HTTP+SSE transport come by POST", "POST"),
            Door::Metadata => ("Method not allowed: the protected-resource metadata takes GET", "GET"),
        };
        let header = Some((header::ALLOW, HeaderValue::from_static(allowed)));
        Self { header, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "method", message) }
    }

    /// Refuses with 405 what only sessions have (revision 2026-07-28, "Earlier Streamable HTTP Revisions").
    pub(super) fn method_of_sessions() -> Self {
        let message = "Method not allowed: revision 2026-07-28 has neither GET nor DELETE; send requests by POST";
        let header = Some((header::ALLOW, HeaderValue::from_static("POST")));
        Self { header, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "method", message) }
    }

    /// Refuses with 501 a body in a transfer coding besides the chunked one (RFC 9112, section 6.1).
    pub(super) fn transfer_encoding() -> Self {
        let message = "Not implemented: taskgate decodes no body; send it with no Transfer-Encoding but chunked";
        Self::new(StatusCode::NOT_IMPLEMENTED, "transfer_encoding", message)
    }

    /// Refuses with 400 several values of a header that has one: another program on the way may read another of them.
    pub(super) fn said_twice(header: &HeaderName) -> Self {
        let message = format!("Bad request: it must have at most one {header} header");
        Self::new(StatusCode::BAD_REQUEST, "said_twice", message)
    }

    /// Refuses with 406 an Accept header without `needed`.
    pub(super) fn not_acceptable(needed: &str) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "accept", format!("Not acceptable: the Accept header must list {needed}"))
    }

    /// Refuses with 431 headers that take more than may go on to a server.
    pub(super) fn too_many_headers(max: usize) -> Self {
        let message = format!(
            "Request header fields too large: those that go on to the server take more than {max} bytes, with {HEADER} \
             for each besides its text; send fewer or shorter ones"
        );
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers", message)
    }

    /// Refuses with 415 a body that is not declared as JSON.
    pub(super) fn content_type() -> Self {
        let message = "Unsupported media type: the Content-Type must be application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", message)
    }

    /// Refuses with 415 a body that has to be decoded, and says which needs no decoding (RFC 9110, section 15.5.16).
    pub(super) fn content_encoding() -> Self {
        let message = "Unsupported media type: taskgate decodes no body; send it without a Content-Encoding";
        let header = Some((header::ACCEPT_ENCODING, HeaderValue::from_static("identity")));
        Self { header, ..Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_encoding", message) }
    }

    /// Refuses with 413 a body over the limit.
    pub(super) fn too_large(max_body: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "max_body",
            format!("Payload too large: the body is larger than server.max_body = {max_body} bytes"),
        )
    }

    /// Refuses with 400 a body that breaks off.
    pub(super) fn broken_body(error: &hyper::Error) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "body", format!("Bad request: the body could not be read: {error}"))
    }

    /// Refuses with 408 a body that does not come.
    pub(super) fn slow_body(limit: Duration) -> Self {
        let limit = humantime::format_duration(limit);
        let message = format!("Request timeout: the body did not arrive within server.body_timeout = {limit}");
        Self::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", message)
    }

    /// Refuses with 503 a request whose token would be checked together with too many others.
    pub(super) fn too_many_unidentified(total: usize) -> Self {
        let total = total / 1024 / 1024;
        let message =
            format!("limit reached: requests whose tokens are being checked take {total}MiB; try again later");
        Self::unavailable("unidentified_requests", message)
    }

    /// Refuses with 503 a body that arrives together with too many others.
    pub(super) fn too_many_bodies(total: usize) -> Self {
        let message =
            format!("limit reached: server.max_body_total = {total} bytes of bodies are arriving; try again later");
        Self::unavailable("max_body_total", message)
    }

    /// Refuses with 503 a message of a client of HTTP+SSE, as too many bytes of such messages wait for their servers.
    pub(super) fn too_many_waiting(total: usize) -> Self {
        let message = format!(
            "limit reached: server.max_body_total = {total} bytes of messages of HTTP+SSE clients wait; try again later"
        );
        Self::unavailable("max_body_total", message)
    }

    /// Refuses with 400 a body that is no message.
    pub(super) fn malformed(malformed: Malformed) -> Self {
        let id = malformed.id().map(str::to_owned);
        Self { id, error: malformed.into(), ..Self::new(StatusCode::BAD_REQUEST, "malformed", "") }
    }

    /// Refuses with 400 a message that expects no answer and is not as it has to be.
    pub(super) fn unfit(error: RpcError) -> Self {
        Self { error, ..Self::new(StatusCode::BAD_REQUEST, "malformed", "") }
    }

    /// Refuses with 400 a request that is neither of one generation nor of the other.
    pub(super) fn half_modern(why: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "half_modern", why)
    }

    /// Refuses with 400 JSON that nests too deep, perhaps of a request with that raw id.
    pub(super) fn too_deep(max: usize, id: Option<Box<str>>) -> Self {
        let message = format!("Invalid request: the JSON nests deeper than {max} levels");
        Self { id: id.map(String::from), ..Self::new(StatusCode::BAD_REQUEST, "depth", message) }
    }

    /// Refuses with 400 a revision that is not spoken. It has no modern error body, so that clients of both generations
    /// fall back to `initialize`.
    pub(super) fn version(version: &str) -> Self {
        let spoken = Version::list();
        Self::new(
            StatusCode::BAD_REQUEST,
            "version",
            format!("Bad request: unsupported protocol version {version:?}; supported are {spoken}"),
        )
    }

    /// Refuses with 400 a request of the modern generation.
    pub(super) fn modern() -> Self {
        let message = "Bad request: this endpoint speaks the revisions with sessions; start with initialize";
        Self::new(StatusCode::BAD_REQUEST, "modern", message)
    }

    /// Refuses with 400 a request that names no session (section "Session Management" 2).
    pub(super) fn no_session_id() -> Self {
        let message = "Bad request: the Mcp-Session-Id header is missing; start with initialize and send its value";
        Self::new(StatusCode::BAD_REQUEST, "no_session_id", message)
    }

    /// Refuses with 400 a stream that cannot be resumed.
    pub(super) fn unknown_event() -> Self {
        let message = "Bad request: the Last-Event-ID names no stream of this session that can still be resumed; \
                       open a new stream without it, and ask for the results of tasks with tasks/result";
        Self::new(StatusCode::BAD_REQUEST, "last_event_id", message)
    }

    /// Refuses with 503 a connection while all that are allowed are in use.
    pub(super) fn too_many_connections(max: usize) -> Self {
        let message = format!("limit reached: server.max_connections = {max} connections are in use; try again later");
        Self::unavailable("max_connections", message)
    }

    /// Refuses with 503 a stream that cannot be opened for now: one that is resumed, or that of the older transport,
    /// which is a session.
    pub(super) fn full(full: &Full) -> Self {
        Self::unavailable(full.name(), full.to_string())
    }

    /// Refuses with 503 a message behind others that wait for the client to read.
    pub(super) fn busy() -> Self {
        let message = "limit reached: earlier messages of this session still wait; read its stream and try again";
        Self::unavailable("busy", message)
    }

    /// Refuses with 404 a session that is unknown (section "Session Management" 3).
    pub(super) fn unknown_session() -> Self {
        let message = "Session not found: it has ended or never was; start a new one with initialize";
        Self::new(StatusCode::NOT_FOUND, "session", message)
    }

    /// Refuses with 503 to say that a session has ended for good, as the disk has not taken it yet. The reason names
    /// files of the operator, and is for the log.
    pub(super) fn end_not_kept() -> Self {
        let message = "The session has ended, but taskgate cannot reach its store now. Its removal is tried until it is done; \
                       if taskgate is killed before, the session is there again";
        Self::unavailable("store", message)
    }

    /// Names the client that is refused.
    pub(super) fn by(self, who: Arc<Who>) -> Self {
        Self { who: Some(who), ..self }
    }

    /// Answers the request `id` with the refusal.
    pub(super) fn answering(self, id: Option<&str>) -> Self {
        Self { id: id.map(str::to_owned), ..self }
    }

    /// Reports the refusal, and returns the answer where there is no HTTP.
    pub(super) fn into_document(self, observer: &Observer) -> Bytes {
        self.emit(observer);
        self.error.to_response(self.id.as_deref())
    }

    /// Reports the refusal. Where it is not answered, this is all that happens.
    pub(super) fn emit(&self, observer: &Observer) {
        let (who, status) = (self.who.as_deref(), self.status.as_u16());
        let foreign = self.foreign.as_deref();
        observer.emit(events::RequestRefused { who, reason: self.reason, status, foreign });
    }

    /// Reports the refusal, and returns the answer over HTTP.
    pub(super) fn into_response(self, observer: &Observer) -> Response<Bytes> {
        self.emit(observer);
        let mut response = Response::new(self.error.to_response(self.id.as_deref()));
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}
