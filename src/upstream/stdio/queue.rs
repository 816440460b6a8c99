//! What waits for a child to read it: each source has a share, and they take turns.

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
    share::{Entry, Lane, MAX_BYTES, NotTaken, Source, What},
};
use crate::observe::{Observer, events};

/// The messages that wait for one child.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    /// Told when there is something to write, or never will be.
    changed: Notify,
    observer: Arc<Observer>,
}

#[derive(Default)]
struct Inner {
    lanes: HashMap<Source, Lane>,
    /// The sources of which something waits, the next one first.
    turns: VecDeque<Source>,
    /// What is being written.
    writing: Option<(Source, Entry)>,
    next_ticket: u64,
    closed: bool,
}

/// The place of a call, which is given up where this is dropped before the call was written.
pub(super) struct Place {
    queue: Arc<Queue>,
    source: Source,
    ticket: u64,
    written: oneshot::Receiver<()>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl Inner {
    /// What waits of all sources.
    fn bytes(&self) -> usize {
        self.lanes.values().map(|lane| lane.bytes).sum()
    }

    /// Forgets a source of which nothing waits and nothing is being written.
    fn tidy(&mut self, source: Source) {
        if self.lanes.get(&source).is_some_and(|lane| lane.entries.is_empty()) {
            self.turns.retain(|turn| *turn != source);
            if self.writing.as_ref().is_none_or(|(writing, _)| *writing != source) {
                self.lanes.remove(&source);
            }
        }
    }
}

impl Queue {
    pub(super) fn new(observer: Arc<Observer>) -> Arc<Self> {
        Arc::new(Self { inner: Mutex::default(), changed: Notify::new(), observer })
    }

    /// Queues a notification or an answer.
    ///
    /// # Errors
    /// [`NotTaken`]
    pub(super) fn tell(&self, source: Source, what: What, message: Bytes) -> Result<(), NotTaken> {
        self.push(source, what, message, None).map(drop)
    }

    /// Queues a call, which waits as long as the place is kept.
    ///
    /// # Errors
    /// [`NotTaken`]
    pub(super) fn call(self: &Arc<Self>, source: Source, what: What, message: Bytes) -> Result<Place, NotTaken> {
        let (tell, written) = oneshot::channel();
        let ticket = self.push(source, what, message, Some(tell))?;
        Ok(Place { queue: Arc::clone(self), source, ticket, written })
    }

    fn push(
        &self,
        source: Source,
        what: What,
        message: Bytes,
        written: Option<oneshot::Sender<()>>,
    ) -> Result<u64, NotTaken> {
        // As it came it may be a part of a larger buffer, and would keep it.
        let message = Bytes::copy_from_slice(&one_line(message));
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(NotTaken::Closed);
        }
        let ticket = inner.next_ticket;
        let entry = Entry { ticket, message, what, written };
        let size = entry.size();
        inner.next_ticket += 1;
        let share = MAX_BYTES / (inner.lanes.len() + usize::from(!inner.lanes.contains_key(&source)));
        // Each source may send a large message, but not all of them at once.
        if what.is_limited() && size > share && inner.bytes() > MAX_BYTES {
            return Err(NotTaken::Bytes(share));
        }
        let lane = inner.lanes.entry(source).or_default();
        lane.take(entry, share)?;
        if lane.entries.len() == 1 {
            inner.turns.push_back(source);
        }
        drop(inner);
        self.observer.emit(events::WaitsForChild::more(size));
        self.changed.notify_one();
        Ok(ticket)
    }

    /// The next message to write; `None` when the queue is closed and empty. [`Queue::written`] has to follow.
    pub(super) async fn next(&self) -> Option<Bytes> {
        loop {
            {
                let mut inner = self.inner.lock();
                if let Some(source) = inner.turns.pop_front()
                    && let Some(lane) = inner.lanes.get_mut(&source)
                    && let Some(entry) = lane.entries.pop_front()
                {
                    if !lane.entries.is_empty() {
                        inner.turns.push_back(source);
                    }
                    let message = entry.message.clone();
                    inner.writing = Some((source, entry));
                    return Some(message);
                }
                if inner.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Notes that the message was written that [`Queue::next`] gave.
    pub(super) fn written(&self) {
        let mut inner = self.inner.lock();
        let Some((source, mut entry)) = inner.writing.take() else { return };
        if let Some(lane) = inner.lanes.get_mut(&source) {
            lane.let_go(&entry);
        }
        inner.tidy(source);
        drop(inner);
        self.observer.emit(events::WaitsForChild::less(entry.size()));
        if let Some(written) = entry.written.take() {
            // The call may have been given up.
            let _ = written.send(());
        }
    }

    /// Takes nothing more; what waits is still written.
    pub(super) fn close(&self) {
        self.inner.lock().closed = true;
        self.changed.notify_one();
    }

    /// Takes nothing more, and gives up what waits: the child reads no more.
    pub(super) fn clear(&self) {
        let mut inner = self.inner.lock();
        let lanes = std::mem::take(&mut inner.lanes);
        let writing = inner.writing.take().map(|(_, entry)| entry);
        inner.turns.clear();
        inner.closed = true;
        drop(inner);
        let entries = lanes.into_values().flat_map(|lane| lane.entries).chain(writing);
        self.observer.emit(events::WaitsForChild::less(entries.map(|entry| entry.size()).sum()));
        self.changed.notify_one();
    }

    /// Gives up what waits of a source that has gone, but for the answers that the child waits for; returns the calls.
    pub(super) fn forget(&self, source: Source) -> Vec<u64> {
        let mut inner = self.inner.lock();
        let others: usize = inner.lanes.iter().filter(|(of, _)| **of != source).map(|(_, lane)| lane.bytes).sum();
        let Some(lane) = inner.lanes.get_mut(&source) else { return Vec::new() };
        let (mut calls, mut given_up) = (Vec::new(), 0);
        for entry in std::mem::take(&mut lane.entries) {
            // Sessions that come and go must not leave ever more behind.
            if entry.what == What::Answer && others + lane.bytes <= MAX_BYTES {
                lane.entries.push_back(entry);
                continue;
            }
            lane.let_go(&entry);
            given_up += entry.size();
            if let What::Call(number) | What::Task(number) = entry.what {
                calls.push(number);
            }
        }
        inner.tidy(source);
        drop(inner);
        self.observer.emit(events::WaitsForChild::less(given_up));
        calls
    }

    fn withdraw(&self, source: Source, ticket: u64) {
        let mut inner = self.inner.lock();
        let Some(lane) = inner.lanes.get_mut(&source) else { return };
        let Some(at) = lane.entries.iter().position(|entry| entry.ticket == ticket) else { return };
        let Some(entry) = lane.entries.remove(at) else { return };
        lane.let_go(&entry);
        inner.tidy(source);
        drop(inner);
        self.observer.emit(events::WaitsForChild::less(entry.size()));
    }
}

impl Place {
    /// Resolves when the call was written; `false` if it never will be.
    pub(super) async fn written(mut self) -> bool {
        (&mut self.written).await.is_ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.withdraw(self.source, self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::stdio::share::{MAX_MESSAGES, TASKGATE};

    const ANN: Source = 1;
    const BOB: Source = 2;

    fn queue() -> Arc<Queue> {
        Queue::new(Arc::default())
    }

    fn text(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn of_size(size: usize) -> Bytes {
        vec![b'x'; size].into()
    }

    /// The next message, written.
    async fn write(queue: &Queue) -> String {
        let message = queue.next().await.expect("something waits");
        queue.written();
        String::from_utf8(message.into()).expect("text")
    }

    fn bytes_that_wait(queue: &Queue) -> String {
        let metrics = queue.observer.open_metrics();
        metrics.lines().find_map(|line| line.strip_prefix("taskgate_child_stdin_bytes ")).expect("metric").to_owned()
    }

    #[tokio::test]
    async fn sources_take_turns_and_each_keeps_its_order() {
        let queue = queue();
        for n in 0..3 {
            queue.tell(ANN, What::Notice, text(&format!("ann {n}"))).expect("room");
        }
        queue.tell(BOB, What::Notice, text("bob 0")).expect("room");
        let mut order = Vec::new();
        for _ in 0..4 {
            order.push(write(&queue).await);
        }
        assert_eq!(order, ["ann 0", "bob 0", "ann 1", "ann 2"]);
        assert_eq!(bytes_that_wait(&queue), "0");
        assert!(queue.inner.lock().lanes.is_empty());
    }

    #[tokio::test]
    async fn a_source_that_fills_its_share_is_refused_alone_and_the_call_of_a_task_finds_a_place_all_the_same() {
        let queue = queue();
        let calls: Vec<_> = (0..MAX_MESSAGES as u64)
            .map(|number| queue.call(ANN, What::Call(number), text("ping")).expect("room"))
            .collect();
        assert_eq!(queue.call(ANN, What::Call(999), text("ping")).err(), Some(NotTaken::Messages));
        assert_eq!(queue.tell(ANN, What::Notice, text("note")), Err(NotTaken::Messages));
        let _task = queue.call(ANN, What::Task(1000), text("task")).expect("a place");
        queue.tell(BOB, What::Notice, text("bob")).expect("room");
        drop(calls);
        assert_eq!(
            [write(&queue).await, write(&queue).await],
            ["task", "bob"],
            "calls that are given up are not written"
        );
    }

    #[tokio::test]
    async fn bytes_are_shared_by_the_sources_that_wait_and_a_larger_message_is_taken_alone() {
        let queue = queue();
        queue.tell(ANN, What::Notice, of_size(MAX_BYTES + 1)).expect("nothing waits");
        assert_eq!(queue.tell(ANN, What::Notice, text("more")), Err(NotTaken::Bytes(MAX_BYTES)));
        queue.tell(BOB, What::Notice, of_size(MAX_BYTES / 4)).expect("a share of its own");
        let third = queue.tell(BOB, What::Notice, of_size(MAX_BYTES / 4));
        assert_eq!(third, Err(NotTaken::Bytes(MAX_BYTES / 2)));
        queue.next().await.expect("ann's");
        assert_eq!(
            queue.tell(ANN, What::Notice, text("more")),
            Err(NotTaken::Bytes(MAX_BYTES / 2)),
            "it is being written"
        );
        queue.written();
        queue.tell(ANN, What::Notice, text("more")).expect("nothing of hers waits");
    }

    #[tokio::test]
    async fn however_many_calls_a_session_leaves_behind_all_are_cancelled() {
        let queue = queue();
        for number in 0..4 * MAX_MESSAGES {
            queue.tell(TASKGATE, What::Cancellation, text(&number.to_string())).expect("a place");
        }
        queue.tell(TASKGATE, What::Answer, text("answer")).expect("room");
        for number in 0..4 * MAX_MESSAGES {
            assert_eq!(write(&queue).await, number.to_string());
        }
    }

    #[tokio::test]
    async fn large_messages_of_many_sources_do_not_add_up_and_small_ones_are_taken_all_the_same() {
        let queue = queue();
        let taken = (1..=100).filter(|source| queue.tell(*source, What::Notice, of_size(MAX_BYTES)).is_ok()).count();
        assert!(queue.inner.lock().bytes() < 3 * MAX_BYTES, "{taken} were taken");
        queue.tell(101, What::Notice, text("small")).expect("a share of its own");
        let _task = queue.call(102, What::Task(1), of_size(MAX_BYTES)).expect("it was acknowledged");
        while queue.inner.lock().bytes() > 0 {
            write(&queue).await;
        }
        queue.tell(100, What::Notice, of_size(MAX_BYTES)).expect("nothing waits any more");
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_while_it_is_written_does_no_harm() {
        let queue = queue();
        let call = queue.call(ANN, What::Call(1), text("call")).expect("room");
        queue.next().await.expect("the call");
        drop(call);
        queue.written();
        assert_eq!(bytes_that_wait(&queue), "0");
        assert!(queue.inner.lock().lanes.is_empty());
    }

    #[tokio::test]
    async fn a_source_that_has_gone_leaves_nothing_but_its_answers() {
        let queue = queue();
        let _call = queue.call(ANN, What::Call(7), text("call")).expect("room");
        let _task = queue.call(ANN, What::Task(8), text("task")).expect("room");
        queue.tell(ANN, What::Answer, text("answer")).expect("room");
        queue.tell(ANN, What::Notice, text("note")).expect("room");
        assert_eq!(queue.forget(ANN), [7, 8]);
        assert_eq!(write(&queue).await, "answer");
        queue.close();
        assert!(queue.next().await.is_none());
    }

    #[tokio::test]
    async fn sources_that_come_and_go_do_not_leave_ever_more_answers() {
        let queue = queue();
        for source in 1..100 {
            queue.tell(source, What::Answer, of_size(MAX_BYTES / 4)).expect("the first of its source");
            queue.forget(source);
        }
        let waiting = queue.inner.lock().bytes();
        assert!(waiting <= MAX_BYTES, "{waiting}");
    }

    #[tokio::test]
    async fn what_waits_is_written_after_closing_and_given_up_when_the_child_reads_no_more() {
        let queue = queue();
        let (first, second) = (queue.call(ANN, What::Call(1), text("1")), queue.call(ANN, What::Call(2), text("2")));
        queue.close();
        assert_eq!(queue.tell(ANN, What::Notice, text("late")), Err(NotTaken::Closed));
        assert_eq!(write(&queue).await, "1");
        assert!(first.expect("room").written().await);
        queue.next().await.expect("the second");
        queue.clear();
        assert!(!second.expect("room").written().await);
        assert!(queue.next().await.is_none());
        assert_eq!(bytes_that_wait(&queue), "0");
    }
}
