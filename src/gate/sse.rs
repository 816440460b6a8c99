//! Streams of events towards a client, with heartbeats so that nothing on the way takes them for dead.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::time::{Instant, Sleep};

use super::{Body, Response};
use crate::{
    session::{Connection, Use},
    wire::sse::HEARTBEAT,
};

/// The time between heartbeats on a silent stream.
pub(super) const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// The events of one connection.
#[derive(Debug)]
pub struct Events {
    connection: Connection,
    heartbeat: Pin<Box<Sleep>>,
    _session: Use,
}

impl Events {
    /// The next piece of the stream.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = match self.connection.poll_next(cx) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(event)) => event,
            Poll::Pending => {
                std::task::ready!(self.heartbeat.as_mut().poll(cx));
                HEARTBEAT
            }
        };
        self.heartbeat.as_mut().reset(Instant::now() + HEARTBEAT_EVERY);
        Poll::Ready(Some(next))
    }
}

/// The answer that delivers a stream; the session is in use as long as it lives.
pub(super) fn response(connection: Connection, session: Use) -> Response {
    let heartbeat = Box::pin(tokio::time::sleep(HEARTBEAT_EVERY));
    let mut response = Response::new(Body::from(Events { connection, heartbeat, _session: session }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A cache or a buffering proxy would hold events back.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
