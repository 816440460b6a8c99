//! Requests written byte for byte, without an HTTP library.

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::kit::{Client, soon};

/// A connection to the endpoint.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    /// Bytes that were read after the last answer that was taken.
    came: Vec<u8>,
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status; 0 where the connection was closed without a word.
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Returns the JSON-RPC error code; 0 without a JSON body.
    pub(crate) fn code(&self) -> i64 {
        serde_json::from_str::<Value>(&self.body).unwrap_or_default()["error"]["code"].as_i64().unwrap_or_default()
    }

    /// Returns the first answer in `bytes`, and its length; `None` where it is not whole.
    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let length = head.split_once("content-length: ").and_then(|(_, rest)| rest.split("\r\n").next()?.parse().ok());
        let until = end + length.unwrap_or(0);
        let body = String::from_utf8_lossy(bytes.get(end..until)?).into_owned();
        let status = head.get(9..12)?.parse().ok()?;
        Some((Self { status, head, body }, until))
    }
}

impl Raw {
    /// Connects to `host:port`.
    pub(crate) async fn connect(authority: &str) -> Self {
        Self { stream: soon(TcpStream::connect(authority)).await.unwrap(), came: Vec::new() }
    }

    /// Writes; a connection that has ended after a refusal is no failure.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = soon(self.stream.write_all(bytes.as_ref())).await;
        self
    }

    /// Returns the next answer, which has a length, or no body.
    pub(crate) async fn answer(&mut self) -> Answer {
        loop {
            if let Some((answer, length)) = Answer::parse(&self.came) {
                self.came.drain(..length);
                return answer;
            }
            if soon(self.stream.read_buf(&mut self.came)).await.unwrap_or(0) == 0 {
                return Answer { status: 0, head: String::new(), body: String::new() };
            }
        }
    }

    /// Returns all that comes until the connection is closed.
    pub(crate) async fn rest(&mut self) -> String {
        while soon(self.stream.read_buf(&mut self.came)).await.unwrap_or(0) > 0 {}
        String::from_utf8_lossy(&self.came).into_owned()
    }
}

/// Returns a POST as it stands on the wire: its head without the last line, and what frames the body.
pub(crate) fn head(client: &Client, framing: &str) -> String {
    let authority = client.url().trim_start_matches("http://").split('/').next().unwrap();
    let headers = client.headers.iter().map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap()));
    format!("POST /mcp HTTP/1.1\r\nhost: {authority}\r\n{}{framing}\r\n", headers.collect::<String>())
}

/// Returns a whole POST with a length.
pub(crate) fn post(client: &Client, body: &str) -> String {
    format!("{}{body}", head(client, &format!("content-length: {}\r\n", body.len())))
}

/// Returns a body as one chunk, and the end.
pub(crate) fn chunked(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}
