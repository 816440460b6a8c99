//! 503 on a connection that is closed afterwards, whatever is asked on it.

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

/// How long a client may take to read the answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Answers 503 with a JSON body.
pub(super) async fn tell(mut stream: impl AsyncRead + AsyncWrite + Unpin, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let answer = [head.as_bytes(), body].concat();
    let telling = async move {
        stream.write_all(&answer).await?;
        stream.shutdown().await?;
        // What was sent and not read would take the answer back when the connection is closed.
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    };
    // A client that does not read the answer is gone.
    let _ = timeout(TIMEOUT, telling).await;
}
