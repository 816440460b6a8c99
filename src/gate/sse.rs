//! Streams of events towards a client, with heartbeats so that nothing on the way takes them for dead.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, stream::BoxStream};
use http::{HeaderValue, header};
use tokio::time::{Instant, Sleep};

use super::{Body, Response};
use crate::{
    session::Use,
    wire::sse::{HEARTBEAT, encode},
};

/// The time between heartbeats on a silent stream.
pub(super) const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// JSON documents as events.
pub struct Events {
    documents: BoxStream<'static, Bytes>,
    heartbeat: Pin<Box<Sleep>>,
    _session: Use,
}

impl Events {
    /// Sends each document as an event; the session is in use as long as the stream lives.
    pub fn new(documents: impl Stream<Item = Bytes> + Send + 'static, session: Use) -> Self {
        let heartbeat = Box::pin(tokio::time::sleep(HEARTBEAT_EVERY));
        Self { documents: Box::pin(documents), heartbeat, _session: session }
    }

    /// The next piece of the stream.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = match self.documents.as_mut().poll_next(cx) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(document)) => encode(&document),
            Poll::Pending => {
                std::task::ready!(self.heartbeat.as_mut().poll(cx));
                HEARTBEAT
            }
        };
        self.heartbeat.as_mut().reset(Instant::now() + HEARTBEAT_EVERY);
        Poll::Ready(Some(next))
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// The answer that carries `events`.
pub(super) fn response(events: Events) -> Response {
    let mut response = Response::new(Body::from(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A cache or a buffering proxy would hold events back.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
