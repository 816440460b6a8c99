//! Streams of events towards a client, with heartbeats so that nothing on the way takes them for dead.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::time::{Instant, Sleep};

use super::{Body, Response, old_sse::OldStream};
use crate::{
    dialect::modern::Pieces,
    identity::Pass,
    session::{Connection, Next, SessionGuard, Source as _},
    wire::sse::{HEARTBEAT, encode},
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
    Session(Connection, #[expect(dead_code, reason = "held, not used")] SessionGuard),
    /// The stream of a client of the older transport.
    Old(OldStream),
    /// The answer to one request of a modern client.
    Modern(Pieces),
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
            From::Modern(pieces) => pieces.poll_next(cx).map(|next| match next {
                Some(Next::Document(document)) => Some(encode(&document, None)),
                Some(Next::Question(..) | Next::Pause(_)) | None => None,
            }),
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
pub(super) fn response(connection: Connection, session: SessionGuard, pass: Pass) -> Response {
    events(From::Session(connection, session), pass)
}

/// The answer that delivers the stream of a client of the older transport.
pub(super) fn old_response(stream: OldStream) -> Response {
    events(From::Old(stream), Pass::Lasting)
}

/// The answer to a request of a modern client: a stream of its own, without ids.
pub(super) fn modern_response(pieces: Pieces) -> Response {
    events(From::Modern(pieces), Pass::Lasting)
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
