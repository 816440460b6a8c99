//! The messages that wait for a child to read its stdin: each sender has a share, and the senders take turns.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::{
    lines::one_line,
    share::{Backlog, MAX_BYTES, MessageClass, NotTaken, QueuedMessage, SenderId},
};
use crate::observe::{Observer, events};

/// The messages that wait for one child.
pub(super) struct StdinQueue {
    state: Mutex<QueueState>,
    /// Notified when there is something to write, or when the queue is closed.
    changed: Notify,
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
        Arc::new(Self { state: Mutex::default(), changed: Notify::new(), observer })
    }

    /// Queues a message whose sender does not wait until it was written.
    ///
    /// # Errors
    /// [`NotTaken`]
    pub(super) fn tell(&self, sender: SenderId, class: MessageClass, message: Bytes) -> Result<(), NotTaken> {
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
        let share = MAX_BYTES / (state.backlogs.len() + usize::from(!state.backlogs.contains_key(&sender)));
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

    /// Drops what waits in the line of a sender that has gone, except for answers, which the child waits for. Returns the numbers
    /// of the dropped calls.
    pub(super) fn forget(&self, sender: SenderId) -> Vec<u64> {
        let mut state = self.state.lock();
        let others: usize =
            state.backlogs.iter().filter(|(of, _)| **of != sender).map(|(_, backlog)| backlog.bytes).sum();
        let Some(backlog) = state.backlogs.get_mut(&sender) else { return Vec::new() };
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
        state.tidy(sender);
        drop(state);
        self.observer.emit(events::WaitsForChild::less(given_up));
        calls
    }

    /// Takes a call out of its sender's line. What waits in another line is not a call, and stays.
    fn withdraw(&self, sender: SenderId, ticket: u64) {
        let mut state = self.state.lock();
        let Some(backlog) = state.backlogs.get_mut(&sender) else { return };
        let Some(at) = backlog.entries.iter().position(|entry| entry.ticket == ticket) else { return };
        let Some(entry) = backlog.entries.remove(at) else { return };
        backlog.let_go(&entry);
        state.tidy(sender);
        drop(state);
        self.observer.emit(events::WaitsForChild::less(entry.size()));
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
        self.queue.withdraw(self.sender, self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::stdio::share::{MAX_MESSAGES, TASKGATE};

    const ANN: SenderId = 1;
    const BOB: SenderId = 2;

    fn queue() -> Arc<StdinQueue> {
        StdinQueue::new(Arc::default())
    }

    fn text(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn of_size(size: usize) -> Bytes {
        vec![b'x'; size].into()
    }

    /// Writes the next message, and returns it.
    async fn write(queue: &StdinQueue) -> String {
        let message = queue.next().await.expect("something waits");
        queue.written();
        String::from_utf8(message.into()).expect("text")
    }

    fn bytes_that_wait(queue: &StdinQueue) -> String {
        let metrics = queue.observer.open_metrics();
        metrics.lines().find_map(|line| line.strip_prefix("taskgate_child_stdin_bytes ")).expect("metric").to_owned()
    }

    #[tokio::test]
    async fn senders_take_turns_and_each_keeps_its_order() {
        let queue = queue();
        for n in 0..3 {
            queue.tell(ANN, MessageClass::Notice, text(&format!("ann {n}"))).expect("room");
        }
        queue.tell(BOB, MessageClass::Notice, text("bob 0")).expect("room");
        let mut order = Vec::new();
        for _ in 0..4 {
            order.push(write(&queue).await);
        }
        assert_eq!(order, ["ann 0", "bob 0", "ann 1", "ann 2"]);
        assert_eq!(bytes_that_wait(&queue), "0");
        assert!(queue.state.lock().backlogs.is_empty());
    }

    #[tokio::test]
    async fn a_sender_that_fills_its_share_is_refused_alone_but_the_call_of_a_task_always_finds_a_place() {
        let queue = queue();
        let calls: Vec<_> = (0..MAX_MESSAGES as u64)
            .map(|number| queue.call(ANN, MessageClass::Call(number), text("ping")).expect("room"))
            .collect();
        assert_eq!(queue.call(ANN, MessageClass::Call(999), text("ping")).err(), Some(NotTaken::Messages));
        assert_eq!(queue.tell(ANN, MessageClass::Notice, text("note")), Err(NotTaken::Messages));
        let _task = queue.call(ANN, MessageClass::Task(1000), text("task")).expect("a place");
        queue.tell(BOB, MessageClass::Notice, text("bob")).expect("room");
        drop(calls);
        assert_eq!([write(&queue).await, write(&queue).await], ["task", "bob"], "withdrawn calls are not written");
    }

    #[tokio::test]
    async fn senders_that_wait_share_the_bytes_and_a_larger_message_is_taken_alone() {
        let queue = queue();
        queue.tell(ANN, MessageClass::Notice, of_size(MAX_BYTES + 1)).expect("nothing waits");
        assert_eq!(queue.tell(ANN, MessageClass::Notice, text("more")), Err(NotTaken::Bytes(MAX_BYTES)));
        queue.tell(BOB, MessageClass::Notice, of_size(MAX_BYTES / 4)).expect("a share of its own");
        let third = queue.tell(BOB, MessageClass::Notice, of_size(MAX_BYTES / 4));
        assert_eq!(third, Err(NotTaken::Bytes(MAX_BYTES / 2)));
        queue.next().await.expect("ann's");
        assert_eq!(
            queue.tell(ANN, MessageClass::Notice, text("more")),
            Err(NotTaken::Bytes(MAX_BYTES / 2)),
            "it is being written"
        );
        queue.written();
        queue.tell(ANN, MessageClass::Notice, text("more")).expect("nothing of hers waits");
    }

    #[tokio::test]
    async fn all_calls_that_a_session_leaves_behind_are_cancelled() {
        let queue = queue();
        for number in 0..4 * MAX_MESSAGES {
            queue.tell(TASKGATE, MessageClass::Cancellation, text(&number.to_string())).expect("a place");
        }
        queue.tell(TASKGATE, MessageClass::Answer, text("answer")).expect("room");
        for number in 0..4 * MAX_MESSAGES {
            assert_eq!(write(&queue).await, number.to_string());
        }
    }

    #[tokio::test]
    async fn large_messages_of_many_senders_do_not_add_up_and_small_ones_are_still_taken() {
        let queue = queue();
        let taken =
            (1..=100).filter(|sender| queue.tell(*sender, MessageClass::Notice, of_size(MAX_BYTES)).is_ok()).count();
        assert!(queue.state.lock().bytes() < 3 * MAX_BYTES, "{taken} were taken");
        queue.tell(101, MessageClass::Notice, text("small")).expect("a share of its own");
        let _task = queue.call(102, MessageClass::Task(1), of_size(MAX_BYTES)).expect("it was acknowledged");
        while queue.state.lock().bytes() > 0 {
            write(&queue).await;
        }
        queue.tell(100, MessageClass::Notice, of_size(MAX_BYTES)).expect("nothing waits any more");
    }

    #[tokio::test]
    async fn a_call_that_is_withdrawn_while_it_is_being_written_does_no_harm() {
        let queue = queue();
        let call = queue.call(ANN, MessageClass::Call(1), text("call")).expect("room");
        queue.next().await.expect("the call");
        drop(call);
        queue.written();
        assert_eq!(bytes_that_wait(&queue), "0");
        assert!(queue.state.lock().backlogs.is_empty());
    }

    #[tokio::test]
    async fn a_sender_that_has_gone_leaves_only_its_answers() {
        let queue = queue();
        let _call = queue.call(ANN, MessageClass::Call(7), text("call")).expect("room");
        let _task = queue.call(ANN, MessageClass::Task(8), text("task")).expect("room");
        queue.tell(ANN, MessageClass::Answer, text("answer")).expect("room");
        queue.tell(ANN, MessageClass::Notice, text("note")).expect("room");
        assert_eq!(queue.forget(ANN), [7, 8]);
        assert_eq!(write(&queue).await, "answer");
        queue.close();
        assert!(queue.next().await.is_none());
    }

    #[tokio::test]
    async fn the_answers_of_senders_that_come_and_go_do_not_add_up() {
        let queue = queue();
        for sender in 1..100 {
            queue.tell(sender, MessageClass::Answer, of_size(MAX_BYTES / 4)).expect("the first of its sender");
            queue.forget(sender);
        }
        let waiting = queue.state.lock().bytes();
        assert!(waiting <= MAX_BYTES, "{waiting}");
    }

    #[tokio::test]
    async fn what_waits_is_written_after_closing_and_dropped_when_the_child_reads_no_more() {
        let queue = queue();
        let (first, second) =
            (queue.call(ANN, MessageClass::Call(1), text("1")), queue.call(ANN, MessageClass::Call(2), text("2")));
        queue.close();
        assert_eq!(queue.tell(ANN, MessageClass::Notice, text("late")), Err(NotTaken::Closed));
        assert_eq!(write(&queue).await, "1");
        assert!(first.expect("room").written().await);
        queue.next().await.expect("the second");
        queue.clear();
        assert!(!second.expect("room").written().await);
        assert!(queue.next().await.is_none());
        assert_eq!(bytes_that_wait(&queue), "0");
    }
}
