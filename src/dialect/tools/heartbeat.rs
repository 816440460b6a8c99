//! Progress in the server's place while it says nothing, so that a client that resets its timeout on progress waits.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::wire::{Edits, Message, object::Members, object::quote};

/// The progress of one call as its client is told it.
#[derive(Debug)]
pub struct Heartbeat {
    every: Duration,
    /// The client's raw token.
    token: Box<str>,
    /// The last number that the client was told.
    told: f64,
    /// When the client is told again, if the server is silent until then.
    due: Instant,
}

impl Heartbeat {
    /// Returns the heartbeat of a call that begins now.
    #[must_use]
    pub fn new(every: Duration, token: &str) -> Self {
        Self { every, token: token.into(), told: 0.0, due: Instant::now() + every }
    }

    /// Returns when the next one is due.
    #[must_use]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Notes progress of the server, which is about to be told. Returns the message with a greater number where
    /// heartbeats have told that number already: progress has to grow.
    #[must_use]
    pub fn relay(&mut self, progress: f64, for_client: &Message) -> Bytes {
        self.due = Instant::now() + self.every;
        if progress > self.told || self.told == 0.0 {
            self.told = progress;
            return for_client.bytes().clone();
        }
        self.told = above(self.told);
        let lifted = number(self.told);
        let params = for_client.params().and_then(|params| Members::parse(params).ok());
        let Some(params) = params else { return for_client.bytes().clone() };
        let mut edits = Edits::of(for_client.bytes());
        edits.set(&params, "progress", &lifted);
        edits.apply().into_bytes()
    }

    /// Returns the notification that is due, with a number barely greater than the last, so that the server's next one
    /// is greater still.
    #[must_use]
    pub fn beat(&mut self, text: &str) -> Bytes {
        self.due = Instant::now() + self.every;
        self.told = above(self.told);
        notification(&self.token, &number(self.told), text)
    }
}

/// Returns a notification of progress with a raw token and a raw number.
pub(super) fn notification(token: &str, progress: &str, text: &str) -> Bytes {
    let text = quote(text);
    let params = format!(r#"{{"progressToken":{token},"progress":{progress},"message":{text}}}"#);
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#).into()
}

/// Returns a number that is barely greater. No greater one can be written than the greatest.
fn above(number: f64) -> f64 {
    (number + (number.abs() * 1e-12).max(1e-9)).min(f64::MAX)
}

fn number(number: f64) -> String {
    serde_json::Value::from(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(bytes: &Bytes) -> f64 {
        let message: serde_json::Value = serde_json::from_slice(bytes).expect("JSON");
        message["params"]["progress"].as_f64().expect("a number")
    }

    fn server(progress: f64) -> Message {
        let params = format!(r#"{{"progressToken":"t","progress":{progress},"total":9,"message":"m"}}"#);
        let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#);
        Message::parse(text.into()).expect("a message")
    }

    #[tokio::test]
    async fn heartbeats_grow_and_the_server_goes_on_above_them() {
        let mut heartbeat = Heartbeat::new(Duration::from_secs(1), "\"t\"");
        let mut told = vec![progress(&heartbeat.beat("runs"))];
        for theirs in [0.0, 0.5, 1.0, 1e9, 1e9 + 1.0] {
            let relayed = heartbeat.relay(theirs, &server(theirs));
            told.push(progress(&relayed));
            assert!((progress(&relayed) - theirs).abs() < 1e-6, "{theirs}");
            told.extend((0..100).map(|_| progress(&heartbeat.beat("runs"))));
        }
        assert!(told.is_sorted_by(|a, b| a < b), "{told:?}");
    }

    #[tokio::test]
    async fn progress_that_falls_is_told_a_little_above_the_last_and_keeps_its_total() {
        let mut heartbeat = Heartbeat::new(Duration::from_secs(1), "7");
        let mut told = vec![heartbeat.relay(50.0, &server(50.0)), heartbeat.beat("runs")];
        told.extend([20.0, 20.0, 50.0].map(|theirs| heartbeat.relay(theirs, &server(theirs))));
        assert!(told.iter().map(progress).is_sorted_by(|a, b| a < b), "{told:?}");
        assert!(progress(&told[4]) < 50.000_001, "{told:?}");
        assert!(String::from_utf8_lossy(&told[2]).contains(r#""total":9,"message":"m""#), "{told:?}");
        drop(heartbeat.relay(f64::MAX, &server(f64::MAX)));
        assert!(progress(&heartbeat.beat("runs")) >= f64::MAX, "still a number");
    }

    #[tokio::test]
    async fn without_a_heartbeat_the_server_is_told_byte_by_byte() {
        let mut heartbeat = Heartbeat::new(Duration::from_secs(1), "\"t\"");
        for theirs in [0.0, 0.25, 1.0] {
            assert_eq!(heartbeat.relay(theirs, &server(theirs)), server(theirs).bytes());
        }
    }
}
