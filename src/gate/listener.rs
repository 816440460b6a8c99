//! Connections: accepting them, HTTP/1.1 and HTTP/2 on them, and ending them.

use std::{
    future::Future,
    net::{IpAddr, SocketAddr},
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
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::net::{TcpListener, TcpStream};
use tower::Layer;

use super::{Endpoint, Gate, inline::Inline, origin::CheckOriginLayer};

/// How long a request's head may take to arrive, and an idle connection to send one.
const HEAD_TIMEOUT: Duration = Duration::from_mins(1);
/// How long connections may take to end when the process stops.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after an accept that failed, as it does when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves the endpoint on `listener` until `stop` resolves and the connections have ended.
pub async fn serve(gate: Arc<Gate>, listener: TcpListener, stop: impl Future<Output = ()>) {
    let layers = CheckOriginLayer::new(Arc::clone(&gate));
    let connections = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = accept(&listener) => accepted,
            () = &mut stop => break,
        };
        connect(&gate, &layers, &connections, stream, peer.ip());
    }
    drop(listener);
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

fn connect(
    gate: &Arc<Gate>,
    layers: &CheckOriginLayer,
    connections: &GracefulShutdown,
    stream: TcpStream,
    peer: IpAddr,
) {
    // Answers are written whole; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let called = Arc::<AtomicBool>::default();
    let service = layers.layer(Endpoint { gate: Arc::clone(gate), peer, called: Arc::clone(&called) });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Without a timer hyper's timeouts are silently off.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(HEAD_TIMEOUT).max_concurrent_streams(256);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)).into_owned();
    // Made here, or the task would have room for the connection beside the box that it moves into.
    let connection = Inline::new(connections.watch(connection));
    tokio::spawn(async move {
        let mut connection = std::pin::pin!(connection);
        // hyper's own timeout begins when it knows the version of HTTP; until the first request this one holds.
        let first = tokio::time::timeout(HEAD_TIMEOUT, until_called(connection.as_mut(), &called)).await;
        let ended = match first {
            Ok(Some(ended)) => ended,
            Ok(None) => connection.await,
            Err(_) => return,
        };
        if let Err(error) = ended {
            tracing::debug!(error, "a connection broke");
        }
    });
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
