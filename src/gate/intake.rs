//! The message in the body of a request, read within its limits.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    connections::{Arriving, Connection},
    refuse::Refusal,
};
use crate::wire::{
    Message,
    depth::{MAX_DEPTH, nests_too_deep},
};

/// What holds for the bodies of requests.
#[derive(Debug)]
pub struct Bodies {
    /// The largest, in bytes.
    pub max: usize,
    /// How long one may take to arrive.
    timeout: Duration,
    /// Most bytes of all that are on their way.
    total: usize,
    /// How many of these there is room for.
    room: Semaphore,
}

impl Bodies {
    /// Bodies of at most `max` bytes that take `timeout` at most, of which `total` bytes may have come while the rest is
    /// on its way.
    #[must_use]
    pub fn new(max: usize, timeout: Duration, total: usize) -> Self {
        let total = total.min(Semaphore::MAX_PERMITS);
        Self { max, timeout, total, room: Semaphore::new(total) }
    }
}

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

    /// The message in it, in whatever pieces it comes.
    pub(super) async fn message(self, bodies: &Bodies) -> Result<Message, Refusal> {
        let body = read(self.body, bodies).await?;
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

async fn read(body: Incoming, bodies: &Bodies) -> Result<Bytes, Refusal> {
    let Bodies { max, timeout, .. } = *bodies;
    if body.size_hint().lower() > max as u64 {
        return Err(Refusal::too_large(max));
    }
    // The timer only starts where the body has not arrived with the head.
    tokio::time::timeout(timeout, collect(body, bodies)).await.unwrap_or_else(|_| Err(Refusal::slow_body(timeout)))
}

async fn collect(mut body: Incoming, bodies: &Bodies) -> Result<Bytes, Refusal> {
    let (mut whole, mut parts) = (Bytes::new(), BytesMut::new());
    // Given back as soon as the body is whole: what it asks for has limits of its own.
    let mut counted: Option<SemaphorePermit<'_>> = None;
    while let Some(frame) = body.frame().await {
        let Ok(part) = frame.map_err(|error| Refusal::broken_body(&error))?.into_data() else { continue };
        if whole.len() + parts.len() + part.len() > bodies.max {
            return Err(Refusal::too_large(bodies.max));
        }
        if !body.is_end_stream() {
            let more = u32::try_from(part.len()).ok().and_then(|bytes| bodies.room.try_acquire_many(bytes).ok());
            let more = more.ok_or_else(|| Refusal::too_many_bodies(bodies.total))?;
            match &mut counted {
                Some(counted) => counted.merge(more),
                None => counted = Some(more),
            }
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
