//! How far the answer to a call has been heard: where a later process can resume it without missing a question.

use std::{collections::VecDeque, sync::OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::wire::{Kind, Message, Method, message::MAX_ID, params::requested};

/// How many open questions of one call are followed.
pub(super) const MAX_OPEN: usize = 64;

/// The points of one exchange, once it is tracked. Boxed: few exchanges are.
pub(super) type TrackedPoints = OnceLock<Box<Mutex<Points>>>;

/// Which events of an answer have been heard, and which of the questions in it are still open.
#[derive(Debug)]
pub(super) struct Points {
    /// The id of the last event that was delivered.
    last: Option<Bytes>,
    /// The open questions, oldest first.
    open: VecDeque<OpenQuestion>,
    /// Whether there were questions that are not followed, so that the answer cannot be resumed.
    lost: bool,
    /// Tells the point.
    told: watch::Sender<Option<Bytes>>,
}

/// A question that a later process would have to hear again.
#[derive(Debug)]
struct OpenQuestion {
    raw_id: Box<str>,
    /// The point before its event; `None` if no resumption brings it back.
    before: Option<Bytes>,
}

impl Points {
    /// Returns the points of an answer that has been heard up to an event, if to any.
    pub(super) fn from(event: Option<Bytes>) -> Self {
        let told = watch::Sender::new(event.clone());
        Self { last: event, open: VecDeque::new(), lost: false, told }
    }

    /// Returns what tells the point after which the answer can be resumed, if there is one.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Bytes>> {
        self.told.subscribe()
    }

    /// Notes that an event was delivered.
    pub(super) fn heard(&mut self, event: &Bytes) {
        self.last = Some(event.clone());
        self.tell();
    }

    /// Notes a question, which comes again if the answer is resumed after `before`.
    pub(super) fn asks(&mut self, raw_id: Option<&str>, before: Option<Bytes>) {
        if self.open.iter().any(|open| Some(&*open.raw_id) == raw_id) {
            return;
        }
        match raw_id {
            Some(raw_id) if self.open.len() < MAX_OPEN && raw_id.len() <= MAX_ID => {
                self.open.push_back(OpenQuestion { raw_id: raw_id.into(), before });
            }
            _ => self.lost = true,
        }
        self.tell();
    }

    /// Notes that a question has its answer, or needs none any more.
    pub(super) fn settled(&mut self, raw_id: &str) {
        self.open.retain(|open| *open.raw_id != *raw_id);
        self.tell();
    }

    fn tell(&self) {
        let point = if self.lost || self.open.iter().any(|open| open.before.is_none()) {
            None
        } else {
            self.open.front().map_or_else(|| self.last.clone(), |oldest| oldest.before.clone())
        };
        self.told.send_if_modified(|told| {
            let is_new = *told != point;
            *told = point;
            is_new
        });
    }
}

/// Takes note of a message that is delivered to an exchange with these points.
pub(super) fn follow(points: &TrackedPoints, message: &Message) {
    let Some(points) = points.get() else { return };
    match (message.kind(), message.method()) {
        // taskgate answers a ping at once, and the server can do without the answer.
        (Kind::Request, Method::Ping) => {}
        (Kind::Request, _) => {
            let mut points = points.lock();
            let before = points.last.clone();
            points.asks(message.id(), before);
        }
        (Kind::Notification, Method::Cancelled) => {
            if let Some(withdrawn) = requested(message) {
                points.lock().settled(withdrawn);
            }
        }
        _ => {}
    }
}
