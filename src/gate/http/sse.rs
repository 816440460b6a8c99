//! Streams of events towards a client, with heartbeats so that nothing on the way takes them for dead.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::time::{Instant, Sleep};

use super::Body;
use crate::{
    gate::{Response, channel::OldStream},
    identity::Pass,
    session::{Connection, Use},
    wire::sse::HEARTBEAT,
};

/// The time between heartbeats on a silent stream.
pub(super) const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// The events of one connection.
#[derive(Debug)]
pub struct Events {
    from: From,
    /// What is retrieved is for who may ask for it still. Looked at with every piece, heartbeats among them.
    pass: Pass,
    heartbeat: Pin<Box<Sleep>>,
}

#[derive(Debug)]
enum From {
    /// A stream of a session, which is in use as long as it lives.
    Session(Connection, #[expect(dead_code, reason = "held, not used")] Use),
    /// The stream of a client of the older transport.
    Old(OldStream),
}

impl Events {
    /// The next piece of the stream.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.pass.is_live() {
            return Poll::Ready(None);
        }
        let next = match &mut self.from {
            From::Session(connection, _) => connection.poll_next(cx),
            From::Old(stream) => stream.poll_next(cx),
        };
        let next = match next {
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

/// The answer that delivers a stream, as long as `pass` holds; the session is in use as long as it lives.
pub(super) fn response(connection: Connection, session: Use, pass: Pass) -> Response {
    events(From::Session(connection, session), pass)
}

/// The answer that delivers the stream of a client of the older transport.
pub(in crate::gate) fn old_response(stream: OldStream) -> Response {
    events(From::Old(stream), Pass::Lasting)
}

fn events(from: From, pass: Pass) -> Response {
    let heartbeat = Box::pin(tokio::time::sleep(HEARTBEAT_EVERY));
    let mut response = Response::new(Body::from(Events { from, pass, heartbeat }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // A cache or a buffering proxy would hold events back.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
