//! The body of a request, read within its limits.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use super::refuse::Refusal;

/// How long a body may take to arrive.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A body that is being received.
#[derive(Debug)]
pub(super) struct Intake {
    first: Option<Result<Frame<Bytes>, hyper::Error>>,
    rest: Incoming,
}

impl Intake {
    /// Tells hyper that the body is wanted, before hyper looks: then what has arrived with the head is there at the first
    /// poll of the handler. Otherwise the connection would have to wake itself, and a timer would run, for every request.
    pub(super) fn start(mut body: Incoming) -> Self {
        let first = match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(first) => first,
            Poll::Pending => None,
        };
        Self { first, rest: body }
    }

    /// The whole body of at most `max` bytes.
    pub(super) async fn read(self, max: usize) -> Result<Bytes, Refusal> {
        if self.rest.size_hint().lower() > max as u64 {
            return Err(Refusal::too_large(max));
        }
        // The timer is only started if the body is not there yet.
        tokio::time::timeout(TIMEOUT, self.collect(max)).await.unwrap_or_else(|_| Err(Refusal::slow_body()))
    }

    async fn collect(mut self, max: usize) -> Result<Bytes, Refusal> {
        let (mut whole, mut parts) = (Bytes::new(), BytesMut::new());
        loop {
            let frame = match self.first.take() {
                Some(first) => Some(first),
                None => self.rest.frame().await,
            };
            let Some(frame) = frame else { break };
            let Ok(part) = frame.map_err(|error| Refusal::broken_body(&error))?.into_data() else { continue };
            if whole.len() + parts.len() + part.len() > max {
                return Err(Refusal::too_large(max));
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
}
