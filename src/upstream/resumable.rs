//! Tracks where the answer to a call can be resumed by a later process.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Exchange, Exchanges, points::Points};
use crate::wire::{Kind, Message};

impl Exchange {
    /// Follows from now on where a later process can resume the answer: after the event in the returned channel. While
    /// there is none, it cannot.
    #[must_use]
    pub fn track(&self, from: Option<Bytes>) -> watch::Receiver<Option<Bytes>> {
        self.all.tracks.store(true, Ordering::Relaxed);
        let points = self.state().points.get_or_init(|| Box::new(Mutex::new(Points::from(from))));
        points.lock().subscribe()
    }
}

impl Exchanges {
    /// Notes that an event of the answer to exchange `number` was delivered.
    pub fn heard(&self, number: u64, event: Option<&Bytes>) {
        let Some(event) = event.filter(|_| self.tracks.load(Ordering::Relaxed)) else { return };
        let Some(state) = self.state(number) else { return };
        let Some(points) = state.points.get() else { return };
        points.lock().heard(event);
    }

    /// Notes a request of the server in the course of exchange `number` that has come on another stream.
    pub(super) fn asked_elsewhere(&self, number: u64, request: &Message) {
        let Some(state) = self.state(number) else { return };
        if let (Some(points), Kind::Request) = (state.points.get(), request.kind()) {
            points.lock().asks(request.id(), None);
        }
    }

    /// Notes that the server has this answer to what it has asked.
    pub(super) fn answered(&self, response: Bytes) {
        if self.tracks.load(Ordering::Relaxed)
            && let Ok(response) = Message::parse(response)
            && let Some(raw_id) = response.id()
        {
            self.settled(raw_id);
        }
    }

    fn settled(&self, raw_id: &str) {
        let state = self.asked(raw_id).and_then(|number| self.state(number));
        if let Some(points) = state.as_ref().and_then(|state| state.points.get()) {
            points.lock().settled(raw_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        flow::Capacity,
        upstream::{Purpose, points::MAX_OPEN},
    };

    fn message(text: &str) -> Message {
        Message::parse(text.to_owned().into()).expect("valid")
    }

    fn asks(id: usize) -> Message {
        message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create"}}"#))
    }

    fn point(points: &watch::Receiver<Option<Bytes>>) -> Option<String> {
        points.borrow().as_ref().map(|id| String::from_utf8_lossy(id).into_owned())
    }

    #[test]
    fn the_point_stays_before_the_oldest_question_that_is_not_answered() {
        let exchanges = Exchanges::new(Capacity::new(1 << 20, 1 << 20), Arc::default());
        let exchange = exchanges.begin(None, Purpose::Background).expect("room");
        let points = exchange.track(None);
        let (number, heard) = (exchange.number, |id: &'static str| exchanges.heard(1, Some(&id.into())));
        assert_eq!((number, point(&points)), (1, None), "nothing was heard");
        heard("a");
        for (question, event) in [(7, "b"), (8, "c")] {
            assert!(exchanges.push(number, asks(question)).is_none());
            heard(event);
            assert_eq!(point(&points).as_deref(), Some("a"));
        }
        exchanges.settled("7");
        assert_eq!(point(&points).as_deref(), Some("b"));
        let withdrawn = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}"#;
        assert!(exchanges.push(number, message(withdrawn)).is_none());
        assert_eq!(point(&points).as_deref(), Some("c"));
    }

    #[test]
    fn there_is_no_point_while_a_question_is_open_that_no_resumption_brings_back() {
        let exchanges = Exchanges::new(Capacity::new(1 << 20, 1 << 20), Arc::default());
        let exchange = exchanges.begin(None, Purpose::Background).expect("room");
        let points = exchange.track(Some("a".into()));
        exchanges.asked_elsewhere(exchange.number, &asks(7));
        assert!(exchanges.push(exchange.number, asks(7)).is_none());
        assert_eq!(point(&points), None);
        exchanges.settled("7");
        assert_eq!(point(&points).as_deref(), Some("a"));
        for question in 0..=MAX_OPEN {
            assert!(exchanges.push(exchange.number, asks(question)).is_none());
        }
        (0..=MAX_OPEN).for_each(|question| exchanges.settled(&question.to_string()));
        assert_eq!(point(&points), None, "one was not followed");
    }
}
