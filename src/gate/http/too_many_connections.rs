//! Connections beyond `server.max_connections`: they are answered with 503, and closed.

use std::sync::Arc;

use tokio::{net::TcpStream, sync::Semaphore};

use super::unavailable::tell;
use crate::{gate::refuse::Refusal, observe::Observer};

/// How many connections are told at once. Further ones are just closed.
const AT_ONCE: usize = 64;

/// Turns connections away.
#[derive(Debug)]
pub(super) struct TurnedAway {
    max_connections: usize,
    observer: Arc<Observer>,
    turns: Arc<Semaphore>,
}

impl TurnedAway {
    /// Returns what turns connections away from a listener that takes `max_connections`.
    pub(super) fn new(max_connections: usize, observer: Arc<Observer>) -> Self {
        Self { max_connections, observer, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Answers 503, whatever is asked, in the background; without a handshake only a `plain` one can be told.
    pub(super) fn tell(&self, stream: TcpStream, plain: bool) {
        let body = Refusal::too_many_connections(self.max_connections).into_document(&self.observer);
        let Some(turn) = Arc::clone(&self.turns).try_acquire_owned().ok().filter(|_| plain) else { return };
        tokio::spawn(async move {
            tell(stream, &body).await;
            drop(turn);
        });
    }
}
