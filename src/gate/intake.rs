//! The message in the body of a request, read within its limits.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use super::{
    connections::{Arriving, Connection},
    refuse::Refusal,
};
use crate::wire::{
    Message,
    depth::{MAX_DEPTH, nests_too_deep},
};

/// The body of a request that is still to come.
#[derive(Debug)]
pub(super) struct Intake {
    body: Incoming,
    arriving: Arriving,
}

impl Intake {
    pub(super) fn new(body: Incoming, connection: &Arc<Connection>) -> Self {
        Self { body, arriving: connection.arriving() }
    }

    /// The message in it: at most `max` bytes, which take `timeout` at most, in whatever pieces they come.
    pub(super) async fn message(self, max: usize, timeout: Duration) -> Result<Message, Refusal> {
        let body = read(self.body, max, timeout).await?;
        if !self.arriving.arrived() {
            // The connection gives way to another one.
            std::future::pending::<()>().await;
        }
        if nests_too_deep(&body) {
            return Err(Refusal::too_deep(MAX_DEPTH));
        }
        Message::of_client(body).map_err(Refusal::malformed)
    }
}

async fn read(body: Incoming, max: usize, timeout: Duration) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > max as u64 {
        return Err(Refusal::too_large(max));
    }
    // The timer only starts where the body has not arrived with the head.
    tokio::time::timeout(timeout, collect(body, max)).await.unwrap_or_else(|_| Err(Refusal::slow_body(timeout)))
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
