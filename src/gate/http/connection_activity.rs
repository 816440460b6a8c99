//! What a connection tells of itself: that something has come, that a request has begun, that its answer has left.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{HeaderValue, Request, Version, header};
use hyper::{
    body::Body,
    rt::{Read, ReadBuf, ReadBufCursor, Write},
};
use hyper_util::rt::TokioIo;
use tokio::time::{Sleep, sleep};
use tower::Service;

use super::{
    connections::{Activity, Answering},
    respond::Response,
};

/// How long a client may go on sending the body of a request that has been refused.
const LINGER: Duration = Duration::from_secs(5);
/// hyper reads once more after an answer, into a buffer of this size at first, and closes where that was not the whole
/// body.
const READ_AT_ONCE: u64 = 8 * 1024;

/// The two directions of a connection.
#[derive(Debug)]
pub(super) struct Watched<T> {
    io: TokioIo<T>,
    /// What was already read.
    begun: &'static [u8],
    activity: Arc<Activity>,
    /// Whether the client has to read before more can be written.
    stuck: bool,
    /// Until when what the client still sends is taken, once nothing more is written.
    lingers: Option<Pin<Box<Sleep>>>,
}

impl<T> Watched<T> {
    pub(super) fn new(io: T, begun: &'static [u8], activity: Arc<Activity>) -> Self {
        Self { io: TokioIo::new(io), begun, activity, stuck: false, lingers: None }
    }

    /// Notes whether a write had to wait.
    fn note<R>(&mut self, written: Poll<R>) -> Poll<R> {
        if written.is_pending() != self.stuck {
            self.stuck = !self.stuck;
            self.activity.stuck(self.stuck);
        }
        written
    }
}

impl<T: Unpin> Read for Watched<T>
where
    TokioIo<T>: Read,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        if !self.begun.is_empty() && buffer.remaining() >= self.begun.len() {
            buffer.put_slice(std::mem::take(&mut self.begun));
            return Poll::Ready(Ok(()));
        }
        let read = ready!(Pin::new(&mut self.io).poll_read(cx, buffer));
        self.activity.came();
        Poll::Ready(read)
    }
}

impl<T: Unpin> Write for Watched<T>
where
    TokioIo<T>: Read + Write,
{
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, data);
        self.note(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.note(flushed)
    }

    /// Ends what is written. Takes what the client still sends of a request that was answered before it had come: when
    /// the connection is closed, the system would take the answer back for it (RFC 9112, section 9.6).
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        if this.lingers.is_none() {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            if !this.activity.has_unread() {
                return Poll::Ready(Ok(()));
            }
        }
        let lingers = this.lingers.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        while lingers.as_mut().poll(cx).is_pending() {
            let mut unread = [0; 4096];
            let mut unread = ReadBuf::new(&mut unread);
            ready!(Pin::new(&mut this.io).poll_read(cx, unread.unfilled()))?;
            if unread.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, data);
        self.note(written)
    }
}

/// A service whose requests count for the connection until their answers have left.
#[derive(Clone, Debug)]
pub(super) struct Counted<S> {
    inner: S,
    activity: Arc<Activity>,
}

impl<S> Counted<S> {
    pub(super) fn new(inner: S, activity: Arc<Activity>) -> Self {
        Self { inner, activity }
    }
}

impl<S, B> Service<Request<B>> for Counted<S>
where
    B: Body,
    S: Service<Request<B>, Response = Response>,
    S::Future: Unpin,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Counting<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let http1 = request.version() <= Version::HTTP_11;
        let body = request.body();
        let answering = self.activity.begin(http1, !body.is_end_stream());
        let is_large = body.size_hint().upper().is_none_or(|most| most > READ_AT_ONCE);
        // Where the connection is being closed, nothing may come of the request.
        Counting(answering.map(|answering| (answering, is_large, self.inner.call(request))))
    }
}

/// The answer of a [`Counted`] service, and whether its request has a large body.
#[derive(Debug)]
pub(super) struct Counting<F>(Option<(Answering, bool, F)>);

impl<F, E> Future for Counting<F>
where
    F: Future<Output = Result<Response, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some((.., answer)) = &mut self.0 else { return Poll::Pending };
        let mut answer = ready!(Pin::new(answer).poll(cx));
        if let (Ok(answer), Some((answering, is_large, _))) = (&mut answer, self.0.take()) {
            if is_large && answering.activity.has_unread() {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            answer.body_mut().count(answering);
        }
        Poll::Ready(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::gate::http::connections::{ConnectionGuard, ConnectionLimits, Connections, READS_WITHIN};

    fn connections(max_connections: usize) -> Arc<Connections> {
        let limits = ConnectionLimits { max_connections, head_timeout: Duration::from_secs(1), max_head: 1 << 16 };
        Connections::new(limits, Arc::default())
    }

    /// Opens a connection.
    fn opened(connections: &Arc<Connections>) -> Arc<Activity> {
        let mut activity = None;
        let stays = |guard: ConnectionGuard, ()| {
            activity = Some(Arc::clone(&guard.activity));
            let serving = async move {
                std::future::pending::<()>().await;
                drop(guard);
            };
            tokio::spawn(serving).abort_handle()
        };
        assert_eq!(connections.open((), stays), Ok(()));
        activity.expect("it was spawned")
    }

    /// Opens a connection that has been sent an answer.
    fn answered(connections: &Arc<Connections>) -> Arc<Activity> {
        let activity = opened(connections);
        drop(activity.begin(true, false));
        activity
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_client_still_reads_an_answer_is_closed_last() {
        let connections = connections(2);
        let reads = answered(&connections);
        reads.stuck(true);
        let idle = answered(&connections);
        assert!(connections.make_room());
        assert!(idle.is_over() && !reads.is_over());
        connections.close_unused();
        for _ in 0..3 {
            tokio::time::advance(READS_WITHIN / 2).await;
            connections.sweep();
            assert!(!reads.is_over());
            reads.stuck(false);
            reads.came();
            reads.stuck(true);
        }
        assert!(connections.make_room(), "it keeps out no other");
        assert!(reads.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_client_reads_no_more_of_an_answer_is_closed() {
        let connections = connections(1);
        let stuck = answered(&connections);
        stuck.stuck(true);
        tokio::time::advance(READS_WITHIN).await;
        connections.sweep();
        assert!(stuck.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_reads_nothing_and_has_asked_nothing_ends_after_head_timeout() {
        let connections = connections(1);
        let activity = opened(&connections);
        activity.stuck(true);
        tokio::time::advance(Duration::from_secs(1)).await;
        connections.sweep();
        assert!(activity.is_over());
    }

    #[tokio::test]
    async fn a_connection_is_stuck_until_its_client_has_read_what_was_written() {
        let (ours, mut theirs) = duplex(4);
        let activity = Arc::<Activity>::default();
        let mut watched = Watched::new(ours, b"", Arc::clone(&activity));
        let mut write = async |data: &[u8]| {
            poll_fn(|cx| Poll::Ready(Pin::new(&mut watched).poll_write(cx, data).map(|written| written.expect("open"))))
                .await
        };
        assert_eq!((write(b"answer").await, activity.is_stuck()), (Poll::Ready(4), false));
        assert_eq!((write(b"er").await, activity.is_stuck()), (Poll::Pending, true));
        theirs.read_exact(&mut [0; 4]).await.expect("four bytes");
        assert_eq!((write(b"er").await, activity.is_stuck()), (Poll::Ready(2), false));
    }
}
