//! The bodies of answers: whole, streamed, relayed; and the signal that an answer has left.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::oneshot;
use tower::BoxError;

use super::{connections::Answering, sse::Events};
use crate::{
    upstream::http::AnswerBody,
    wire::{Parts, relay::Relay},
};

/// The largest piece of a whole answer that hyper takes at once over HTTP/2, in bytes.
const MAX_PIECE: usize = 64 * 1024;

/// A whole answer, or a stream of events.
#[derive(Debug, Default)]
pub(super) struct Body {
    content: Content,
    /// Dropped with the body: what waits for the answer to be on its way goes on then.
    _sent: Option<oneshot::Sender<()>>,
    /// Until the answer has left, the connection is in use.
    answering: Option<Answering>,
}

#[derive(Debug, Default)]
enum Content {
    #[default]
    Empty,
    Whole(std::vec::IntoIter<Bytes>),
    Events(Box<Events>),
    Relayed(Box<Relayed>),
}

/// A large answer of an upstream on its way through.
#[derive(Debug)]
struct Relayed {
    relay: Relay,
    /// What can go on now.
    ready: VecDeque<Bytes>,
    rest: AnswerBody,
    /// How much there is in all, where it is known.
    size: SizeHint,
}

impl Relayed {
    fn push(&mut self, chunk: &Bytes) -> Result<(), BoxError> {
        let mut out = Vec::with_capacity(3);
        self.relay.push(chunk, &mut out)?;
        self.ready.extend(out);
        Ok(())
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            match ready!(Pin::new(&mut self.rest).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(chunk) = frame.into_data() {
                        self.push(&chunk)?;
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(self.relay.end().err().map(|foreign| Err(foreign.into()))),
            }
        }
    }
}

impl Body {
    /// Relays a large answer whose id `relay` exchanges on the way.
    ///
    /// # Errors
    /// Fails where the beginning is not that of the response.
    pub(super) fn relayed(relay: Relay, first: &Bytes, rest: AnswerBody) -> Result<Self, BoxError> {
        let mut relayed = Relayed { relay, ready: VecDeque::new(), rest, size: SizeHint::default() };
        relayed.push(first)?;
        // Only the id changes the length.
        if let (true, Some(rest)) = (relayed.relay.has_exchanged(), relayed.rest.size_hint().exact()) {
            relayed.size.set_exact(rest + length(relayed.ready.iter()));
        }
        Ok(Self { content: Content::Relayed(Box::new(relayed)), ..Self::default() })
    }

    /// Returns a body that drops `sent` once hyper has taken it whole, or has given it up.
    pub(super) fn with_signal(parts: Parts, sent: oneshot::Sender<()>) -> Self {
        Self { _sent: Some(sent), ..Self::from(parts) }
    }

    /// Leaves out what there would be to send.
    pub(super) fn leave_out(&mut self) {
        self.content = Content::Empty;
    }

    /// Keeps `answering` until hyper has taken the body whole, or has given it up.
    pub(super) fn count(&mut self, answering: Answering) {
        self.answering = Some(answering);
    }
}

impl From<Parts> for Body {
    fn from(parts: Parts) -> Self {
        Self { content: Content::Whole(parts.into_chunks().into_iter()), ..Self::default() }
    }
}

impl From<Bytes> for Body {
    fn from(whole: Bytes) -> Self {
        Self::from(Parts::from(whole))
    }
}

impl From<Events> for Body {
    fn from(events: Events) -> Self {
        Self { content: Content::Events(Box::new(events)), ..Self::default() }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    /// Ends the connection: an answer that has begun cannot be taken back.
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = self.get_mut();
        let shares_connection = body.answering.as_ref().is_some_and(Answering::shares_connection);
        let data = match &mut body.content {
            Content::Empty => None,
            Content::Whole(chunks) if shares_connection => next_piece(chunks),
            Content::Whole(chunks) => chunks.next(),
            Content::Events(events) => ready!(events.poll_next(cx)),
            Content::Relayed(relayed) => ready!(relayed.poll_next(cx)).transpose()?,
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => true,
            Content::Whole(chunks) => chunks.as_slice().is_empty(),
            Content::Events(_) | Content::Relayed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty => SizeHint::with_exact(0),
            Content::Whole(chunks) => SizeHint::with_exact(length(chunks.as_slice().iter())),
            Content::Events(_) => SizeHint::default(),
            Content::Relayed(relayed) => relayed.size,
        }
    }
}

/// Takes the next piece of a whole answer. Over HTTP/2 hyper takes one as soon as its client has room for a byte, and
/// the body is gone with the last of them.
fn next_piece(chunks: &mut std::vec::IntoIter<Bytes>) -> Option<Bytes> {
    match chunks.as_mut_slice().first_mut() {
        Some(first) if first.len() > MAX_PIECE => Some(first.split_to(MAX_PIECE)),
        _ => chunks.next(),
    }
}

fn length<'a>(chunks: impl Iterator<Item = &'a Bytes>) -> u64 {
    chunks.map(|chunk| chunk.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt;

    use super::*;
    use crate::gate::http::connections::Activity;

    #[tokio::test]
    async fn a_whole_answer_over_http2_goes_in_pieces_and_ends_with_the_last_of_them() {
        let mut body = Body::from(Bytes::from(vec![b'x'; 2 * MAX_PIECE + 1]));
        body.count(Arc::<Activity>::default().begin(false, false).expect("it is open"));
        for left in [MAX_PIECE + 1, 1, 0] {
            assert!(!body.is_end_stream());
            let piece = body.frame().await.expect("a piece").expect("it is there").into_data();
            assert!(piece.is_ok_and(|piece| piece.len() <= MAX_PIECE));
            assert_eq!(body.size_hint().exact(), Some(left as u64));
        }
        assert!(body.is_end_stream());
    }
}
