//! Answers as HTTP responses.

use http::{HeaderValue, StatusCode, header};
use http_body::Body as _;

use super::{Body, sse::Events};
use crate::{
    gate::{delivery::Whole, refuse::Refusal},
    observe::Observer,
    upstream::HttpError,
};

/// A response to a client.
pub(super) type Response = http::Response<Body>;

/// Returns a JSON answer with status 200.
pub(super) fn json(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the answer that delivers a stream.
pub(super) fn stream(events: Events) -> Response {
    let mut response = Response::new(Body::from(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A cache or a buffering proxy would hold events back.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Returns a whole answer. An error in answer to a request that was understood has status 200 too: clients take any
/// other status for a fault of the connection and drop every request on it.
pub(super) fn whole(whole: Whole) -> Response {
    match whole {
        Whole::Document(document) => json(document),
        Whole::Unauthorized(error) => passed_on(&error),
    }
}

/// Returns what answers a message that expects no answer.
pub(super) fn accepted(body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Leaves the body out of the answer to a HEAD request, and keeps its length (RFC 9110, section 9.3.2).
pub(super) fn head_only(mut response: Response) -> Response {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    response.body_mut().leave_out();
    response
}

/// Returns an upstream's HTTP error as it came.
pub(super) fn passed_on(error: &HttpError) -> Response {
    let mut response = Response::new(Body::from(error.body.clone()));
    *response.status_mut() = error.status;
    for name in [header::CONTENT_TYPE, header::WWW_AUTHENTICATE] {
        for value in error.headers.get_all(&name) {
            response.headers_mut().append(name.clone(), value.clone());
        }
    }
    response
}

/// Reports a refusal, and returns it.
pub(super) fn refused(refusal: Refusal, observer: &Observer) -> Response {
    refusal.into_response(observer).map(Body::from)
}
