//! Connections that are kept for the next request. A server may close one at any moment, and the runtime learns of that a
//! little later. So the socket itself is looked at before the first byte of a request: one that the server has closed gets
//! none, and then it is certain that another connection can be tried.

use std::{
    error::Error,
    fmt,
    future::Future,
    io,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector},
    rt::TokioIo,
};
use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tower::{BoxError, Service};

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Makes connections that are looked at.
#[derive(Clone, Debug)]
pub(super) struct Connector(pub(super) HttpsConnector<HttpConnector>);

impl Service<Uri> for Connector {
    type Response = Kept;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Kept, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.0.call(to);
        Box::pin(async move { Ok(Kept { stream: connecting.await?, framing: Framing::default() }) })
    }
}

/// Says that a kept connection was closed before the request, of which no byte was written.
#[derive(Debug)]
struct NothingWritten;

impl fmt::Display for NothingWritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server has closed the connection before the request")
    }
}

impl Error for NothingWritten {}

/// Returns whether a request failed before its first byte, so that it can be sent again.
pub(super) fn nothing_written(failed: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(failed), |&error| error.source());
    causes.any(|cause| {
        let cause = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause.and_then(|cause| cause.downcast_ref::<NothingWritten>()).is_some()
    })
}

/// One connection.
#[derive(Debug)]
pub(super) struct Kept {
    stream: Stream,
    framing: Framing,
}

impl Kept {
    fn look(&self) -> io::Result<()> {
        if !self.framing.begins_again() {
            return Ok(());
        }
        let tcp = match &self.stream {
            MaybeHttpsStream::Http(tcp) => tcp.inner(),
            MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
        };
        match recv(tcp, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(rustix::io::Errno::AGAIN) => Ok(()),
            // The end, an error, or something that nobody has asked for: the server's farewell.
            _ => Err(io::Error::other(NothingWritten)),
        }
    }
}

/// Where in a request the bytes stand that are written.
#[derive(Debug, Default)]
enum Framing {
    /// Before the first request.
    #[default]
    New,
    /// In a request of which so many bytes are left, or behind it.
    Left(u64),
    /// It cannot be told.
    Unknown,
}

impl Framing {
    /// Whether the next byte is the first one of a request, and not of the first request.
    fn begins_again(&self) -> bool {
        matches!(self, Self::Left(0))
    }

    /// Takes note that `written` bytes from `first` on were written.
    fn wrote(&mut self, first: &[u8], written: usize) {
        let left = match self {
            Self::New | Self::Left(0) if written == 0 => return,
            Self::New | Self::Left(0) => length(first),
            Self::Left(left) => Some(*left),
            Self::Unknown => None,
        };
        let left = left.and_then(|left| left.checked_sub(written as u64));
        *self = left.map_or(Self::Unknown, Self::Left);
    }
}

/// The length of the request that begins in `first`, where its whole head is; `None` where that cannot be told.
fn length(first: &[u8]) -> Option<u64> {
    let head = memchr::memmem::find(first, b"\r\n\r\n")?;
    let mut body = None;
    for line in first[..head].split(|byte| *byte == b'\n').skip(1) {
        let line = std::str::from_utf8(line).unwrap_or_default();
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return None;
        }
        if name.eq_ignore_ascii_case("content-length") && body.replace(value.trim().parse::<u64>().ok()?).is_some() {
            return None;
        }
    }
    // The preface of HTTP/2 has a head of its own kind.
    let is_http1 = first[..head].split(|byte| *byte == b'\r').next()?.ends_with(b"HTTP/1.1");
    is_http1.then_some(head as u64 + 4 + body.unwrap_or(0))
}

impl Connection for Kept {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Read for Kept {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl Write for Kept {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.look()?;
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, bufs))?;
        this.framing.wrote(bufs.first().map_or(&[], |first| &**first), written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        io::{Read as _, Write as _},
        net::TcpListener,
        sync::mpsc::{Receiver, Sender, channel},
    };

    use bytes::Bytes;
    use http::Request;
    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::{
        config::{Config, Target, Transport},
        upstream::http::Server,
    };

    const REQUEST: &[u8] = b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody";

    /// A connection, and the server's end of it.
    async fn connection() -> (Kept, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it listens");
        let stream = MaybeHttpsStream::Http(TokioIo::new(stream));
        (Kept { stream, framing: Framing::default() }, listener.accept().expect("a client").0)
    }

    async fn write(kept: &mut Kept, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| Pin::new(&mut *kept).poll_write(cx, bytes)).await
    }

    fn refused(written: io::Result<usize>) -> bool {
        written.is_err_and(|error| nothing_written(&error))
    }

    #[tokio::test]
    async fn no_byte_of_a_request_is_written_to_a_connection_that_the_server_has_closed() {
        for farewell in ["", "HTTP/1.1 408 Request Timeout\r\n\r\n"] {
            let (mut kept, mut server) = connection().await;
            assert_eq!(write(&mut kept, REQUEST).await.expect("open"), REQUEST.len());
            server.read_exact(&mut [0; REQUEST.len()]).expect("the request");
            server.write_all(farewell.as_bytes()).expect("open");
            drop(server);
            // Nothing has told the runtime.
            assert!(refused(write(&mut kept, REQUEST).await), "{farewell:?}");
        }
    }

    #[tokio::test]
    async fn what_fails_in_the_midst_of_a_request_is_not_taken_for_unwritten() {
        let (mut kept, server) = connection().await;
        assert_eq!(write(&mut kept, REQUEST).await.expect("open"), REQUEST.len());
        assert_eq!(write(&mut kept, &REQUEST[..REQUEST.len() - 4]).await.expect("open"), REQUEST.len() - 4);
        drop(server);
        assert!(!refused(write(&mut kept, b"body").await));
    }

    /// Answers one request on each connection, closes it without a word when it is told to, and says so. Returns how many
    /// requests it has read.
    fn closes_each(listener: &TcpListener, close: &Receiver<()>, closed: &Sender<()>) -> usize {
        let mut count = 0;
        loop {
            let mut connection = listener.accept().expect("a client").0;
            if connection.read(&mut [0; 1024]).expect("open") == 0 {
                return count;
            }
            count += 1;
            connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("open");
            close.recv().expect("the test says when");
            drop(connection);
            closed.send(()).expect("the test waits");
        }
    }

    #[tokio::test]
    async fn a_request_that_finds_its_connection_closed_goes_over_a_fresh_one_and_only_there() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let ((close, told), (closed, wait)) = (channel(), channel());
        let serving = std::thread::spawn(move || closes_each(&listener, &told, &closed));
        let uri: Uri = format!("http://{address}/mcp").parse().expect("a URL");
        let forward = Config::for_upstream(Target::Url(uri.clone())).upstreams.remove(0).forward;
        let server = Server::new("/mcp", uri, Transport::StreamableHttp, forward, None).expect("no TLS");
        for _ in 0..20 {
            let mut request = Request::new(Full::new(Bytes::from_static(b"body")));
            *request.method_mut() = http::Method::POST;
            *request.uri_mut() = server.uri.clone();
            let answer = server.request(request).await.expect("an answer");
            answer.into_body().collect().await.expect("a body");
            // Until the connection is among those that are kept.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            // The runtime stands still meanwhile, so that nothing has told it when the next request is sent.
            close.send(()).expect("it waits");
            wait.recv().expect("it closes");
        }
        drop(std::net::TcpStream::connect(address).expect("it listens"));
        assert_eq!(serving.join().expect("it ends"), 20);
    }

    #[test]
    fn a_request_ends_where_its_head_says() {
        let after = |parts: &[&[u8]]| {
            let mut framing = Framing::default();
            for part in parts {
                framing.wrote(part, part.len());
            }
            framing.begins_again()
        };
        assert!(after(&[REQUEST]) && after(&[REQUEST, REQUEST]) && after(&[&REQUEST[..REQUEST.len() - 4], b"body"]));
        assert!(after(&[b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"]));
        assert!(!after(&[]) && !after(&[&REQUEST[..20]]) && !after(&[&REQUEST[..REQUEST.len() - 1]]));
        for odd in [
            &b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 0\r\n\r\nx"[..],
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\n",
            b"POST / HTTP/1.1\r\n\r\nmore",
        ] {
            assert!(!after(&[odd]) && !after(&[odd, REQUEST]), "{odd:?}");
        }
    }
}
