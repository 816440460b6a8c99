//! The connections to one server. The sender of a request drives its connection itself until the answer has been read
//! to its end, without a task in between. Then the connection stays idle for the next request, and nothing drives it.

use std::{
    collections::HashMap,
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::{
    runtime::{self, Handle},
    time::Instant,
};
use tower::{BoxError, ServiceExt};

use super::connection::{ServerConnection, by_hand};
use crate::net::Connector;

/// How long an idle connection is kept: shorter than the keep-alive of the usual servers (5 s), so that no request
/// meets a connection that is being closed.
const KEPT: Duration = Duration::from_secs(4);

/// How long connecting may take, TLS included.
const CONNECTING: Duration = Duration::from_secs(20);
/// How long an abandoned answer is read on, so that its connection can be kept if the answer ends.
const READ_ON_TIME: Duration = Duration::from_millis(100);
/// How many bytes of an abandoned answer are read on.
const READ_ON_BYTES: usize = 64 * 1024;

/// Why a request got no answer.
#[derive(Debug)]
pub(super) enum RequestError {
    /// No connection was made, and nothing was sent.
    Connect(BoxError),
    /// The request may have been sent.
    Http(hyper::Error),
}

/// The connections to one server.
pub(super) struct Pool {
    connector: Connector,
    uri: Uri,
    host: HeaderValue,
    idle: Arc<Idle>,
}

/// The idle connections: for each runtime in the order of their last use, the latest at the end.
type Idle = Mutex<IdleConnections>;

#[derive(Default)]
struct IdleConnections {
    /// By the runtime that used them last, which as a rule is the one that opened them.
    connections: HashMap<runtime::Id, Vec<(Instant, ServerConnection)>>,
    /// Whether a task closes those that are too old.
    swept: bool,
}

impl Pool {
    /// Prepares connections to the server of `uri`. Makes none yet.
    ///
    /// # Errors
    /// A sentence, if the host of `uri` cannot stand in a header.
    pub(super) fn new(connector: Connector, uri: Uri) -> Result<Self, String> {
        let host = match (uri.host(), uri.port()) {
            (Some(host), Some(port)) if port.as_u16() != usual_port(&uri) => format!("{host}:{port}"),
            (host, _) => host.unwrap_or_default().to_owned(),
        };
        let host = host.parse().map_err(|_| "its host cannot stand in a header".to_owned())?;
        Ok(Self { connector, uri, host, idle: Arc::default() })
    }

    /// Sends a request for a URI of the server.
    pub(super) async fn request(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<AnswerBody>, RequestError> {
        let path = request.uri().path_and_query().filter(|path| path.as_str() != "/").cloned();
        *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
        request.headers_mut().entry(header::HOST).or_insert_with(|| self.host.clone());
        loop {
            let (mut connection, is_fresh) = match self.kept() {
                Some(kept) => (kept, false),
                // Boxed, so that the answer is not waited for with the memory of connecting.
                None => match Box::pin(self.connect()).await {
                    Ok(fresh) => (fresh, true),
                    // Where the system gives no more descriptors, there may be one that another runtime keeps.
                    Err(why) => (self.kept_elsewhere().ok_or(why)?, false),
                },
            };
            // Unconstrained, because it waits for what driving the connection brings, and nothing else would wake it.
            let answer = connection.requests.try_send_request(request);
            let mut answer = pin!(tokio::task::coop::unconstrained(answer));
            let answered = poll_fn(|cx| {
                connection.drive(cx);
                answer.as_mut().poll(&mut by_hand())
            });
            match answered.await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let body = AnswerBody::new(body, connection, Arc::downgrade(&self.idle));
                    return Ok(Response::from_parts(head, body));
                }
                // The server has just closed the connection, and no byte was written.
                Err(mut error) => match error.take_message().filter(|_| !is_fresh) {
                    Some(unsent) => request = unsent,
                    None => return Err(RequestError::Http(error.into_error())),
                },
            }
        }
    }

    /// Returns the idle connection that this runtime used last and that the server has not closed.
    fn kept(&self) -> Option<ServerConnection> {
        let runtime = Handle::current().id();
        self.first_open(|idle| idle.connections.get_mut(&runtime)?.pop())
    }

    /// Returns an idle connection of any runtime that the server has not closed.
    fn kept_elsewhere(&self) -> Option<ServerConnection> {
        self.first_open(|idle| idle.connections.values_mut().find_map(Vec::pop))
    }

    fn first_open(
        &self,
        pop: impl Fn(&mut IdleConnections) -> Option<(Instant, ServerConnection)>,
    ) -> Option<ServerConnection> {
        loop {
            let (since, mut connection) = pop(&mut self.idle.lock())?;
            if since.elapsed() < KEPT && connection.is_open() {
                return Some(connection);
            }
        }
    }

    async fn connect(&self) -> Result<ServerConnection, RequestError> {
        let connecting = tokio::time::timeout(CONNECTING, self.connector.clone().oneshot(self.uri.clone()));
        let late = |_| RequestError::Connect(format!("no connection within {} s", CONNECTING.as_secs()).into());
        let stream = connecting.await.map_err(late)?.map_err(RequestError::Connect)?;
        ServerConnection::new(stream).await.map_err(RequestError::Http)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("host", &self.host).finish_non_exhaustive()
    }
}

fn usual_port(uri: &Uri) -> u16 {
    if uri.scheme_str() == Some("https") { 443 } else { 80 }
}

/// The body of an answer. At its end the connection is kept for the next request. A body that is dropped earlier is
/// read on for a moment, because its end may already be on its way.
pub struct AnswerBody(Option<Reading>);

struct Reading {
    body: Incoming,
    connection: Option<ServerConnection>,
    idle: Weak<Idle>,
}

impl AnswerBody {
    fn new(body: Incoming, connection: ServerConnection, idle: Weak<Idle>) -> Self {
        let mut reading = Reading { body, connection: Some(connection), idle };
        if reading.body.is_end_stream() {
            reading.keep();
        }
        Self(Some(reading))
    }

    /// Closes the connection at once, without reading on.
    pub(super) fn close(mut self) {
        self.0 = None;
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        let unread = self.0.take().filter(|reading| reading.connection.is_some());
        if let (Some(reading), Ok(runtime)) = (unread, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(READ_ON_TIME, reading.read_on()));
        }
    }
}

impl Reading {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let mut frame = Pin::new(&mut self.body).poll_frame(&mut by_hand());
        if let (true, Some(connection)) = (frame.is_pending(), &mut self.connection) {
            connection.drive(cx);
            frame = Pin::new(&mut self.body).poll_frame(&mut by_hand());
        }
        let frame = ready!(frame);
        if frame.is_none() || self.body.is_end_stream() {
            self.keep();
        }
        Poll::Ready(frame)
    }

    fn keep(&mut self) {
        let (Some(mut connection), Some(idle)) = (self.connection.take(), self.idle.upgrade()) else { return };
        if !connection.requests.is_ready() {
            connection.drive(&mut by_hand());
        }
        if !connection.requests.is_ready() {
            return;
        }
        let mut kept = idle.lock();
        kept.connections.entry(Handle::current().id()).or_default().push((Instant::now(), connection));
        if !std::mem::replace(&mut kept.swept, true) {
            drop(kept);
            tokio::spawn(sweep(Weak::clone(&self.idle)));
        }
    }

    async fn read_on(mut self) {
        let mut read = 0;
        while let Some(Ok(frame)) = poll_fn(|cx| self.poll(cx)).await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > READ_ON_BYTES {
                return;
            }
        }
    }
}

/// Closes connections that have been idle for too long.
async fn sweep(idle: Weak<Idle>) {
    loop {
        tokio::time::sleep(KEPT).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut kept = idle.lock();
        let mut old = Vec::new();
        kept.connections.retain(|_, connections| {
            let fresh = connections.partition_point(|(since, _)| since.elapsed() >= KEPT);
            old.extend(connections.drain(..fresh));
            !connections.is_empty()
        });
        kept.swept = !kept.connections.is_empty();
        let more = kept.swept;
        drop(kept);
        drop(old);
        if !more {
            return;
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.get_mut().0.as_mut().map_or(Poll::Ready(None), |reading| reading.poll(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|reading| reading.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(SizeHint::default, |reading| reading.body.size_hint())
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.0.as_ref().map(|reading| &reading.body);
        f.debug_struct("AnswerBody").field("body", &body).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
