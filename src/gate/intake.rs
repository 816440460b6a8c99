//! The message in the body of a request, read within its limits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use super::refuse::Refusal;
use crate::wire::{
    Message,
    depth::{MAX_DEPTH, nests_too_deep},
};

/// How long a body may take to arrive.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The message in a body of at most `max` bytes.
pub(super) async fn message(body: Incoming, max: usize) -> Result<Message, Refusal> {
    let body = read(body, max).await?;
    if nests_too_deep(&body) {
        return Err(Refusal::too_deep(MAX_DEPTH));
    }
    Message::parse(body).map_err(Refusal::malformed)
}

async fn read(body: Incoming, max: usize) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > max as u64 {
        return Err(Refusal::too_large(max));
    }
    // The timer only starts where the body has not arrived with the head.
    tokio::time::timeout(TIMEOUT, collect(body, max)).await.unwrap_or_else(|_| Err(Refusal::slow_body()))
}

async fn collect(mut body: Incoming, max: usize) -> Result<Bytes, Refusal> {
    let (mut whole, mut parts) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let Ok(part) = frame.map_err(|error| Refusal::broken_body(&error))?.into_data() else { continue };
        if whole.len() + parts.len() + part.len() > max {
            return Err(Refusal::too_large(max));
        }
        if whole.is_empty() && parts.is_empty() {
            // The usual case is not copied.
            whole = part;
        } else {
            parts.extend_from_slice(&std::mem::take(&mut whole));
            parts.extend_from_slice(&part);
        }
    }
    Ok(if parts.is_empty() { whole } else { parts.freeze() })
}
