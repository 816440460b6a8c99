//! Bodies of answers, read within limits.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use crate::upstream::Failure;

/// The media type without parameters; empty if there is none.
pub(super) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim()
}

/// The next part of a body; `None` at its end.
pub(super) async fn next_chunk(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    while let Some(frame) = body.frame().await {
        if let Ok(chunk) = frame.map_err(|error| Failure::Incomplete(causes(&error)))?.into_data() {
            return Ok(Some(chunk));
        }
    }
    Ok(None)
}

/// Reads the rest of a body behind `first`, `limit` bytes in all at most; a body of one part is not copied.
pub(in crate::upstream) async fn read(mut first: Bytes, mut body: Incoming, limit: usize) -> Result<Bytes, Failure> {
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if expected > limit {
        return Err(Failure::TooLarge(limit));
    }
    let mut rest = BytesMut::new();
    while let Some(chunk) = next_chunk(&mut body).await? {
        if first.is_empty() && rest.is_empty() {
            first = chunk;
        } else {
            if rest.is_empty() {
                rest.reserve(expected.max(2 * first.len()));
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&chunk);
        }
        if first.len() + rest.len() > limit {
            return Err(Failure::TooLarge(limit));
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// An error with its causes, which hyper's own `Display` leaves out.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
