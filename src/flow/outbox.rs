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
    /// Notified when no message waits any more.
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
        self.tell_emptied(&state);
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
        self.tell_emptied(&state);
        before - state.queue.len()
    }

    /// Returns whether a message fits without another one being dropped.
    pub fn has_room_for(&self, message: &Message) -> bool {
        let state = self.state.lock();
        let cost = cost(message);
        state.queue.is_empty() || state.bytes + cost <= self.capacity.with(state.bytes, cost)
    }

    /// Waits until no message waits for the reader any more.
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
        self.tell_emptied(state);
        Some(message)
    }

    fn tell_emptied(&self, state: &OutboxState<E>) {
        if state.queue.is_empty() {
            self.emptied.notify_waiters();
        }
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
mod tests;
