//! What answers a modern request: one document, or a stream of its own that ends with the response.

use std::{
    future::poll_fn,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::StatusCode;

use super::Refused;
use crate::{
    flow::{Capacity, Item, Outbox, Pushed},
    observe::{Observer, events},
    session::{Source, StreamItem},
    wire::{Message, Parts, RpcError},
};

/// An answer to one request.
#[derive(Debug)]
pub enum Answer {
    /// A response that is ready, and the status that it has over HTTP.
    Whole(StatusCode, Parts),
    /// Notifications, and the response as the last of them. Dropping it cancels the request.
    Stream(Pieces),
}

/// The response, with the HTTP status that it has where nothing comes before it, or with the refusal that it states;
/// `None` where the request was given up.
type Last = Option<(Result<StatusCode, Refused>, Parts)>;

/// Where the parts of an answer go in, as many bytes as may wait for any reader. One without a reader takes nothing, and
/// its client counts as gone.
#[derive(Debug, Default)]
pub(super) struct PieceWriter(Option<Arc<Shared>>);

/// The parts of an answer as they come.
#[derive(Debug)]
pub struct Pieces {
    shared: Arc<Shared>,
    /// A notification that was taken before the answer was known to be a stream.
    first: Option<Message>,
    /// How many of its last words are out.
    said: usize,
}

/// What both ends have of an answer.
#[derive(Debug)]
struct Shared {
    outbox: Outbox<Last>,
    /// Whether the client has left, or has got the whole answer.
    left: AtomicBool,
    /// The writer, while it waits for the client to leave.
    writer: AtomicWaker,
    /// The documents that end the answer once its client's token or certificate has expired.
    last_words: OnceLock<Vec<Bytes>>,
    observer: Arc<Observer>,
}

/// Returns where the parts of an answer go in, and where they come out.
pub(super) fn pieces(capacity: &Arc<Capacity>, observer: &Arc<Observer>) -> (PieceWriter, Pieces) {
    let shared = Arc::new(Shared {
        outbox: Outbox::new(capacity),
        left: AtomicBool::new(false),
        writer: AtomicWaker::new(),
        last_words: OnceLock::new(),
        observer: Arc::clone(observer),
    });
    let pieces = Pieces { shared: Arc::clone(&shared), first: None, said: 0 };
    (PieceWriter(Some(shared)), pieces)
}

/// Returns the error for a request that was given up.
pub(super) fn given_up() -> RpcError {
    RpcError::internal(
        "taskgate gave up the request before it was answered; it may have had an effect, so check before you repeat it",
    )
}

impl PieceWriter {
    /// Begins the answer as a stream, whose heartbeats keep the connection open while there is nothing to say.
    pub(super) fn begin(&self) {
        if let Some(shared) = &self.0 {
            shared.outbox.tell_silence();
        }
    }

    /// Sends a notification. For a client that reads slowly less important ones are dropped, and a server never waits.
    pub(super) fn notify(&self, notification: Message) {
        if let Some(shared) = &self.0
            && let Pushed::Dropped(count) = shared.outbox.push(notification)
            && !self.has_left()
        {
            shared.observer.emit(events::MessagesDropped { count });
        }
    }

    /// Sends a notification that taskgate has written.
    pub(super) fn say(&self, notification: Bytes) {
        // What taskgate has written can be read.
        if let Ok(notification) = Message::parse(notification) {
            self.notify(notification);
        }
    }

    /// Sends a notification that taskgate has written, and waits until the client has taken it, or has left: of a task
    /// only the last state counts.
    pub(super) async fn tell(&self, notification: Bytes) {
        self.say(notification);
        let Some(shared) = &self.0 else { return };
        tokio::select! {
            () = shared.outbox.emptied() => {}
            () = self.left() => {}
        }
    }

    /// Sets the documents that end the answer when its client's token or certificate has expired.
    pub(super) fn set_last_words(&self, documents: Vec<Bytes>) {
        if let Some(shared) = &self.0 {
            let _ = shared.last_words.set(documents);
        }
    }

    /// Sends the response.
    pub(super) fn respond(&self, status: StatusCode, document: Parts) {
        self.end(Ok(status), document);
    }

    /// Sends a refusal of the request with that raw id.
    pub(super) fn refuse(&self, refused: Refused, id: &str) {
        let document = refused.to_response(id).into();
        self.end(Err(refused), document);
    }

    fn end(&self, status: Result<StatusCode, Refused>, document: Parts) {
        if let Some(shared) = &self.0 {
            // The answer is whole, so the writer no longer waits for its client to leave.
            shared.writer.take();
            shared.outbox.end(Some((status, document)));
        }
    }

    /// Returns whether the client has left.
    pub(super) fn has_left(&self) -> bool {
        // Pairs with the store in the drop of `Pieces`.
        self.0.as_ref().is_none_or(|shared| shared.left.load(Ordering::Acquire))
    }

    /// Waits until the client has left.
    pub(super) async fn left(&self) {
        poll_fn(|cx| {
            if let Some(shared) = self.0.as_ref().filter(|_| !self.has_left()) {
                shared.writer.register(cx.waker());
            }
            // It may have left meanwhile.
            if self.has_left() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for PieceWriter {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.writer.take();
            // Has no effect after a response.
            shared.outbox.end(None);
        }
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        // Pairs with the load in `has_left`.
        self.shared.left.store(true, Ordering::Release);
        self.shared.writer.wake();
    }
}

impl Pieces {
    /// Returns the next of the last words; `None` after the last one.
    pub fn last_word(&mut self) -> Option<Bytes> {
        let document = self.shared.last_words.get()?.get(self.said)?.clone();
        self.said += 1;
        Some(document)
    }

    /// Waits until it is known whether the answer is one document or a stream.
    ///
    /// # Errors
    /// [`Refused`], or [`given_up`]
    pub(super) async fn answer(mut self) -> Result<Answer, Refused> {
        match self.shared.outbox.next().await {
            Some(Item::End(Some((status, document)))) => Ok(Answer::Whole(status?, document)),
            Some(Item::Message(first)) => {
                self.first = Some(first);
                Ok(Answer::Stream(self))
            }
            Some(Item::Silence | Item::Pause(_)) => Ok(Answer::Stream(self)),
            Some(Item::End(None)) | None => Err(given_up().into()),
        }
    }
}

impl Source for Pieces {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(StreamItem::Document(first.bytes().clone())));
        }
        loop {
            return Poll::Ready(match std::task::ready!(self.shared.outbox.poll_next(cx)) {
                Some(Item::Message(message)) => Some(StreamItem::Document(message.bytes().clone())),
                Some(Item::End(last)) => last.map(|(_, document)| StreamItem::Document(document.into_bytes())),
                Some(Item::Silence | Item::Pause(_)) => continue,
                None => None,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future as _,
        sync::atomic::AtomicUsize,
        task::{Wake, Waker},
    };

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn log(text: &str) -> Message {
        let message = format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":"{text}"}}}}"#);
        Message::parse(message.into()).expect("a notification")
    }

    #[tokio::test]
    async fn what_waits_for_a_client_that_does_not_read_is_bounded_in_bytes_and_the_response_still_comes() {
        let (observer, capacity) = (Arc::default(), Capacity::new(4096, 1 << 20));
        let (to, mut from) = pieces(&capacity, &observer);
        for _ in 0..100 {
            to.notify(log(&"x".repeat(500)));
        }
        to.respond(StatusCode::OK, Bytes::from_static(b"{}").into());
        let mut documents = 0;
        while poll_fn(|cx| from.poll_next(cx)).await.is_some() {
            documents += 1;
        }
        assert!((2..10).contains(&documents), "{documents}");
        let metrics = observer.open_metrics();
        assert!(metrics.contains(&format!("taskgate_messages_dropped_total {}", 101 - documents)), "{metrics}");
    }

    #[tokio::test]
    async fn an_answer_that_is_given_up_ends_and_a_client_that_leaves_is_noticed() {
        let (observer, capacity) = (Arc::default(), Capacity::new(4096, 4096));
        let (to, from) = pieces(&capacity, &observer);
        drop(to);
        let error = from.answer().await.expect_err("the call was given up");
        let error = error.to_response("1");
        assert!(String::from_utf8_lossy(&error).contains("may have had an effect"), "{error:?}");
        let (to, from) = pieces(&capacity, &observer);
        to.notify(log("x"));
        drop(from);
        to.left().await;
        to.tell(Bytes::from_static(br#"{"jsonrpc":"2.0","method":"n"}"#)).await;
    }

    #[test]
    fn who_waits_last_for_a_client_to_leave_is_woken_and_nobody_once_it_has_its_answer() {
        let (observer, capacity) = (Arc::default(), Capacity::new(4096, 4096));
        for answered in [false, true] {
            let (to, from) = pieces(&capacity, &observer);
            let mut left = Box::pin(to.left());
            let waiters: [Arc<Count>; 2] = Default::default();
            for waiter in &waiters {
                let waker = Waker::from(Arc::clone(waiter));
                assert!(left.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            if answered {
                to.respond(StatusCode::OK, Bytes::from_static(b"{}").into());
            }
            drop(from);
            let woken = waiters.map(|waiter| waiter.0.load(Ordering::Relaxed));
            assert_eq!(woken, [0, usize::from(!answered)]);
        }
    }
}
