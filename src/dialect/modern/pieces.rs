//! What answers a modern request: one document, or a stream of its own that ends with the response.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::mpsc;

use crate::{
    session::{Source, StreamItem},
    wire::Parts,
};

/// An answer to one request.
#[derive(Debug)]
pub enum Answer {
    /// A response that is ready, and the status that it has over HTTP.
    Whole(StatusCode, Parts),
    /// Notifications, and the response as the last of them. Dropping it cancels the request.
    Stream(Pieces),
}

/// A part of an answer.
#[derive(Debug)]
pub enum Piece {
    /// Nothing yet, and it may take long: a stream begins, whose heartbeats keep the connection open.
    Begin,
    /// A notification.
    Notification(Bytes),
    /// The response.
    Response(StatusCode, Parts),
}

/// The parts of an answer as they come.
#[derive(Debug)]
pub struct Pieces {
    first: Option<Piece>,
    rest: mpsc::Receiver<Piece>,
    over: bool,
}

/// How many parts may wait for a client that reads slowly; then its request waits.
const AHEAD: usize = 16;

/// Returns where the parts of an answer go in, and where they come out.
pub(super) fn pieces() -> (mpsc::Sender<Piece>, mpsc::Receiver<Piece>) {
    mpsc::channel(AHEAD)
}

impl Answer {
    /// Waits until it is known whether the answer is one document or a stream. `None` where the request was given up.
    pub(super) async fn of(mut rest: mpsc::Receiver<Piece>) -> Option<Self> {
        let first = rest.recv().await;
        Self::beginning(first, rest)
    }

    /// Returns the answer that begins with `first`. `None` where the request was given up.
    pub(super) fn beginning(first: Option<Piece>, rest: mpsc::Receiver<Piece>) -> Option<Self> {
        Some(match first? {
            Piece::Response(status, document) => Self::Whole(status, document),
            first => Self::Stream(Pieces { first: Some(first), rest, over: false }),
        })
    }
}

impl Source for Pieces {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        loop {
            if self.over {
                return Poll::Ready(None);
            }
            let piece = match self.first.take() {
                Some(first) => Some(first),
                None => std::task::ready!(self.rest.poll_recv(cx)),
            };
            match piece {
                Some(Piece::Begin) => {}
                Some(Piece::Notification(document)) => return Poll::Ready(Some(StreamItem::Document(document))),
                Some(Piece::Response(_, document)) => {
                    self.over = true;
                    return Poll::Ready(Some(StreamItem::Document(document.into_bytes())));
                }
                None => self.over = true,
            }
        }
    }
}
