//! The endpoint for clients of the 2024-11-05 HTTP+SSE transport: a GET opens a stream for everything that the client
//! is sent, and what the client sends comes by POST to the address that the stream names first.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::{
    Endpoint,
    headers::{accepts_stream, is_json, onward},
    intake::Intake,
    respond::{self, Response},
    sse::Events,
};
use crate::{
    gate::{channel::OldStreams, refuse::Refusal},
    identity::Principal,
    upstream::Upstream,
};

impl Endpoint {
    /// Opens a stream (GET).
    pub(super) fn open_old_stream(
        &self,
        upstream: Arc<Upstream>,
        principal: Option<Principal>,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Response, Refusal> {
        accepts_stream(headers)?;
        let stream = OldStreams::open(&self.old_streams, upstream, principal, path)?;
        Ok(respond::stream(Events::of_old_stream(stream)))
    }

    /// Takes a message for a stream, where it is answered (POST).
    pub(super) async fn old_message(
        &self,
        upstream: &Upstream,
        principal: Option<Principal>,
        query: Option<&str>,
        headers: HeaderMap,
        intake: Intake,
    ) -> Result<Response, Refusal> {
        is_json(&headers)?;
        let input = self.old_streams.find(upstream, principal, query)?;
        let message = intake.message(&self.bodies).await?;
        let headers = onward(input.upstream(), headers)?;
        input.send(message, headers).await?;
        Ok(respond::accepted(Bytes::from_static(b"Accepted").into()))
    }
}
