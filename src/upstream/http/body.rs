//! Reads the bodies of answers, and the messages in them, within limits.

use bytes::Bytes;
use http::{HeaderMap, Response, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use hyper::body::Body;

use super::AnswerBody;
use crate::{
    net::causes,
    upstream::{Failure, HttpError},
    wire::{
        Message, extend,
        message::Outcome,
        own,
        received::{Received, receive},
        sse::Event,
    },
};

/// How much is read of a body that answers no request, in bytes.
pub(super) const MAX_UNASKED: usize = 64 * 1024;
/// The largest body of an HTTP error that is read, in bytes: it may have a JSON-RPC error, and no result.
pub(super) const MAX_ERROR: usize = 1024 * 1024;

/// Returns the media type without parameters; empty if there is none.
pub(super) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim()
}

/// Returns whether a media type is that of an event stream.
pub(super) fn is_stream(media_type: &str) -> bool {
    media_type.eq_ignore_ascii_case("text/event-stream")
}

/// Reads the next part of a body; `None` at its end.
pub(super) async fn next_chunk(body: &mut AnswerBody) -> Result<Option<Bytes>, Failure> {
    while let Some(frame) = body.frame().await {
        if let Ok(chunk) = frame.map_err(|error| Failure::Incomplete(causes(&error)))?.into_data() {
            return Ok(Some(chunk));
        }
    }
    Ok(None)
}

/// Reads the rest of a body behind `first`, up to `limit` bytes in all. A large body of one part is not copied.
pub(in crate::upstream) async fn read(mut first: Bytes, mut body: AnswerBody, limit: usize) -> Result<Bytes, Failure> {
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if expected > limit {
        return Err(Failure::TooLarge(limit));
    }
    let mut rest = Vec::new();
    while let Some(chunk) = next_chunk(&mut body).await? {
        if first.is_empty() && rest.is_empty() {
            first = chunk;
        } else {
            if rest.is_empty() {
                rest.reserve_exact(expected.max(2 * first.len()));
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            if rest.len() + chunk.len() > limit {
                return Err(Failure::TooLarge(limit));
            }
            extend(&mut rest, &chunk, limit);
        }
        if first.len() > limit {
            return Err(Failure::TooLarge(limit));
        }
    }
    Ok(if rest.is_empty() { own(first) } else { rest.into() })
}

/// Reads the failure that an HTTP error status stands for, with a body of at most `limit` bytes. A larger body, and one
/// that breaks off, is left out: the status says what has failed.
pub(super) async fn http_error(response: Response<AnswerBody>, limit: usize) -> Failure {
    let (head, body) = response.into_parts();
    let body = read(Bytes::new(), body, limit).await.unwrap_or_default();
    Failure::Http(Box::new(HttpError { status: head.status, headers: head.headers, body }))
}

/// Returns what a server sent in an event; nothing if the event does not carry messages.
pub(super) fn messages_in(event: &Event) -> Vec<Received> {
    // An event without data only primes the client for a reconnection.
    if event.data.is_empty() || !matches!(event.name.as_str(), "" | "message") {
        return Vec::new();
    }
    receive(&event.data)
}

/// Returns the JSON-RPC error in the body of an HTTP error, which is the response, with any status but 401 and 403.
/// Those stay as they are, because authorization is between the client and the upstream.
pub(super) fn rpc_error_in(failure: &Failure) -> Option<Message> {
    let Failure::Http(error) = failure else { return None };
    if error.is_authorization() {
        return None;
    }
    Message::of_server(error.body.clone()).ok().filter(|message| matches!(message.outcome(), Some((Outcome::Error, _))))
}
