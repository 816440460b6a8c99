//! The bodies of answers.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::oneshot;

use super::sse::Events;
use crate::wire::Parts;

/// A whole answer, or a stream of events.
#[derive(Debug, Default)]
pub struct Body {
    content: Content,
    /// Dropped with the body: what waits for the answer to be on its way goes on then.
    _sent: Option<oneshot::Sender<()>>,
}

#[derive(Debug, Default)]
enum Content {
    #[default]
    Empty,
    Whole(std::vec::IntoIter<Bytes>),
    Events(Box<Events>),
}

impl Body {
    /// A body that drops `sent` once hyper has taken it whole, or has given it up.
    #[must_use]
    pub fn with_signal(parts: Parts, sent: oneshot::Sender<()>) -> Self {
        Self { _sent: Some(sent), ..Self::from(parts) }
    }
}

impl From<Parts> for Body {
    fn from(parts: Parts) -> Self {
        Self { content: Content::Whole(parts.into_chunks().into_iter()), _sent: None }
    }
}

impl From<Bytes> for Body {
    fn from(whole: Bytes) -> Self {
        Self::from(Parts::from(whole))
    }
}

impl From<Events> for Body {
    fn from(events: Events) -> Self {
        Self { content: Content::Events(Box::new(events)), _sent: None }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match &mut self.get_mut().content {
            Content::Empty => None,
            Content::Whole(chunks) => chunks.next(),
            Content::Events(events) => std::task::ready!(events.poll_next(cx)),
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => true,
            Content::Whole(chunks) => chunks.as_slice().is_empty(),
            Content::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty => SizeHint::with_exact(0),
            Content::Whole(chunks) => SizeHint::with_exact(chunks.as_slice().iter().map(|c| c.len() as u64).sum()),
            Content::Events(_) => SizeHint::default(),
        }
    }
}
