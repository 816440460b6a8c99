//! Connections: accepting them, HTTP/1.1 and HTTP/2 on them, and ending them.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer};

use super::{Endpoint, Gate, inline::Inline, origin::CheckOriginLayer, timer::HeadTimer};

/// How long a request's head may take to arrive, and an idle connection to send one.
const HEAD_TIMEOUT: Duration = Duration::from_mins(1);
/// How an HTTP/2 connection begins, and no HTTP/1.1 request.
const PREFACE: [u8; 4] = *b"PRI ";
/// How long connections may take to end when the process stops.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after an accept that failed, as it does when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves the endpoint on `listener` until `stop` resolves and the connections have ended.
pub async fn serve(gate: Arc<Gate>, listener: TcpListener, stop: impl Future<Output = ()>) {
    let layers = Arc::new(CheckOriginLayer::new(Arc::clone(&gate)));
    let (connections, stopping) = (GracefulShutdown::new(), CancellationToken::new());
    let timer = HeadTimer::default();
    let mut stop = std::pin::pin!(stop);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = &mut stop => break,
        };
        let endpoint = Endpoint { gate: Arc::clone(&gate), peer: peer.ip(), called: Arc::default() };
        let (watcher, timer) = (connections.watcher(), timer.clone());
        tokio::spawn(connect(endpoint, Arc::clone(&layers), watcher, timer, stopping.clone(), stream));
    }
    drop(listener);
    stopping.cancel();
    timer.stop();
    // Streams end with their sessions, so that connections can.
    gate.end_all().await;
    let connections = async {
        if tokio::time::timeout(END_TIMEOUT, connections.shutdown()).await.is_err() {
            tracing::warn!("some connections did not end in time");
        }
    };
    tokio::join!(connections, gate.upstreams_ended());
}

/// The next connection.
pub(super) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection to its end.
async fn connect(
    endpoint: Endpoint,
    layers: Arc<CheckOriginLayer>,
    watcher: Watcher,
    timer: HeadTimer,
    stopping: CancellationToken,
    stream: TcpStream,
) {
    let until_first = Instant::now() + HEAD_TIMEOUT;
    // Answers are written whole; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let mut start = [0; PREFACE.len()];
    let begun = stopping.run_until_cancelled(timeout_at(until_first, stream.peek(&mut start))).await;
    let Some(Ok(Ok(read))) = begun else { return };
    let called = Arc::clone(&endpoint.called);
    let http1 = read == PREFACE.len() && start != PREFACE;
    let mut connection = std::pin::pin!(http(endpoint, &layers, watcher, timer, stream, http1));
    // hyper's own timeout begins when it knows the version of HTTP; until the first request this one holds.
    let first = timeout_at(until_first, until_called(connection.as_mut(), &called)).await;
    let ended = match first {
        Ok(Some(ended)) => ended,
        Ok(None) => connection.await,
        Err(_) => return,
    };
    if let Err(error) = ended {
        tracing::debug!(error, "a connection broke");
    }
}

/// HTTP on one connection. Not in [`connect`], which would have room for all this as long as the connection lives.
fn http(
    endpoint: Endpoint,
    layers: &CheckOriginLayer,
    watcher: Watcher,
    timer: HeadTimer,
    stream: TcpStream,
    http1: bool,
) -> Inline<impl Future<Output = Result<(), BoxError>>> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    if http1 {
        // Where the builder has to read the version first, the connection's buffer has twice the size as long as it lives.
        builder = builder.http1_only();
    }
    // Without a timer hyper's timeouts are silently off.
    builder.http1().timer(timer).header_read_timeout(HEAD_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(HEAD_TIMEOUT).max_concurrent_streams(256);
    let service = TowerToHyperService::new(layers.layer(endpoint));
    Inline::new(watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned()))
}

/// Serves a connection until its first request, or its end.
async fn until_called<F: Future>(mut connection: Pin<&mut F>, called: &AtomicBool) -> Option<F::Output> {
    std::future::poll_fn(|cx| match connection.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if called.load(Ordering::Relaxed) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}
