//! The messages that wait for a child to read its stdin: each sender has a share, and the senders take turns.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::{
    lines::one_line,
    share::{Backlog, MAX_BYTES, MessageClass, NotTaken, QueuedMessage, SUBSCRIPTIONS, SenderId},
};
use crate::observe::{Observer, events};

/// The messages that wait for one child.
pub(super) struct StdinQueue {
    state: Mutex<QueueState>,
    /// Notified when there is something to write, or when the queue is closed.
    changed: Notify,
    /// Whether answers are dropped.
    without_answers: AtomicBool,
    observer: Arc<Observer>,
}

#[derive(Default)]
struct QueueState {
    backlogs: HashMap<SenderId, Backlog>,
    /// The senders in whose lines something waits, the next one first.
    turns: VecDeque<SenderId>,
    /// The message that is being written.
    writing: Option<QueuedMessage>,
    next_ticket: u64,
    closed: bool,
}

/// A request that waits. A call is withdrawn if this is dropped before it was written.
pub(super) struct QueuedCall {
    queue: Arc<StdinQueue>,
    sender: SenderId,
    ticket: u64,
    written: oneshot::Receiver<()>,
}

impl fmt::Debug for StdinQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdinQueue").finish_non_exhaustive()
    }
}

impl QueueState {
    /// Returns how many bytes wait of all senders.
    fn bytes(&self) -> usize {
        self.backlogs.values().map(|backlog| backlog.bytes).sum()
    }

    /// Forgets a sender in whose line nothing waits and of which nothing counts.
    fn tidy(&mut self, sender: SenderId) {
        let Some(backlog) = self.backlogs.get(&sender) else { return };
        if backlog.entries.is_empty() {
            self.turns.retain(|turn| *turn != sender);
        }
        if backlog.is_empty() {
            self.backlogs.remove(&sender);
        }
    }
}

impl StdinQueue {
    pub(super) fn new(observer: Arc<Observer>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changed: Notify::new(),
            without_answers: AtomicBool::new(false),
            observer,
        })
    }

    /// Drops answers from now on: a modern server must not get any ("stdio", section "Sending Messages").
    pub(super) fn take_no_answers(&self) {
        self.without_answers.store(true, Ordering::Relaxed);
    }

    /// Queues a message whose sender does not wait until it was written.
    ///
    /// # Errors
    /// [`NotTaken`]
    pub(super) fn tell(&self, sender: SenderId, class: MessageClass, message: Bytes) -> Result<(), NotTaken> {
        if matches!(class, MessageClass::Answer) && self.without_answers.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.push(sender, class, message, None).map(drop)
    }

    /// Queues a request. A call is withdrawn if the returned value is dropped first.
    ///
    /// # Errors
    /// [`NotTaken`]
    pub(super) fn call(
        self: &Arc<Self>,
        sender: SenderId,
        class: MessageClass,
        message: Bytes,
    ) -> Result<QueuedCall, NotTaken> {
        let (tell, written) = oneshot::channel();
        let ticket = self.push(sender, class, message, Some(tell))?;
        Ok(QueuedCall { queue: Arc::clone(self), sender, ticket, written })
    }

    fn push(
        &self,
        sender: SenderId,
        class: MessageClass,
        message: Bytes,
        written: Option<oneshot::Sender<()>>,
    ) -> Result<u64, NotTaken> {
        // A copy, because the message may be a part of a larger buffer, which it would keep.
        let message = Bytes::copy_from_slice(&one_line(message));
        let mut state = self.state.lock();
        if state.closed {
            return Err(NotTaken::Closed);
        }
        let ticket = state.next_ticket;
        let entry = QueuedMessage { sender, ticket, message, class, written };
        let size = entry.size();
        state.next_ticket += 1;
        // The line of subscriptions is no sender.
        let has = |other| usize::from(state.backlogs.contains_key(&other));
        let others = state.backlogs.len() - has(SUBSCRIPTIONS) - if sender == SUBSCRIPTIONS { 0 } else { has(sender) };
        let share = MAX_BYTES / (others + 1);
        if class == MessageClass::Subscription
            && state.backlogs.get(&SUBSCRIPTIONS).is_some_and(|left| left.is_full(share))
        {
            return Err(NotTaken::Line);
        }
        // Each sender may send a large message, but not all of them at once.
        if class.is_limited() && size > share && state.bytes() > MAX_BYTES {
            return Err(NotTaken::Bytes(share));
        }
        state.backlogs.entry(sender).or_default().count(&entry, share)?;
        let line = entry.line();
        let waiting = &mut state.backlogs.entry(line).or_default().entries;
        waiting.push_back(entry);
        if waiting.len() == 1 {
            state.turns.push_back(line);
        }
        drop(state);
        self.observer.emit(events::WaitsForChild::more(size));
        self.changed.notify_one();
        Ok(ticket)
    }

    /// Waits for the next message to write; `None` when the queue is closed and empty. The caller then calls
    /// [`StdinQueue::written`].
    pub(super) async fn next(&self) -> Option<Bytes> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(line) = state.turns.pop_front()
                    && let Some(backlog) = state.backlogs.get_mut(&line)
                    && let Some(entry) = backlog.entries.pop_front()
                {
                    if !backlog.entries.is_empty() {
                        state.turns.push_back(line);
                    }
                    let message = entry.message.clone();
                    state.writing = Some(entry);
                    return Some(message);
                }
                if state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Notes that the message that [`StdinQueue::next`] returned was written.
    pub(super) fn written(&self) {
        let mut state = self.state.lock();
        let Some(mut entry) = state.writing.take() else { return };
        if let Some(backlog) = state.backlogs.get_mut(&entry.sender) {
            backlog.let_go(&entry);
        }
        state.tidy(entry.sender);
        state.tidy(entry.line());
        drop(state);
        self.observer.emit(events::WaitsForChild::less(entry.size()));
        if let Some(written) = entry.written.take() {
            // The call may have been withdrawn.
            let _ = written.send(());
        }
    }

    /// Refuses further messages; what waits is still written.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }

    /// Refuses further messages and drops what waits, because the child reads no more.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        let backlogs = std::mem::take(&mut state.backlogs);
        let writing = state.writing.take();
        state.turns.clear();
        state.closed = true;
        drop(state);
        let entries = backlogs.into_values().flat_map(|backlog| backlog.entries).chain(writing);
        self.observer.emit(events::WaitsForChild::less(entries.map(|entry| entry.size()).sum()));
        self.changed.notify_one();
    }

    /// Drops what waits in the line of a sender that has gone, except for answers, which the child waits for. What it has
    /// in the line of subscriptions stays, and counts with what other senders have left there. Returns the numbers of the
    /// dropped calls.
    pub(super) fn forget(&self, sender: SenderId) -> Vec<u64> {
        let mut state = self.state.lock();
        let others: usize =
            state.backlogs.iter().filter(|(of, _)| **of != sender).map(|(_, backlog)| backlog.bytes).sum();
        let Some(mut backlog) = state.backlogs.remove(&sender) else { return Vec::new() };
        let (mut calls, mut given_up) = (Vec::new(), 0);
        for entry in std::mem::take(&mut backlog.entries) {
            // Sessions that come and go must not leave more and more behind.
            if entry.class == MessageClass::Answer && others + backlog.bytes <= MAX_BYTES {
                backlog.entries.push_back(entry);
                continue;
            }
            backlog.let_go(&entry);
            given_up += entry.size();
            if let MessageClass::Call(number) | MessageClass::Task(number) = entry.class {
                calls.push(number);
            }
        }
        if let Some(line) = state.backlogs.get_mut(&SUBSCRIPTIONS) {
            line.inherit(sender, &mut backlog);
        }
        state.backlogs.insert(sender, backlog);
        state.tidy(sender);
        drop(state);
        self.observer.emit(events::WaitsForChild::less(given_up));
        calls
    }

    /// Takes the call of that number out of its sender's line. Returns whether it was there: then it is never written.
    pub(super) fn withdraw(&self, sender: SenderId, number: u64) -> bool {
        let meant = [MessageClass::Call(number), MessageClass::Task(number)];
        self.take_out(sender, |entry| meant.contains(&entry.class))
    }

    /// Takes a message out of its sender's line. What waits in another line is not a call, and stays.
    fn take_out(&self, sender: SenderId, is_meant: impl Fn(&QueuedMessage) -> bool) -> bool {
        let mut state = self.state.lock();
        let Some(backlog) = state.backlogs.get_mut(&sender) else { return false };
        let Some(at) = backlog.entries.iter().position(is_meant) else { return false };
        let Some(entry) = backlog.entries.remove(at) else { return false };
        backlog.let_go(&entry);
        state.tidy(sender);
        drop(state);
        self.observer.emit(events::WaitsForChild::less(entry.size()));
        true
    }
}

impl QueuedCall {
    /// Waits until the call has been written. Returns `false` if it never will be.
    pub(super) async fn written(mut self) -> bool {
        (&mut self.written).await.is_ok()
    }
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        self.queue.take_out(self.sender, |entry| entry.ticket == self.ticket);
    }
}

#[cfg(test)]
mod tests;
