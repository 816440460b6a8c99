//! The connections to one server. The sender of a request drives its connection itself until the answer has been read to
//! its end, without a task in between. Then the connection stays idle for the next request, and nothing drives it.

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
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use tokio::{
    runtime::{self, Handle},
    time::Instant,
};
use tower::{BoxError, ServiceExt};

use super::connection::{ServerConnection, by_hand};

/// How long an idle connection is kept: shorter than the keep-alive of the usual servers (5 s), so that no request meets a
/// connection that is being closed.
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
    connector: HttpsConnector<HttpConnector>,
    uri: Uri,
    host: HeaderValue,
    idle: Arc<Idle>,
}

/// The idle connections, for each runtime the one that was used last at the end.
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
    pub(super) fn new(connector: HttpsConnector<HttpConnector>, uri: Uri) -> Result<Self, String> {
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
                None => match self.connect().await {
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

/// The body of an answer. At its end the connection is kept for the next request. A body that is dropped earlier is read
/// on for a moment, because its end may already be on its way.
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
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        sync::mpsc::{Receiver, Sender, channel},
    };

    use http_body_util::BodyExt;

    use super::*;

    /// Answers one request on each connection, closes it with `farewell` when it is told to, and says so. Returns how many
    /// requests it has read.
    fn closes_each(listener: &TcpListener, farewell: &str, close: &Receiver<()>, closed: &Sender<()>) -> usize {
        let mut count = 0;
        loop {
            let mut connection = listener.accept().expect("a client").0;
            if connection.read(&mut [0; 1024]).expect("open") == 0 {
                return count;
            }
            count += 1;
            connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("open");
            close.recv().expect("the test says when");
            connection.write_all(farewell.as_bytes()).expect("open");
            drop(connection);
            closed.send(()).expect("the test waits");
        }
    }

    fn pool(to: &str) -> Pool {
        let tls = crate::net::tls_config(false).expect("no TLS");
        Pool::new(HttpsConnector::from((HttpConnector::new(), tls)), to.parse().expect("a URL")).expect("a host")
    }

    fn request(to: &str) -> Request<Full<Bytes>> {
        Request::post(to).body(Full::new(Bytes::from_static(b"body"))).expect("valid")
    }

    #[tokio::test]
    async fn a_request_that_finds_its_connection_closed_is_sent_once_over_a_fresh_one() {
        for farewell in ["", "HTTP/1.1 408 Request Timeout\r\n\r\n"] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener.local_addr().expect("bound");
            let ((close, told), (closed, wait)) = (channel(), channel());
            let serving = std::thread::spawn(move || closes_each(&listener, farewell, &told, &closed));
            let to = format!("http://{address}/mcp");
            let pool = pool(&to);
            for _ in 0..20 {
                pool.request(request(&to)).await.expect("an answer");
                assert_eq!(pool.idle.lock().connections[&Handle::current().id()].len(), 1, "it is kept");
                // The runtime stands still meanwhile, so it does not know of the end when the next request is sent.
                close.send(()).expect("it waits");
                wait.recv().expect("it closes");
            }
            drop(std::net::TcpStream::connect(address).expect("it listens"));
            assert_eq!(serving.join().expect("it ends"), 20);
        }
    }

    /// Answers every request on one connection, and returns how many there were.
    async fn serves(listener: tokio::net::TcpListener, answer: &'static [u8]) -> usize {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut connection, _) = listener.accept().await.expect("a client");
        let (mut count, mut buf) = (0, [0; 1024]);
        while connection.read(&mut buf).await.expect("open") > 0 {
            count += 1;
            connection.write_all(answer).await.expect("open");
        }
        count
    }

    #[tokio::test]
    async fn one_connection_carries_one_request_after_the_other_when_each_answer_is_read_to_its_end() {
        for answer in [
            &b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let to = format!("http://{}/mcp", listener.local_addr().expect("bound"));
            let serving = tokio::spawn(serves(listener, answer));
            let pool = pool(&to);
            for _ in 0..5 {
                pool.request(request(&to)).await.expect("an answer").into_body().collect().await.expect("a body");
            }
            drop(pool);
            assert_eq!(serving.await.expect("it ends"), 5);
        }
    }

    #[tokio::test]
    async fn a_connection_with_an_abandoned_answer_is_kept_if_the_answer_ends_soon_and_otherwise_closed() {
        for (answer, is_kept) in [
            (&b"HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"[..], true),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nbody", false),
        ] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let to = format!("http://{}/mcp", listener.local_addr().expect("bound"));
            let serving = tokio::spawn(serves(listener, answer));
            let pool = pool(&to);
            drop(pool.request(request(&to)).await.expect("an answer"));
            if is_kept {
                while pool.idle.lock().connections.is_empty() {
                    tokio::task::yield_now().await;
                }
                drop(pool.request(request(&to)).await.expect("an answer on the same connection"));
                drop(pool);
            }
            assert_eq!(serving.await.expect("it ends"), if is_kept { 2 } else { 1 });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_closed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let to = format!("http://{}/mcp", listener.local_addr().expect("bound"));
        let serving = tokio::spawn(serves(listener, b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"));
        let pool = pool(&to);
        pool.request(request(&to)).await.expect("an answer");
        assert_eq!(serving.await.expect("it ends"), 1);
        assert!(!pool.idle.lock().swept, "no task runs without connections");
    }

    #[test]
    fn the_host_header_has_the_host_of_the_uri_without_the_usual_port() {
        for (uri, host) in [
            ("http://localhost:8080/mcp", "localhost:8080"),
            ("http://localhost:80/mcp", "localhost"),
            ("https://[::1]:443/", "[::1]"),
            ("https://example.com:80/", "example.com:80"),
        ] {
            assert_eq!(pool(uri).host, host);
        }
    }
}
