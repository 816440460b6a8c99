//! The admin port: `/livez`, `/readyz` and `/metrics`.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::Semaphore};

use super::http::accept;
use crate::{disk::Disk, observe::Observer};

/// How many connections there are at once.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection has for the head of its one request: those that send nothing must not hold up probes.
const HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection lasts, until its client has read the answer.
const LASTS: Duration = Duration::from_secs(10);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the admin port tells.
#[derive(Debug)]
pub struct Admin {
    /// The metrics.
    pub observer: Arc<Observer>,
    /// Whether new sessions are welcome.
    pub ready: Arc<AtomicBool>,
    /// The file of the store, if it has one.
    pub disk: Option<Disk>,
}

impl Admin {
    /// Serves until the process ends.
    pub async fn serve(self, listener: TcpListener) {
        let (admin, room) = (Arc::new(self), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        // Further connections wait in the backlog, where they take no descriptor.
        while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
            let (stream, _) = accept(&listener, || false).await;
            let admin = Arc::clone(&admin);
            let service = service_fn(move |request| {
                let response = admin.answer(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .keep_alive(false)
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move {
                let _ = tokio::time::timeout(LASTS, connection).await;
                drop(permit);
            });
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let text = |status, text: &'static str| respond(status, "text/plain; charset=utf-8", Bytes::from(text));
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "the admin port takes GET\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/livez" => text(StatusCode::OK, "ok\n"),
            // Acquire: pairs with the release by which `app` says that the process stops.
            "/readyz" if self.disk.as_ref().is_some_and(|disk| !disk.is_available()) => {
                text(StatusCode::SERVICE_UNAVAILABLE, "the store cannot be written\n")
            }
            "/readyz" if self.ready.load(Ordering::Acquire) => text(StatusCode::OK, "ok\n"),
            "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
            "/metrics" => respond(StatusCode::OK, OPEN_METRICS, self.observer.open_metrics().into()),
            _ => text(StatusCode::NOT_FOUND, "try /livez, /readyz or /metrics\n"),
        }
    }
}

fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
