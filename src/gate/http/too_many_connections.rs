//! Connections beyond `server.max_connections`: they are answered with 503, and closed.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};

use crate::{gate::refuse::Refusal, observe::Observer};

/// How many connections are told at once. Further ones are just closed.
const AT_ONCE: usize = 64;
/// How long one of them may take to read the answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Turns connections away.
#[derive(Debug)]
pub(super) struct TurnedAway {
    max_connections: usize,
    observer: Arc<Observer>,
    turns: Arc<Semaphore>,
}

impl TurnedAway {
    /// Creates it for a listener with room for `max_connections`.
    pub(super) fn new(max_connections: usize, observer: Arc<Observer>) -> Self {
        Self { max_connections, observer, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Answers 503, whatever is asked, in the background; without a handshake only a `plain` one can be told.
    pub(super) fn tell(&self, mut stream: TcpStream, plain: bool) {
        let body = Refusal::too_many_connections(self.max_connections).into_document(&self.observer);
        let Some(turn) = Arc::clone(&self.turns).try_acquire_owned().ok().filter(|_| plain) else { return };
        let head = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             retry-after: 1\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let answer = [head.as_bytes(), &body].concat();
        let telling = async move {
            stream.write_all(&answer).await?;
            stream.shutdown().await?;
            // What was sent and not read would take the answer back when the connection is closed.
            let mut unread = [0; 1024];
            while stream.read(&mut unread).await? > 0 {}
            std::io::Result::Ok(())
        };
        tokio::spawn(async move {
            // A client that does not read the answer is gone.
            let _ = timeout(TIMEOUT, telling).await;
            drop(turn);
        });
    }
}
