//! One connection to a server, which does something only when it is driven.

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

type Tcp = TokioIo<TcpStream>;

/// What a connection does it does when it is driven. So what waits for it need not be woken.
pub(super) fn by_hand() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// One connection.
pub(super) struct ServerConnection {
    pub(super) requests: SendRequest<Full<Bytes>>,
    /// Until the connection is over.
    driver: Option<Box<http1::Connection<Socket, Full<Bytes>>>>,
    look: Arc<AtomicBool>,
}

impl ServerConnection {
    pub(super) async fn new(stream: MaybeHttpsStream<Tcp>) -> hyper::Result<Self> {
        let look = Arc::new(AtomicBool::new(false));
        let (requests, driver) = http1::handshake(Socket::new(stream, Arc::clone(&look))).await?;
        Ok(Self { requests, driver: Some(Box::new(driver)), look })
    }

    /// Does what there is to do.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(cx).is_ready()
        {
            // How it ended is told to the request.
            self.driver = None;
        }
    }

    /// Returns whether the connection takes a request. The server may have closed it, and the runtime not know yet: so the
    /// socket itself is looked at.
    pub(super) fn is_open(&mut self) -> bool {
        self.look.store(true, Ordering::Relaxed);
        self.drive(&mut by_hand());
        self.requests.is_ready()
    }
}

/// What a connection reads and writes.
struct Socket {
    stream: TcpOrTls,
    /// The next read is a look at what the kernel has, whatever the runtime knows.
    look: Arc<AtomicBool>,
}

enum TcpOrTls {
    Plain(Tcp),
    /// Boxed, or a plain one would have room for the state of TLS too.
    Tls(Box<TokioIo<TlsStream<TokioIo<Tcp>>>>),
}

trait ReadWrite: Read + Write + Unpin {}

impl<T: Read + Write + Unpin> ReadWrite for T {}

impl Socket {
    fn new(stream: MaybeHttpsStream<Tcp>, look: Arc<AtomicBool>) -> Self {
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
            // The end, an error, or a farewell that answers no request: all of them end the connection.
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
