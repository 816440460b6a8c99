//! What the client on one channel is sent, one after the other. Where the client is a stranger, answers that wait for
//! it are bounded in bytes.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::QUEUE;
use crate::{
    flow::{ByteRoom, Capacity, Reserved, TakenBytes},
    gate::delivery::{Delivery, Whole},
    observe::{Observer, events},
    session::{Source, StreamItem},
    wire::{Kind, Message, RpcError},
};

/// What part of all that may wait for readers the answers on one channel may be.
const SHARE: usize = 4;

/// Where documents for the client go.
#[derive(Clone)]
pub(super) struct Output {
    queue: mpsc::Sender<Outgoing>,
    answers: Option<Arc<AnswerRoom>>,
}

/// A document for the client, which counts until the client takes it.
#[derive(Debug)]
pub(in crate::gate) struct Outgoing {
    pub document: Bytes,
    _room: Option<Room>,
}

/// The room for the answers on one channel.
struct AnswerRoom {
    own: ByteRoom,
    /// What may wait for all readers.
    capacity: Arc<Capacity>,
    observer: Arc<Observer>,
}

/// Room that is taken until this is dropped.
#[derive(Debug)]
struct Room {
    _own: TakenBytes,
    _of_all: Option<Reserved>,
}

/// The client takes nothing any more.
#[derive(Debug)]
pub(super) struct Gone;

impl Output {
    /// Returns where documents for a client that is trusted go, and where they come out.
    pub(super) fn trusted() -> (Self, mpsc::Receiver<Outgoing>) {
        let (queue, outgoing) = mpsc::channel(QUEUE);
        (Self { queue, answers: None }, outgoing)
    }

    /// Returns the same for a stranger, for whom the answers that wait count against `capacity`.
    pub(super) fn bounded(capacity: Arc<Capacity>, observer: Arc<Observer>) -> (Self, mpsc::Receiver<Outgoing>) {
        let (output, outgoing) = Self::trusted();
        let answers = AnswerRoom { own: ByteRoom::new(capacity.all() / SHARE), capacity, observer };
        (Self { answers: Some(Arc::new(answers)), ..output }, outgoing)
    }

    /// Sends what is bounded elsewhere: of a kind there is one at a time, or it is small.
    pub(super) async fn send(&self, document: Bytes) -> Result<(), Gone> {
        self.queue.send(Outgoing { document, _room: None }).await.map_err(|_| Gone)
    }

    /// Sends a part of the answer to the request `id`. Where too much waits for the client, a notification is dropped,
    /// and in the place of anything else the request gets an error. Returns whether the answer goes on.
    pub(super) async fn answer(&self, id: &str, document: Bytes) -> Result<bool, Gone> {
        let Some(answers) = &self.answers else { return self.send(document).await.map(|()| true) };
        let room = match answers.take(document.len()) {
            Ok(room) => room,
            Err(_) if Message::parse(document.clone()).is_ok_and(|message| message.kind() == Kind::Notification) => {
                answers.observer.emit(events::MessagesDropped { count: 1 });
                return Ok(true);
            }
            Err(limit) => {
                drop(document);
                let why = format!(
                    "limit reached: {limit}; read them, and make fewer requests at once. This answer was dropped, and the \
                     request may have had an effect"
                );
                return self.send(RpcError::internal(why).to_response(Some(id))).await.map(|()| false);
            }
        };
        self.queue.send(Outgoing { document, _room: Some(room) }).await.map(|()| true).map_err(|_| Gone)
    }

    /// Sends the answer to the request `id`.
    pub(super) async fn deliver(&self, answer: Delivery, id: &str) {
        let document = match answer {
            Delivery::Whole(Whole::Document(document)) => document.into_bytes(),
            Delivery::Whole(Whole::Unauthorized(error)) => {
                let why = format!("the MCP server behind taskgate answered HTTP {}", error.status);
                RpcError::internal(why).to_response(Some(id))
            }
            Delivery::Acknowledgement { document, start } => {
                let sent = self.send(document.into_bytes()).await;
                // The call starts behind its acknowledgement.
                drop(start);
                return drop(sent);
            }
            Delivery::Stream { source, .. } => return self.pump(source, Some(id)).await,
            Delivery::Large { .. } => {
                let error = RpcError::internal("answers are not relayed where they go one after the other");
                error.to_response(Some(id))
            }
        };
        let _ = self.answer(id, document).await;
    }

    /// Sends all that a source has: the answer to the request `id`, or what belongs to none.
    pub(super) async fn pump(&self, mut source: Box<dyn Source>, id: Option<&str>) {
        source.attached(false);
        while let Some(next) = std::future::poll_fn(|cx| source.poll_next(cx)).await {
            let document = match next {
                StreamItem::Document(document) | StreamItem::Question(_, document) => document,
                // The channel stays, whatever the upstream does.
                StreamItem::Pause(_) => continue,
            };
            let goes_on = match id {
                Some(id) => self.answer(id, document).await,
                None => self.send(document).await.map(|()| true),
            };
            if !matches!(goes_on, Ok(true)) {
                return;
            }
        }
    }

    /// Returns whether nothing more can be queued for the client.
    pub(super) fn is_full(&self) -> bool {
        self.queue.capacity() == 0
    }

    /// Waits until not so much waits for the client, or it takes nothing any more.
    pub(super) async fn has_room(&self) {
        drop(self.queue.reserve().await);
    }

    /// Waits until the client takes nothing any more.
    pub(super) async fn closed(&self) {
        self.queue.closed().await;
    }
}

impl AnswerRoom {
    /// Takes room for an answer, which passes alone at any size.
    ///
    /// # Errors
    /// The limit that it would exceed.
    fn take(&self, bytes: usize) -> Result<Room, String> {
        let own = self.own.take_at_any_size(bytes);
        let own = own.ok_or_else(|| format!("{} bytes of answers wait for this client", self.own.most()))?;
        let is_alone = self.own.holds_only(&own);
        let of_all = self.capacity.reserve(bytes);
        if of_all.is_none() && !is_alone {
            let all = self.capacity.all();
            return Err(format!("server.max_outbox_total = {all} bytes wait for clients, some for this one"));
        }
        Ok(Room { _own: own, _of_all: of_all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(bytes: usize) -> Bytes {
        vec![b'x'; bytes].into()
    }

    #[tokio::test]
    async fn answers_that_wait_are_bounded_and_one_alone_passes_at_any_size() {
        let capacity = Capacity::new(10, 400);
        let (output, mut outgoing) = Output::bounded(Arc::clone(&capacity), Arc::default());
        assert_eq!(output.answer("1", document(1000)).await.ok(), Some(true), "alone");
        let note = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#);
        assert_eq!(output.answer("2", note).await.ok(), Some(true), "dropped");
        assert_eq!(output.answer("2", document(1)).await.ok(), Some(false));
        drop(outgoing.recv().await);
        assert!(
            outgoing.recv().await.is_some_and(|error| error.document.starts_with(br#"{"jsonrpc":"2.0","id":2,"error"#))
        );
        for id in ["3", "4"] {
            assert_eq!(output.answer(id, document(50)).await.ok(), Some(true));
        }
        assert!(capacity.reserve(301).is_none() && capacity.reserve(300).is_some(), "they count for all");
        let all = capacity.reserve(300);
        drop(outgoing.recv().await);
        assert_eq!(output.answer("5", document(60)).await.ok(), Some(false), "others take the room");
        drop((outgoing, all));
        assert!(capacity.reserve(400).is_some(), "what the client never took");
    }
}
