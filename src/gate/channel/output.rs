//! What the client on one channel is sent, one after the other. Where the client is a stranger, what waits for it is
//! bounded in bytes.

use std::{sync::Arc, time::Duration};

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

/// What part of all that may wait for readers the answers on one channel may be, and as large a part may wait for its
/// place there.
const SHARE: usize = 8;
/// How long an answer waits for its place.
const READING: Duration = Duration::from_secs(2);

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
    /// For answers that wait for theirs.
    waiting: ByteRoom,
    /// For what belongs to no answer: one message. The others are in the listener's outbox, where they count.
    listener: ByteRoom,
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

/// Why there is no room for an answer.
enum NoRoom {
    /// There may be when the client has read: so much of all is reserved for it.
    Yet(Reserved),
    /// The limit that it would exceed.
    Limit(String),
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
        let own = ByteRoom::new((capacity.all() / SHARE).max(1));
        let answers =
            AnswerRoom { waiting: ByteRoom::new(own.most()), own, listener: ByteRoom::new(1), capacity, observer };
        (Self { answers: Some(Arc::new(answers)), ..output }, outgoing)
    }

    /// Sends what is bounded elsewhere: of a kind there is one at a time, or it is small.
    pub(super) async fn send(&self, document: Bytes) -> Result<(), Gone> {
        self.push(document, None).await
    }

    async fn push(&self, document: Bytes, room: Option<Room>) -> Result<(), Gone> {
        self.queue.send(Outgoing { document, _room: room }).await.map_err(|_| Gone)
    }

    /// Sends a part of the answer to the request `id`. Where too much waits for the client, a notification is dropped.
    /// Anything else waits, and in its place the request gets an error if the client does not read. Returns whether the
    /// answer goes on.
    pub(super) async fn answer(&self, id: &str, document: Bytes) -> Result<bool, Gone> {
        let Some(answers) = &self.answers else { return self.send(document).await.map(|()| true) };
        let room = match answers.take(document.len()) {
            Ok(room) => Ok(room),
            Err(_) if Message::parse(document.clone()).is_ok_and(|message| message.kind() == Kind::Notification) => {
                answers.observer.emit(events::MessagesDropped { count: 1 });
                return Ok(true);
            }
            Err(NoRoom::Yet(of_all)) => answers.wait(document.len(), of_all).await,
            Err(NoRoom::Limit(limit)) => Err(limit),
        };
        match room {
            Ok(room) => self.push(document, Some(room)).await.map(|()| true),
            Err(limit) => {
                drop(document);
                let why = format!(
                    "limit reached: {limit}. This answer was dropped, and the request may have had an effect. Read what waits, \
                     and make fewer requests at once"
                );
                self.send(RpcError::internal(why).to_response(Some(id))).await.map(|()| false)
            }
        }
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
        loop {
            let room = match (&self.answers, id) {
                (Some(answers), None) => {
                    let own = answers.listener.wait_at_any_size(1).await;
                    Some(Room { _own: own, _of_all: None })
                }
                _ => None,
            };
            let Some(next) = std::future::poll_fn(|cx| source.poll_next(cx)).await else { return };
            let document = match next {
                StreamItem::Document(document) | StreamItem::Question(_, document) => document,
                // The channel stays, whatever the upstream does.
                StreamItem::Pause(_) => continue,
            };
            let goes_on = match id {
                Some(id) => self.answer(id, document).await,
                None => self.push(document, room).await.map(|()| true),
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
    fn take(&self, bytes: usize) -> Result<Room, NoRoom> {
        match (self.own.take_at_any_size(bytes), self.capacity.reserve(bytes)) {
            (Some(own), Some(of_all)) => Ok(Room { _own: own, _of_all: Some(of_all) }),
            (Some(own), None) if self.own.holds_only(&own) => Ok(Room { _own: own, _of_all: None }),
            (None, Some(of_all)) => Err(NoRoom::Yet(of_all)),
            (_, None) => {
                let all = self.capacity.all();
                Err(NoRoom::Limit(format!("server.max_outbox_total = {all} bytes wait for clients, some for this one")))
            }
        }
    }

    /// Waits for room for an answer.
    ///
    /// # Errors
    /// The limit that it would exceed.
    async fn wait(&self, bytes: usize, of_all: Reserved) -> Result<Room, String> {
        let limit = || format!("{} bytes of answers wait for this client", self.own.most());
        // A large one leaves room for others.
        let _waiting = self.waiting.take(bytes.min(self.waiting.most().div_ceil(2))).ok_or_else(limit)?;
        let own = tokio::time::timeout(READING, self.own.wait_at_any_size(bytes)).await;
        Ok(Room { _own: own.map_err(|_| limit())?, _of_all: Some(of_all) })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::{Context, Poll},
    };

    use super::*;

    fn document(bytes: usize) -> Bytes {
        vec![b'x'; bytes].into()
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_wait_are_bounded_and_one_alone_passes_at_any_size() {
        let capacity = Capacity::new(10, 800);
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
        assert!(capacity.reserve(701).is_none() && capacity.reserve(700).is_some(), "they count for all");
        let all = capacity.reserve(700);
        drop(outgoing.recv().await);
        assert_eq!(output.answer("5", document(60)).await.ok(), Some(false), "others take the room");
        drop((outgoing, all));
        assert!(capacity.reserve(800).is_some(), "what the client never took");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_for_a_client_that_reads_and_no_more_wait_than_may() {
        let (output, mut outgoing) = Output::bounded(Capacity::new(10, 800), Arc::default());
        assert_eq!(output.answer("1", document(100)).await.ok(), Some(true));
        let waiting = tokio::spawn({
            let output = output.clone();
            async move { output.answer("2", document(100)).await.ok() }
        });
        tokio::task::yield_now().await;
        let small = tokio::spawn({
            let output = output.clone();
            async move { output.answer("3", document(1)).await.ok() }
        });
        tokio::task::yield_now().await;
        assert_eq!(output.answer("4", document(50)).await.ok(), Some(false), "at once");
        drop(outgoing.recv().await);
        assert_eq!(waiting.await.expect("no panic"), Some(true));
        // The error, then the large one.
        drop((outgoing.recv().await, outgoing.recv().await));
        assert_eq!(small.await.expect("no panic"), Some(true));
    }

    /// Has always one more message, and counts those that were taken.
    struct Endless(Arc<AtomicUsize>);

    impl Source for Endless {
        fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<StreamItem>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Some(StreamItem::Document(document(1))))
        }
    }

    #[tokio::test]
    async fn of_what_belongs_to_no_request_one_message_waits_outside_of_its_outbox() {
        let taken = Arc::new(AtomicUsize::default());
        let (output, mut outgoing) = Output::bounded(Capacity::new(10, 800), Arc::default());
        let listening = tokio::spawn({
            let source = Box::new(Endless(Arc::clone(&taken)));
            async move { output.pump(source, None).await }
        });
        for count in 1..=3 {
            let next = outgoing.recv().await.expect("there is always one more");
            tokio::task::yield_now().await;
            assert_eq!(taken.load(Ordering::Relaxed), count);
            drop(next);
        }
        drop(outgoing);
        listening.await.expect("it ends with the client");
    }
}
