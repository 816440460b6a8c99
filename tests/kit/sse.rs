//! A stream of events as a test reads it.

use std::future::Future;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::task::JoinSet;

use super::soon;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    /// Milliseconds.
    pub(crate) retry: Option<u64>,
    pub(crate) data: String,
}

impl Event {
    /// Returns the message in it.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// An answer that is read as it comes. Dropping it disconnects.
pub(crate) struct Stream {
    /// The request, which runs as a task of its own: its head may only come with the first event.
    opening: JoinSet<Response<Incoming>>,
    body: Option<Incoming>,
    text: String,
}

impl Stream {
    pub(crate) fn new(response: impl Future<Output = Response<Incoming>> + Send + 'static) -> Self {
        let mut opening = JoinSet::new();
        opening.spawn(response);
        Self { opening, body: None, text: String::new() }
    }

    /// Status and headers of the answer, when they have come.
    pub(crate) async fn head(&mut self) -> (StatusCode, HeaderMap) {
        let response = self.opening.join_next().await.expect("the head is read once, before the first event");
        let (head, body) = response.unwrap().into_parts();
        self.body = Some(body);
        (head.status, head.headers)
    }

    /// Returns the next event with a message; `None` where the stream ends. Skips comments, and events that only prime
    /// the client for a reconnection.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            let event = self.next_of_any_kind().await?;
            if !event.data.is_empty() {
                return Some(event);
            }
        }
    }

    /// Returns the next event, one without data included.
    pub(crate) async fn next_of_any_kind(&mut self) -> Option<Event> {
        soon(async {
            loop {
                while let Some(end) = self.text.find("\n\n") {
                    let block: String = self.text.drain(..end + 2).collect();
                    let event = event(&block);
                    if event.is_some() {
                        return event;
                    }
                }
                self.more().await?;
            }
        })
        .await
    }

    /// Returns the message in the next event, which has to come.
    pub(crate) async fn message(&mut self) -> Value {
        self.next().await.expect("an event before the end of the stream").json()
    }

    /// Reads on to the end; returns the last message, or the body that is no stream. It may take as long as it takes.
    pub(crate) async fn last(self) -> Value {
        let (text, last, _) = self.rest().await;
        last.unwrap_or_else(|| panic!("no message in {text:?}"))
    }

    /// Reads on to the end; returns the body, the last message in it, and the last event id.
    pub(crate) async fn rest(mut self) -> (String, Option<Value>, Option<String>) {
        while self.more().await.is_some() {}
        let last = events(&self.text).pop().map(|event| event.json());
        let last = last.or_else(|| serde_json::from_str(&self.text).ok());
        let id = self.text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().map(str::to_owned);
        (self.text, last, id)
    }

    /// Reads the next piece, as text; `None` at the end.
    async fn more(&mut self) -> Option<()> {
        if self.body.is_none() {
            self.head().await;
        }
        // A connection that breaks ends the stream, too.
        let frame = self.body.as_mut()?.frame().await?.ok()?;
        let data: Bytes = frame.into_data().unwrap_or_default();
        self.text.push_str(std::str::from_utf8(&data).expect("no test splits a character"));
        Some(())
    }
}

fn event(block: &str) -> Option<Event> {
    let mut event = Event::default();
    let mut data: Vec<&str> = Vec::new();
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut event.name),
            "retry" => event.retry = Some(value.parse().unwrap()),
            "id" => event.id = Some(value.to_owned()),
            "data" => data.push(value),
            _ => {}
        }
    }
    event.data = data.join("\n");
    (!data.is_empty()).then_some(event)
}

/// Returns the events of a whole body that have a message.
pub(crate) fn events(body: &str) -> Vec<Event> {
    body.split("\n\n").filter_map(event).filter(|event| !event.data.is_empty()).collect()
}
