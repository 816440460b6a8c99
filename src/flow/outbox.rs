//! Messages on their way to one reader, bounded in bytes.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Capacity, shrink};
use crate::wire::{Kind, Message, Method};

/// A queue of messages for one reader, with an end that is delivered after them.
#[derive(Debug)]
pub struct Outbox<E> {
    capacity: Arc<Capacity>,
    state: Mutex<OutboxState<E>>,
    /// Notified when the reader has taken the last message.
    emptied: Notify,
}

#[derive(Debug)]
struct OutboxState<E> {
    queue: VecDeque<Message>,
    bytes: usize,
    end: OutboxEnd<E>,
    /// A message was refused, see [`Outbox::has_refused`].
    refused: bool,
    silent: bool,
    pause: Option<Duration>,
    /// How many streams deliver from here: at most one, except for a moment.
    readers: usize,
    reader: Option<Waker>,
}

#[derive(Debug)]
enum OutboxEnd<E> {
    Open,
    Waiting(E),
    Delivered,
}

/// What a reader gets.
#[derive(Debug)]
pub enum Item<E> {
    /// A message, with more to come.
    Message(Message),
    /// Nothing has come for a while; see [`Outbox::tell_silence`].
    Silence,
    /// The sender has ended the connection but not the stream, and goes on after this time; see [`Outbox::pause`].
    Pause(Duration),
    /// The end; nothing comes after it.
    End(E),
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It waits for the reader.
    Kept,
    /// This many less important messages were dropped for it, perhaps itself among them.
    Dropped(usize),
    /// It must not be dropped, and there is no room: the stream has to end.
    Full,
}

impl<E> Outbox<E> {
    /// Creates an empty outbox.
    #[must_use]
    pub fn new(capacity: &Arc<Capacity>) -> Self {
        let state = OutboxState {
            queue: VecDeque::new(),
            bytes: 0,
            end: OutboxEnd::Open,
            refused: false,
            silent: false,
            pause: None,
            readers: 0,
            reader: None,
        };
        Self { capacity: Arc::clone(capacity), state: Mutex::new(state), emptied: Notify::new() }
    }

    /// Queues a message. A full outbox drops progress, then log messages, then other notifications, each oldest first,
    /// but never a server request. A message always passes if nothing else waits, even if it is larger than the
    /// capacity or other outboxes have used up all room.
    pub fn push(&self, message: Message) -> Pushed {
        let mut state = self.state.lock();
        if !matches!(state.end, OutboxEnd::Open) {
            return Pushed::Dropped(1);
        }
        let (before, cost) = (state.bytes, cost(&message));
        let taken = self.capacity.take(cost);
        let capacity = if taken { self.capacity.each() } else { self.capacity.each().min(before) };
        let pushed = state.push(message, capacity);
        self.capacity.count(if taken { before + cost } else { before }, state.bytes);
        pushed
    }

    /// Sets the end, unless there is one already. What waits is still delivered.
    pub fn end(&self, end: E) {
        let mut state = self.state.lock();
        if matches!(state.end, OutboxEnd::Open) {
            state.end = OutboxEnd::Waiting(end);
            state.wake();
        }
    }

    /// Gives a waiting reader [`Item::Silence`].
    pub fn tell_silence(&self) {
        let mut state = self.state.lock();
        state.silent = true;
        state.wake();
    }

    /// Gives the reader [`Item::Pause`] once it has taken what waits.
    pub fn pause(&self, pause: Duration) {
        let mut state = self.state.lock();
        state.pause = Some(pause);
        state.wake();
    }

    /// Takes back the messages that `unwanted` selects and the reader has not taken. Returns their number.
    pub fn retract(&self, unwanted: impl Fn(&Message) -> bool) -> usize {
        let mut state = self.state.lock();
        let (before, bytes) = (state.queue.len(), state.bytes);
        state.remove(unwanted);
        self.capacity.count(bytes, state.bytes);
        before - state.queue.len()
    }

    /// Returns whether a message fits without another one being dropped.
    pub fn has_room_for(&self, message: &Message) -> bool {
        let state = self.state.lock();
        let cost = cost(message);
        state.queue.is_empty() || state.bytes + cost <= self.capacity.with(state.bytes, cost)
    }

    /// Waits until the reader has taken every message.
    pub async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.state.lock().queue.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Returns whether a message was refused for lack of room since the last call.
    pub fn has_refused(&self) -> bool {
        std::mem::take(&mut self.state.lock().refused)
    }

    /// Counts a stream that delivers from this outbox, until the returned value is dropped.
    pub fn attach(self: &Arc<Self>) -> Attached<E> {
        self.state.lock().readers += 1;
        Attached(Arc::clone(self))
    }

    /// Returns whether a stream delivers from this outbox.
    pub fn has_reader(&self) -> bool {
        self.state.lock().readers > 0
    }

    /// Takes the next message if one waits. Wakes the reader no more until it polls again.
    pub fn take(&self) -> Option<Message> {
        let mut state = self.state.lock();
        state.reader = None;
        self.pop(&mut state)
    }

    fn pop(&self, state: &mut OutboxState<E>) -> Option<Message> {
        let message = state.queue.pop_front()?;
        shrink(&mut state.queue);
        let cost = cost(&message);
        state.bytes -= cost;
        self.capacity.count(cost, 0);
        if state.queue.is_empty() {
            self.emptied.notify_waiters();
        }
        Some(message)
    }

    /// Polls for the next item; `None` once the end has been delivered.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Item<E>>> {
        let mut state = self.state.lock();
        if let Some(message) = self.pop(&mut state) {
            return Poll::Ready(Some(Item::Message(message)));
        }
        match std::mem::replace(&mut state.end, OutboxEnd::Delivered) {
            OutboxEnd::Waiting(end) => Poll::Ready(Some(Item::End(end))),
            OutboxEnd::Delivered => Poll::Ready(None),
            OutboxEnd::Open => {
                state.end = OutboxEnd::Open;
                if let Some(pause) = state.pause.take() {
                    return Poll::Ready(Some(Item::Pause(pause)));
                }
                if std::mem::take(&mut state.silent) {
                    return Poll::Ready(Some(Item::Silence));
                }
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Waits for the next item; `None` once the end has been delivered.
    pub async fn next(&self) -> Option<Item<E>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl<E> Drop for Outbox<E> {
    fn drop(&mut self) {
        self.capacity.count(self.state.get_mut().bytes, 0);
    }
}

/// Counts a stream that delivers from an outbox, until this is dropped.
#[derive(Debug)]
pub struct Attached<E>(Arc<Outbox<E>>);

impl<E> Drop for Attached<E> {
    fn drop(&mut self) {
        self.0.state.lock().readers -= 1;
    }
}

impl<E> OutboxState<E> {
    fn push(&mut self, message: Message, capacity: usize) -> Pushed {
        self.bytes += cost(&message);
        self.queue.push_back(message);
        let mut dropped = 0;
        if self.bytes > capacity && self.queue.len() > 1 {
            dropped = self.make_room(capacity);
            if self.bytes > capacity && self.queue.len() > 1 {
                if let Some(last) = self.queue.pop_back() {
                    self.bytes -= cost(&last);
                }
                self.refused = true;
                return Pushed::Full;
            }
        }
        self.wake();
        if dropped == 0 { Pushed::Kept } else { Pushed::Dropped(dropped) }
    }

    /// Drops messages until a quarter is free, so that a flood does not cost a search for every message.
    fn make_room(&mut self, capacity: usize) -> usize {
        let before = self.queue.len();
        for drop_order in 0..=2 {
            let mut excess = self.bytes.saturating_sub(capacity / 4 * 3);
            self.remove(|message| {
                let drop = excess > 0 && drop_order_of(message) == Some(drop_order);
                if drop {
                    excess = excess.saturating_sub(cost(message));
                }
                drop
            });
        }
        before - self.queue.len()
    }

    fn remove(&mut self, mut unwanted: impl FnMut(&Message) -> bool) {
        self.queue.retain(|message| {
            let drop = unwanted(message);
            if drop {
                self.bytes -= cost(message);
            }
            !drop
        });
        shrink(&mut self.queue);
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// Returns the bytes that a waiting message takes: its text, and room for two in a queue that has grown.
fn cost(message: &Message) -> usize {
    2 * size_of::<Message>() + message.bytes().len()
}

/// Returns the drop order of a message, the lowest first; `None` if it must not be dropped.
fn drop_order_of(message: &Message) -> Option<u8> {
    match (message.kind(), message.method()) {
        (Kind::Notification, Method::Progress) => Some(0),
        (Kind::Notification, Method::LogMessage) => Some(1),
        (Kind::Notification, _) => Some(2),
        (Kind::Request | Kind::Response, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 1024 * 1024;

    fn outbox() -> Outbox<&'static str> {
        Outbox::new(&Capacity::new(CAPACITY, 100 * CAPACITY))
    }

    fn message(method: &str, id: &str, size: usize) -> Message {
        let text = format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{{"x":"{}"}}}}"#, "x".repeat(size));
        Message::parse(text.into()).expect("valid")
    }

    fn drain(outbox: &Outbox<&'static str>) -> Vec<Method> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut methods = Vec::new();
        while let Poll::Ready(Some(Item::Message(message))) = outbox.poll_next(&mut cx) {
            methods.push(message.method());
        }
        methods
    }

    #[test]
    fn progress_is_dropped_first_oldest_first_then_log_messages() {
        let outbox = outbox();
        let third = CAPACITY / 3;
        assert_eq!(outbox.push(message("notifications/message", "", third)), Pushed::Kept);
        assert_eq!(outbox.push(message("notifications/progress", "", third)), Pushed::Kept);
        assert_eq!(outbox.push(message("notifications/tasks/status", "", third)), Pushed::Dropped(1));
        assert_eq!(outbox.push(message("elicitation/create", "\"id\":1,", third)), Pushed::Dropped(1));
        assert_eq!(drain(&outbox), [Method::TaskStatus, Method::Elicit]);
    }

    #[test]
    fn a_server_request_is_never_dropped() {
        let outbox = outbox();
        let request = || message("roots/list", "\"id\":1,", CAPACITY / 2 + 1);
        assert_eq!(outbox.push(request()), Pushed::Kept);
        assert_eq!(outbox.push(request()), Pushed::Full);
        assert_eq!(outbox.push(message("notifications/progress", "", CAPACITY / 2)), Pushed::Dropped(1));
        assert_eq!(drain(&outbox).len(), 1);
    }

    #[test]
    fn a_retracted_message_is_not_delivered_and_its_room_is_free() {
        let outbox = outbox();
        for _ in 0..4 {
            assert_eq!(outbox.push(message("roots/list", "\"id\":7,", CAPACITY / 2)), Pushed::Kept);
            assert_eq!(outbox.retract(|message| message.id() == Some("7")), 1);
        }
        assert_eq!(drain(&outbox), []);
    }

    #[test]
    fn when_all_outboxes_together_are_full_every_one_is_but_one_that_is_read_still_passes_each_message() {
        let capacity = Capacity::new(CAPACITY, CAPACITY);
        let (stalled, read) = (Outbox::<&str>::new(&capacity), Outbox::<&str>::new(&capacity));
        let request = || message("roots/list", "\"id\":1,", CAPACITY / 2);
        assert_eq!(stalled.push(request()), Pushed::Kept);
        assert_eq!(stalled.push(message("notifications/progress", "", CAPACITY / 4)), Pushed::Kept);
        assert_eq!(read.push(request()), Pushed::Kept);
        // Progress is dropped here as well as where the outbox itself is full.
        assert_eq!(stalled.push(message("roots/list", "\"id\":2,", CAPACITY / 8)), Pushed::Dropped(1));
        assert!(!read.has_room_for(&request()));
        assert_eq!(read.push(request()), Pushed::Full);
        for _ in 0..3 {
            assert_eq!(drain(&read).len(), 1);
            assert_eq!(read.push(request()), Pushed::Kept);
        }
        assert_eq!(read.retract(|_| true), 1);
        drop(stalled);
        assert_eq!(capacity.waiting(), 0);
    }

    #[tokio::test]
    async fn a_pause_comes_after_what_waits_and_before_what_comes_later() {
        let outbox = outbox();
        outbox.push(message("x", "", 1));
        outbox.pause(Duration::from_millis(7));
        assert!(matches!(outbox.next().await, Some(Item::Message(_))));
        assert!(matches!(outbox.next().await, Some(Item::Pause(pause)) if pause.as_millis() == 7));
        outbox.end("end");
        assert!(matches!(outbox.next().await, Some(Item::End("end"))));
    }

    #[tokio::test]
    async fn the_end_comes_after_what_waits_and_only_once() {
        let outbox = outbox();
        outbox.push(message("x", "", 1));
        outbox.end("first");
        outbox.end("second");
        assert_eq!(outbox.push(message("x", "", 1)), Pushed::Dropped(1));
        assert!(matches!(outbox.next().await, Some(Item::Message(_))));
        assert!(matches!(outbox.next().await, Some(Item::End("first"))));
        assert!(outbox.next().await.is_none());
    }
}
