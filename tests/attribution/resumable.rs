//! Answers that can be resumed: each event has an id, and the server keeps them. A connection that breaks ends none.

use std::{io, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::{over_http::Body, run::Said};

/// The answers of a server, by their numbers.
#[derive(Default)]
pub(crate) struct Answers(Mutex<Vec<watch::Receiver<Kept>>>);

/// What was said so far.
#[derive(Default)]
struct Kept {
    said: Vec<Arc<Said>>,
    is_whole: bool,
}

impl Answers {
    /// Returns the stream of an answer, which is kept.
    pub(crate) fn keep(&self, first: Option<Said>, mut said: mpsc::Receiver<Said>) -> Response<Body> {
        let (keeping, kept) = watch::channel(Kept::default());
        let number = {
            let mut answers = self.0.lock();
            answers.push(kept.clone());
            answers.len() - 1
        };
        tokio::spawn(async move {
            keeping.send_modify(|kept| kept.said.extend(first.map(Arc::new)));
            while let Some(next) = said.recv().await {
                keeping.send_modify(|kept| kept.said.push(Arc::new(next)));
            }
            keeping.send_modify(|kept| kept.is_whole = true);
        });
        events(number, kept, 0)
    }

    /// Returns the stream of what came after an event.
    pub(crate) fn resume(&self, event: &str) -> Response<Body> {
        let (number, nth) = event.split_once('-').unwrap();
        let (number, nth) = (number.parse::<usize>().unwrap(), nth.parse::<usize>().unwrap());
        let kept = self.0.lock()[number].clone();
        // A connection breaks once.
        let broke = kept.borrow().said.get(nth).is_some_and(|said| matches!(**said, Said::Cut));
        events(number, kept, nth + usize::from(broke))
    }
}

/// Returns the stream of an answer from one of its events on.
fn events(number: usize, kept: watch::Receiver<Kept>, from: usize) -> Response<Body> {
    let begun = format!("id: {number}-{from}\nretry: 100\ndata: \n\n");
    let frames = stream::unfold((Some(begun), kept, from), move |(begun, mut kept, nth)| async move {
        if let Some(begun) = begun {
            return Some((Ok(Frame::data(Bytes::from(begun))), (None, kept, nth)));
        }
        let said = {
            let kept = kept.wait_for(|kept| kept.is_whole || kept.said.len() > nth).await.ok()?;
            Arc::clone(kept.said.get(nth)?)
        };
        let event = match &*said {
            Said::Line(line) => Ok(Frame::data(Bytes::from(format!("id: {number}-{}\ndata: {line}\n\n", nth + 1)))),
            _ => Err(io::Error::other("cut by the test")),
        };
        Some((event, (None, kept, nth + 1)))
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    response
}
