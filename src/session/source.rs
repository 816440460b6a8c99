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
    /// The connection ends and the stream goes on: the client is to come back after so long. Only for clients that
    /// [`super::Streams::primes`] says know that.
    Pause(Duration),
}

/// Where the messages of a stream come from.
pub trait Source: Send {
    /// The next message; `None` at the stream's end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamItem>>;

    /// A connection delivers the stream from now on: where an earlier one broke, or from here.
    fn attached(&mut self, _resumed: bool) {}

    /// Nobody delivers the stream any more.
    fn detached(&mut self) {}

    /// The questions that were sent and are not to be answered on this stream any more, since the last call.
    fn settled(&mut self) -> HashSet<Uuid> {
        HashSet::new()
    }
}
