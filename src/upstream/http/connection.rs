//! One connection to a server, which works only when it is driven.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    client::conn::http1::{self, SendRequest},
    rt::{Read, ReadBufCursor, Write},
};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::net::Stream;

type Tcp = TokioIo<TcpStream>;

/// Returns a context that wakes nothing. A connection works only when it is driven, so the code that drives it needs no
/// wake-up.
pub(super) fn by_hand() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// One connection to a server.
pub(super) struct ServerConnection {
    pub(super) requests: SendRequest<Full<Bytes>>,
    /// Moves the bytes of the connection, until it is over.
    driver: Option<Box<http1::Connection<Socket, Full<Bytes>>>>,
    look: Arc<AtomicBool>,
}

impl ServerConnection {
    pub(super) async fn new(stream: Stream) -> hyper::Result<Self> {
        let look = Arc::new(AtomicBool::new(false));
        let (requests, driver) = http1::handshake(Socket::new(stream, Arc::clone(&look))).await?;
        Ok(Self { requests, driver: Some(Box::new(driver)), look })
    }

    /// Lets the connection do what it can do now.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(cx).is_ready()
        {
            // The request learns how the connection ended.
            self.driver = None;
        }
    }

    /// Returns whether the connection takes a request. It looks at the socket itself, because the server may have
    /// closed it before the runtime knows.
    pub(super) fn is_open(&mut self) -> bool {
        self.look.store(true, Ordering::Relaxed);
        self.drive(&mut by_hand());
        // A look that was not taken would be in the way of the next read, and has told nothing.
        let has_looked = !self.look.swap(false, Ordering::Relaxed);
        has_looked && self.requests.is_ready()
    }
}

/// What a connection reads from and writes to.
struct Socket {
    stream: TcpOrTls,
    /// Whether the next read only looks at what the kernel has, also if the runtime knows of nothing.
    look: Arc<AtomicBool>,
}

enum TcpOrTls {
    Plain(Tcp),
    /// Boxed, or a plain stream would have room for the state of TLS too.
    Tls(Box<TokioIo<TlsStream<TokioIo<Tcp>>>>),
}

trait ReadWrite: Read + Write + Unpin {}

impl<T: Read + Write + Unpin> ReadWrite for T {}

impl Socket {
    fn new(stream: Stream, look: Arc<AtomicBool>) -> Self {
        let stream = match stream {
            MaybeHttpsStream::Http(tcp) => TcpOrTls::Plain(tcp),
            MaybeHttpsStream::Https(tls) => TcpOrTls::Tls(Box::new(tls)),
        };
        Self { stream, look }
    }

    fn stream(&mut self) -> Pin<&mut dyn ReadWrite> {
        match &mut self.stream {
            TcpOrTls::Plain(tcp) => Pin::new(tcp),
            TcpOrTls::Tls(tls) => Pin::new(&mut **tls),
        }
    }

    fn tcp(&self) -> &TcpStream {
        match &self.stream {
            TcpOrTls::Plain(tcp) => tcp.inner(),
            TcpOrTls::Tls(tls) => tls.inner().get_ref().0.inner().inner(),
        }
    }
}

impl Read for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.look.swap(false, Ordering::Relaxed) {
            return this.stream().poll_read(cx, buf);
        }
        match recv(this.tcp(), &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(rustix::io::Errno::AGAIN) => Poll::Pending,
            // The end, an error, or an answer to no request: each of them ends the connection.
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl Write for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().stream().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().stream().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            TcpOrTls::Plain(tcp) => tcp.is_write_vectored(),
            TcpOrTls::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use hyper::{Request, body::Body as _};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn a_look_for_which_the_connection_had_no_read_is_not_in_the_way_of_the_next_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it listens");
        let mut server = listener.accept().await.expect("a client").0;
        let mut connection = ServerConnection::new(MaybeHttpsStream::Http(TokioIo::new(stream))).await.expect("open");
        let answer = connection.requests.send_request(Request::new(Full::default()));
        let mut answer = Box::pin(tokio::task::coop::unconstrained(answer));
        assert!(!connection.is_open(), "it has a request to send");
        assert_ne!(server.read(&mut [0; 1024]).await.expect("open"), 0);
        server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf").await.expect("open");
        let answered = poll_fn(|cx| {
            connection.drive(cx);
            answer.as_mut().poll(&mut by_hand())
        });
        let mut body = answered.await.expect("an answer").into_body();
        // Until the first half is asked for, the connection does not read on.
        assert!(!connection.is_open(), "it is in use");
        server.write_all(b"half").await.expect("open");
        let mut whole = Vec::new();
        while whole.len() < 8 {
            let part = poll_fn(|cx| {
                connection.drive(cx);
                Pin::new(&mut body).poll_frame(&mut by_hand())
            });
            whole.extend(part.await.expect("not the end").expect("open").into_data().expect("data"));
        }
        assert_eq!(whole, b"halfhalf");
    }
}
