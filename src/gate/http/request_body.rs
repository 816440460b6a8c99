//! The body of a request. Over HTTP/2, the rest of one that was answered early is taken, so that the answer stands.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::Version;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;

use crate::flow::ByteRoom;

/// What a request over HTTP/2 takes besides its head while its body is on its way, in bytes.
pub(super) const REQUEST: usize = 8 * 1024;
/// How long the rest of a body is waited for.
const REST_TIMEOUT: Duration = Duration::from_secs(2);
/// How many bytes of it are taken.
const MAX_REST: usize = 1024 * 1024;

/// A body. Where it is dropped before its end, hyper resets the stream of a request over HTTP/2, and many clients report
/// that in place of the answer. So the rest of it is taken within bounds, and only then let go.
#[derive(Debug)]
pub(super) struct RequestBody {
    /// `None` only while it is dropped.
    body: Option<Incoming>,
    /// `None` over HTTP/1.1, where hyper sees to the rest.
    rests: Option<ByteRoom>,
}

impl RequestBody {
    /// `rests` is the room for bodies over HTTP/2 of which the rest is taken.
    pub(super) fn new(body: Incoming, version: Version, rests: &ByteRoom) -> Self {
        let rests = (version == Version::HTTP_2).then(|| rests.clone());
        Self { body: Some(body), rests }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.body.as_mut().map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let (Some(mut body), Some(rests)) = (self.body.take(), &self.rests) else { return };
        // Usually all of it has been read. Where the client has reset the stream, nothing more comes.
        let looked = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        if body.is_end_stream() || matches!(looked, Poll::Ready(None | Some(Err(_)))) {
            return;
        }
        // Where there is no room, or the process ends, the stream is reset.
        if let (Some(taken), Ok(runtime)) = (rests.take(REQUEST), Handle::try_current()) {
            runtime.spawn(async move {
                // Neither a body that does not end in time nor one that breaks off is of any interest now.
                let _ = tokio::time::timeout(REST_TIMEOUT, take_rest(body)).await;
                drop(taken);
            });
        }
    }
}

/// Takes the rest of a body, until it ends, breaks off or becomes too long.
async fn take_rest(mut body: Incoming) {
    let mut taken = 0;
    while taken < MAX_REST
        && let Some(Ok(frame)) = body.frame().await
    {
        taken += frame.data_ref().map_or(0, Bytes::len);
    }
}
