//! The message in the body of a request, read within its limits.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Version, request::Parts};
use http_body_util::BodyExt;
use hyper::body::Body as _;

use super::{
    connections::{Activity, Arriving},
    request_body::{REQUEST, RequestBody},
};
use crate::{
    flow::{ByteRoom, TakenBytes},
    gate::refuse::Refusal,
    wire::{
        Message,
        beginning::id_of_request,
        depth::{MAX_DEPTH, nests_too_deep},
        headers_cost, own,
    },
};

/// How many bytes of requests over HTTP/2 may wait until it is known whose they are.
const MAX_UNIDENTIFIED: usize = 8 * 1024 * 1024;
/// How many bytes the requests over HTTP/2 may take that were answered before the rest of their body.
const MAX_RESTS: usize = 4 * 1024 * 1024;

/// What holds for the bodies of requests.
#[derive(Debug)]
pub struct Bodies {
    /// The largest, in bytes.
    pub max: usize,
    /// How long one may take to arrive.
    timeout: Duration,
    /// The room for all that are on their way, and for the requests over HTTP/2 that they belong to.
    pub room: ByteRoom,
    /// The room of [`MAX_UNIDENTIFIED`] bytes.
    unidentified: ByteRoom,
    /// The room of [`MAX_RESTS`] bytes.
    pub(super) rests: ByteRoom,
}

impl Bodies {
    /// Bodies of at most `max` bytes that take `timeout` at most, of which `total` bytes may have come while the rest
    /// is on its way. Over HTTP/2, where one connection has many of them, the requests themselves count too.
    #[must_use]
    pub fn new(max: usize, timeout: Duration, total: usize) -> Self {
        let [unidentified, rests] = [MAX_UNIDENTIFIED, MAX_RESTS].map(ByteRoom::new);
        Self { max, timeout, room: ByteRoom::new(total), unidentified, rests }
    }

    /// Counts a request while it is not known whose it is: over HTTP/2 a connection has many of them. Strangers must
    /// not take the room of bodies.
    pub(super) fn unidentified(&self, version: Version, headers: &HeaderMap) -> Result<Option<TakenBytes>, Refusal> {
        if version != Version::HTTP_2 {
            return Ok(None);
        }
        let room = self.unidentified.take(REQUEST + headers_cost(headers));
        room.map(Some).ok_or_else(|| Refusal::too_many_unidentified(MAX_UNIDENTIFIED))
    }

    fn count(&self, bytes: usize, counted: &mut Option<TakenBytes>) -> Result<(), Refusal> {
        let more = self.room.take(bytes).ok_or_else(|| Refusal::too_many_bodies(self.room.most()))?;
        match counted {
            Some(counted) => counted.merge(more),
            None => *counted = Some(more),
        }
        Ok(())
    }
}

/// The body of a request that is still to come.
#[derive(Debug)]
pub(super) struct Intake {
    body: RequestBody,
    arriving: Arriving,
    /// What is counted of the request, given back as soon as the body is whole: what it asks for has limits of its own.
    counted: Option<TakenBytes>,
}

impl Intake {
    /// Counts a request that waits for its body, unless it is all that its connection has. It counts before the handler
    /// waits for the body: by then the heads of many requests would be there.
    pub(super) fn new(head: &Parts, body: RequestBody, bodies: &Bodies, on: &Arc<Activity>) -> Result<Self, Refusal> {
        let mut counted = None;
        if head.version == Version::HTTP_2 && !body.is_end_stream() {
            bodies.count(REQUEST + headers_cost(&head.headers), &mut counted)?;
        }
        Ok(Self { body, arriving: on.arriving(), counted })
    }

    /// Reads the message, in whatever pieces it comes.
    pub(super) async fn message(self, bodies: &Bodies) -> Result<Message, Refusal> {
        let body = read(self.body, self.counted, bodies).await?;
        if !self.arriving.arrived() {
            // The connection gives way to another one.
            std::future::pending::<()>().await;
        }
        if nests_too_deep(&body) {
            return Err(Refusal::too_deep(MAX_DEPTH, id_of_request(&body)));
        }
        Message::of_client(body).map_err(Refusal::malformed)
    }
}

async fn read(body: RequestBody, counted: Option<TakenBytes>, bodies: &Bodies) -> Result<Bytes, Refusal> {
    let Bodies { max, timeout, .. } = *bodies;
    if body.size_hint().lower() > max as u64 {
        return Err(Refusal::too_large(max));
    }
    // The timer only starts where the body has not arrived with the head.
    let collected = tokio::time::timeout(timeout, collect(body, counted, bodies));
    collected.await.unwrap_or_else(|_| Err(Refusal::slow_body(timeout)))
}

async fn collect(mut body: RequestBody, mut counted: Option<TakenBytes>, bodies: &Bodies) -> Result<Bytes, Refusal> {
    let mut parts = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(part) = frame.map_err(|error| Refusal::broken_body(&error))?.into_data() else { continue };
        if parts.len() + part.len() > bodies.max {
            return Err(Refusal::too_large(bodies.max));
        }
        if body.is_end_stream() && parts.is_empty() {
            // The usual case.
            return Ok(own(part));
        }
        if !body.is_end_stream() {
            bodies.count(part.len(), &mut counted)?;
        }
        parts.extend_from_slice(&part);
    }
    // The buffer has grown, and may be twice as large.
    Ok(Bytes::copy_from_slice(&parts))
}
