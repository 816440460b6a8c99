//! A client that sends a request and then does not read.

use http::Method;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use super::{Client, soon};

/// A receive buffer that lets next to nothing be in flight; reading through it takes long.
pub(crate) const TINY: u32 = 1024;
/// A receive buffer with which the system keeps up to a few MiB in flight.
pub(crate) const SMALL: u32 = 32 * 1024;

/// An open request whose answer is not read. Dropping it disconnects.
pub(crate) struct Stalled(TcpStream);

impl Stalled {
    /// Sends a request of `client` on a connection of its own, with a receive buffer of so many bytes.
    pub(crate) async fn open(client: &Client, method: Method, body: &str, buffer: u32) -> Self {
        let authority = client.url().trim_start_matches("http://").split('/').next().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(buffer).unwrap();
        let mut stream = soon(socket.connect(authority.parse().unwrap())).await.unwrap();
        let headers: Vec<_> =
            client.headers.iter().map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap())).collect();
        let head = format!("{method} /mcp HTTP/1.1\r\nhost: {authority}\r\ncontent-length: {}\r\n", body.len());
        stream.write_all(format!("{head}{}\r\n{body}", headers.concat()).as_bytes()).await.unwrap();
        Self(stream)
    }

    /// Reads a little of what has come.
    pub(crate) async fn read(&mut self, into: &mut Vec<u8>) {
        let _ = self.0.read_buf(into).await;
    }

    /// Reads the rest, to the end of the connection or of the last chunk.
    pub(crate) async fn rest(mut self) -> String {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n0\r\n\r\n") && self.0.read_buf(&mut answer).await.unwrap_or(0) > 0 {}
        String::from_utf8_lossy(&answer).into_owned()
    }
}
