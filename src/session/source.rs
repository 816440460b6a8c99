//! Where the messages of a stream come from.

use std::{
    collections::HashSet,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use uuid::Uuid;

/// What a stream has to send.
#[derive(Debug)]
pub enum StreamItem {
    /// A JSON-RPC message.
    Document(Bytes),
    /// A question of a task, which must not be sent again once it has been asked elsewhere.
    Question(Uuid, Bytes),
    /// The connection ends and the stream goes on: the client has to reconnect after so long. Only clients for
    /// which [`super::Streams::primes`] is true know such pauses.
    Pause(Duration),
}

/// Where the messages of one stream come from.
pub trait Source: Send {
    /// Polls for the next message; `None` at the stream's end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamItem>>;

    /// Notes that a connection delivers the stream from now on. If it is `resumed`, it starts with what the client
    /// missed.
    fn attached(&mut self, _resumed: bool) {}

    /// Notes that no connection delivers the stream any more.
    fn detached(&mut self) {}

    /// Returns the questions that this stream has sent and that, since the last call, are not to be answered on it any
    /// more.
    fn settled(&mut self) -> HashSet<Uuid> {
        HashSet::new()
    }
}
