//! Streams of events towards a client, with heartbeats so that nothing on the way takes them for dead.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::{Instant, Sleep};

use crate::{
    dialect::modern::Pieces,
    gate::channel::OldStream,
    identity::Pass,
    session::{Connection, SessionGuard, Source as _, StreamItem},
    wire::sse::{HEARTBEAT, encode},
};

/// The time between heartbeats on a silent stream.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// The events of one connection.
#[derive(Debug)]
pub(super) struct Events {
    source: EventSource,
    /// What is retrieved is for clients that may still ask for it. Looked at with every piece, heartbeats among them.
    pass: Pass,
    heartbeat: Pin<Box<Sleep>>,
}

#[derive(Debug)]
enum EventSource {
    /// A stream of a session, which is in use while the stream lives.
    Session(Connection, #[expect(dead_code, reason = "held, not used")] SessionGuard),
    /// The stream of a client of the older transport.
    Old(OldStream),
    /// The answer to one request of a modern client.
    Request(Pieces),
}

impl Events {
    /// Delivers a stream while `pass` holds; the session is in use meanwhile.
    pub(super) fn of_session(connection: Connection, session: SessionGuard, pass: Pass) -> Self {
        Self::new(EventSource::Session(connection, session), pass)
    }

    /// Delivers the stream of a client of the older transport.
    pub(super) fn of_old_stream(stream: OldStream) -> Self {
        Self::new(EventSource::Old(stream), Pass::Lasting)
    }

    /// Delivers the answer to one request of a modern client, without ids of events.
    pub(super) fn of_request(pieces: Pieces, pass: Pass) -> Self {
        Self::new(EventSource::Request(pieces), pass)
    }

    fn new(source: EventSource, pass: Pass) -> Self {
        Self { source, pass, heartbeat: Box::pin(tokio::time::sleep(HEARTBEAT_EVERY)) }
    }

    /// Returns the next piece of the stream.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.pass.is_live() {
            let EventSource::Request(pieces) = &mut self.source else { return Poll::Ready(None) };
            return Poll::Ready(pieces.last_word().map(|document| encode(&document, None)));
        }
        let next = match &mut self.source {
            EventSource::Session(connection, _) => connection.poll_next(cx),
            EventSource::Old(stream) => stream.poll_next(cx),
            EventSource::Request(pieces) => pieces.poll_next(cx).map(|next| match next {
                Some(StreamItem::Document(document)) => Some(encode(&document, None)),
                Some(StreamItem::Question(..) | StreamItem::Pause(_)) | None => None,
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
