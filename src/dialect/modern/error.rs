//! Errors of revision 2026-07-28, and the HTTP status that each has ("Error Codes", "Server Validation").

use bytes::Bytes;
use http::StatusCode;
use serde_json::json;

use crate::{
    limit::TooOften,
    upstream::{Failure, HttpError},
    wire::{RpcError, Version, excerpt, response::error_response},
};

/// After how many seconds a client is to come back where the process stops: as those whose GET streams end then.
const AWAY: u64 = 5;

/// A request that is refused.
#[derive(Debug)]
pub struct Refused {
    /// What an HTTP answer says. Errors of a handler are 200.
    pub status: StatusCode,
    /// Why, as a short constant, for metrics and the audit log; `None` for an error of a handler.
    pub reason: Option<&'static str>,
    /// After how many seconds the client may try again, where that helps.
    pub retry_after: Option<u64>,
    /// The server's refusal of the client's credential, which answers a request over HTTP as it came.
    pub unauthorized: Option<Box<HttpError>>,
    /// The error, raw.
    error: String,
}

impl Refused {
    fn new(status: StatusCode, reason: &'static str, code: i32, message: &str) -> Self {
        let error = json!({ "code": code, "message": message }).to_string();
        Self::because(status, reason, error)
    }

    fn because(status: StatusCode, reason: &'static str, error: String) -> Self {
        Self { status, reason: Some(reason), retry_after: None, unauthorized: None, error }
    }

    /// Returns -32020: a header is missing, or unlike the body.
    pub(super) fn header(message: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "header_mismatch", -32020, &format!("Header mismatch: {}", message.as_ref()))
    }

    /// Returns -32021: the request does not declare a capability that it needs; `capabilities` is raw.
    pub(super) fn capability(message: &str, capabilities: &str) -> Self {
        let message = json!(format!("Missing required client capability: {message}"));
        let error =
            format!(r#"{{"code":-32021,"message":{message},"data":{{"requiredCapabilities":{capabilities}}}}}"#);
        Self::because(StatusCode::BAD_REQUEST, "missing_capability", error)
    }

    /// Returns -32021 for the tasks extension.
    pub(super) fn tasks_extension(message: &str) -> Self {
        Self::capability(message, &format!(r#"{{"extensions":{{"{}":{{}}}}}}"#, super::TASKS))
    }

    /// Returns -32022; `supported` are the revisions of the server, where they are known. The one that was requested is
    /// not among them: a client could choose it once more.
    pub(super) fn version(requested: &str, supported: Option<&[String]>) -> Self {
        let mut supported: Vec<_> = match supported {
            Some(supported) => supported.iter().map(String::as_str).collect(),
            None => supported_versions().collect(),
        };
        supported.retain(|version| *version != requested);
        let error = json!({
            "code": -32022,
            "message": format!("Unsupported protocol version; use one of {}", supported.join(", ")),
            "data": { "supported": supported, "requested": excerpt(requested) },
        });
        Self::because(StatusCode::BAD_REQUEST, "unsupported_version", error.to_string())
    }

    /// Returns -32602: the request is malformed.
    pub(super) fn malformed(message: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", -32602, &format!("Invalid params: {}", message.as_ref()))
    }

    /// Returns -32600: the request is neither of one generation nor of the other.
    pub(super) fn invalid_request(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "half_modern", -32600, &format!("Invalid request: {message}"))
    }

    /// Returns -32601 with HTTP status 404.
    pub(super) fn method_not_found(why: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "unknown_method", -32601, &format!("Method not found: {why}"))
    }

    /// Returns HTTP status 429: the client does something more often than `[rate]` allows.
    pub(super) fn too_often(limit: &TooOften) -> Self {
        let error = RpcError::internal(limit.to_string()).to_raw();
        let retry_after = Some(limit.seconds());
        Self { retry_after, ..Self::because(StatusCode::TOO_MANY_REQUESTS, limit.key, error) }
    }

    /// Returns -32603: a limit of taskgate is reached; `reason` is its name in metrics.
    pub(super) fn limit(reason: &'static str, why: &str) -> Self {
        let error = RpcError::internal(format!("limit reached: {why}")).to_raw();
        Self::because(StatusCode::OK, reason, error)
    }

    /// Returns HTTP status 503: the process stops, and begins nothing that would end at once.
    pub(super) fn stopping() -> Self {
        let error = RpcError::from(&Failure::Stopping).to_raw();
        Self { retry_after: Some(AWAY), ..Self::because(StatusCode::SERVICE_UNAVAILABLE, "stopping", error) }
    }

    /// Returns the response, under the raw id of the request.
    #[must_use]
    pub fn to_response(&self, id: &str) -> Bytes {
        error_response(id, &self.error)
    }
}

/// An error of a handler has HTTP status 200.
impl From<RpcError> for Refused {
    fn from(error: RpcError) -> Self {
        Self { status: StatusCode::OK, reason: None, retry_after: None, unauthorized: None, error: error.to_raw() }
    }
}

impl From<&Failure> for Refused {
    fn from(failure: &Failure) -> Self {
        let unauthorized = match failure {
            Failure::Http(error) if error.is_authorization() => Some(error.clone()),
            _ => None,
        };
        Self { unauthorized, ..RpcError::from(failure).into() }
    }
}

/// Returns the revisions of an endpoint that serves both generations, newest first.
pub(super) fn supported_versions() -> impl Iterator<Item = &'static str> {
    std::iter::once(super::VERSION).chain(Version::ALL.into_iter().rev().map(Version::as_str))
}
