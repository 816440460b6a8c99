//! Connections: accepting them, HTTP/1.1 and HTTP/2 on them, and ending them.

use std::{cell::RefCell, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use futures_util::future::{Either, TryFutureExt};
use http::{Method, Request};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use rustix::io::Errno;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{MissedTickBehavior, interval},
};
use tower::{Layer, Service};

use super::{
    Endpoint,
    connection_activity::{Counted, Watched},
    connections::{ConnectionGuard, ConnectionLimits, Connections},
    inline::Inline,
    origin::CheckOriginLayer,
    request_body::RequestBody,
    respond::head_only,
    service::EndpointService,
    tls::Tls,
    too_many_connections::TurnedAway,
    workers::Workers,
};
use crate::{gate::lifecycle::upstreams_ended, observe::events};

/// How an HTTP/2 connection begins, and no HTTP/1.1 request.
const PREFACE: &[u8; 4] = b"PRI ";
/// The silence on an HTTP/2 connection after which the client is asked whether it is there.
const PING_EVERY: Duration = Duration::from_mins(1);
/// How many streams an HTTP/2 connection may have at once; further ones wait, as HTTP/2 has it.
const MAX_STREAMS: u32 = 128;
/// How much of the bodies of an HTTP/2 connection may have come and not been read, in bytes.
const WINDOW: u32 = 256 * 1024;
/// How much of one answer may wait to be sent over HTTP/2, in bytes.
const SEND_BUFFER: usize = 64 * 1024;
/// The smallest buffer that hyper reads HTTP/1.1 into.
const LEAST_BUFFER: usize = 8 * 1024;
/// How long connections may take to end when the process stops.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after an accept that failed, as it does when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Where clients connect.
#[derive(Debug)]
pub struct Listener {
    /// The open port.
    pub tcp: TcpListener,
    /// How their connections begin, if not in plain text.
    pub tls: Option<Arc<Tls>>,
    /// What holds for their connections.
    pub limits: ConnectionLimits,
    /// The threads that serve them.
    pub workers: Workers,
}

/// Serves the endpoint on `listener` until `stop` resolves and the connections have ended. The threads run on: what
/// they know of children that have not ended in time is still needed.
pub async fn serve(endpoint: Arc<Endpoint>, listener: Listener, stop: impl Future<Output = ()>) {
    let Listener { tcp, tls, limits, workers } = listener;
    let layers = Arc::new(CheckOriginLayer::new(Arc::clone(&endpoint.access)));
    let away = TurnedAway::new(limits.max_connections, Arc::clone(&endpoint.observer));
    let connections = Connections::new(limits, Arc::clone(&endpoint.observer));
    let graceful = GracefulShutdown::new();
    let mut sweeps = interval(connections.pace());
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = std::pin::pin!(stop);
    loop {
        let (stream, peer) = tokio::select! {
            accepted = accept(&tcp, || connections.make_room()) => accepted,
            _ = sweeps.tick() => {
                connections.sweep();
                continue;
            }
            () = &mut stop => break,
        };
        let opened = connections.open(stream, |guard, stream| {
            let activity = Arc::clone(&guard.activity);
            let service = EndpointService {
                endpoint: Arc::clone(&endpoint),
                peer: peer.ip(),
                certificate: None,
                activity,
                last_caller: Arc::default(),
            };
            let (layers, watcher) = (Arc::clone(&layers), graceful.watcher());
            match tls.clone() {
                None => workers.spawn(stream, |stream| connect(service, layers, watcher, guard, stream)),
                Some(tls) => workers.spawn(stream, |stream| connect_tls(tls, service, layers, watcher, guard, stream)),
            }
        });
        if let Err(stream) = opened {
            away.tell(stream, tls.is_none());
        }
    }
    drop(tcp);
    // Streams end with their sessions, so that connections can.
    endpoint.lifecycle.end_all().await;
    connections.close_unused();
    let ended = async {
        if tokio::time::timeout(END_TIMEOUT, graceful.shutdown()).await.is_err() {
            tracing::warn!("some connections did not end in time");
        }
    };
    tokio::join!(ended, upstreams_ended(endpoint.access.upstreams().all()));
}

/// Accepts the next connection. Where the system has no room for one, `make_room` may close another.
pub(in crate::gate) async fn accept(listener: &TcpListener, make_room: impl Fn() -> bool) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                let made_room = make_room();
                let remedy = match Errno::from_io_error(&error) {
                    Some(Errno::MFILE) => "; raise the limit of open files (ulimit -n, LimitNOFILE=)",
                    _ => "",
                };
                tracing::warn!(%error, made_room, "a connection could not be accepted{remedy}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection to its end. The time that the head of a request may take is kept by [`Connections::sweep`].
async fn connect(
    service: EndpointService,
    layers: Arc<CheckOriginLayer>,
    watcher: Watcher,
    guard: ConnectionGuard,
    mut stream: TcpStream,
) {
    // Answers are written whole; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let Ok((http1, begun)) = version(&mut stream).await else { return };
    let io = Watched::new(stream, begun, Arc::clone(&guard.activity));
    if let Err(error) = http(service, &layers, watcher, &guard, io, http1).await {
        tracing::debug!(error = ?error, "a connection broke");
    }
}

/// Serves one connection over TLS to its end. The time for the handshake is that for the first head.
async fn connect_tls(
    tls: Arc<Tls>,
    mut service: EndpointService,
    layers: Arc<CheckOriginLayer>,
    watcher: Watcher,
    guard: ConnectionGuard,
    stream: TcpStream,
) {
    let _ = stream.set_nodelay(true);
    let accepted = match tls.accept(stream).await {
        Ok(accepted) => accepted,
        Err(error) => {
            service.endpoint.observer.emit(events::TlsHandshakeFailed { peer: service.peer, error: &error });
            return;
        }
    };
    service.certificate = accepted.certificate;
    let io = Watched::new(accepted.stream, b"", Arc::clone(&guard.activity));
    if let Err(error) = http(service, &layers, watcher, &guard, io, accepted.http1).await {
        tracing::debug!(error = ?error, "a connection broke");
    }
}

/// Returns whether a connection begins as HTTP/1.1 does, and what had to be read to know.
async fn version(stream: &mut TcpStream) -> std::io::Result<(bool, &'static [u8])> {
    let mut begun = 0;
    loop {
        // Looked at and not read where possible: a short first read doubles hyper's buffer for good.
        let mut start = [0; PREFACE.len()];
        let seen = stream.peek(&mut start[begun..]).await?;
        let until = begun + seen;
        if seen == 0 || start[begun..until] != PREFACE[begun..until] {
            return Ok((true, &PREFACE[..begun]));
        }
        if until == PREFACE.len() {
            return Ok((false, &PREFACE[..begun]));
        }
        // Too short to tell, and looking again would not wait for more.
        stream.read_exact(&mut start[begun..until]).await?;
        begun = until;
    }
}

/// Speaks HTTP on one connection. Not in [`connect`], which would have room for all this while the connection lives.
fn http<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    service: EndpointService,
    layers: &CheckOriginLayer,
    watcher: Watcher,
    guard: &ConnectionGuard,
    io: Watched<T>,
    http1: bool,
) -> impl Future<Output = hyper::Result<()>> + use<T> {
    let endpoint = Arc::clone(&service.endpoint);
    // In a cell, as a clone for each request would copy the rules of CORS too.
    let service = RefCell::new(Counted::new(layers.layer(service), Arc::clone(&guard.activity)));
    // Called at once, where hyper-util's adapter would keep the request until its answer is first waited for: what is
    // refused must not pile up.
    let service = service_fn(move |request: Request<Incoming>| {
        // hyper leaves out the body over HTTP/1.1 only.
        let is_head = request.method() == Method::HEAD;
        let version = request.version();
        let request = request.map(|body| RequestBody::new(body, version, &endpoint.bodies.rests));
        let answer = service.borrow_mut().call(request);
        answer.map_ok(move |answer| if is_head { head_only(answer) } else { answer })
    });
    let max_head = guard.limits().max_head;
    if http1 {
        let mut builder = http1::Builder::new();
        // What is read ahead, and what waits to be sent, is no more than a head may be.
        builder.header_read_timeout(None).max_header_size(max_head).max_buf_size(max_head.max(LEAST_BUFFER));
        Either::Left(Inline::new(watcher.watch(builder.serve_connection(io, service))))
    } else {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // Floods of resets, settings and pings are bounded by hyper's own defaults.
        builder.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY).max_concurrent_streams(MAX_STREAMS);
        builder
            .initial_connection_window_size(WINDOW)
            .initial_stream_window_size(WINDOW)
            .max_send_buf_size(SEND_BUFFER);
        builder.max_header_list_size(u32::try_from(max_head).unwrap_or(u32::MAX));
        Either::Right(Inline::new(watcher.watch(builder.serve_connection(io, service))))
    }
}
