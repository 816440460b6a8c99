//! Requests whose bodies come in pieces.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{Method, Request};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    task::JoinHandle,
};

use crate::kit::{Client, soon};

type Piece = Result<Frame<Bytes>, Infallible>;
type Body = StreamBody<std::pin::Pin<Box<dyn Stream<Item = Piece> + Send>>>;

/// Sends such requests: over HTTP/1.1 each on a connection of its own, over HTTP/2 all on one.
pub(crate) struct Poster(Http<HttpConnector, Body>);

/// A request that has begun. Dropping it breaks it off.
pub(crate) struct Pieces {
    body: Sender<Piece>,
    answer: JoinHandle<String>,
}

impl Poster {
    pub(crate) fn new(http2: bool) -> Self {
        Self(Http::builder(TokioExecutor::new()).http2_only(http2).build_http())
    }

    /// Begins a POST of a client.
    pub(crate) fn begin(&self, client: &Client) -> Pieces {
        let (body, pieces) = channel(16);
        let next = |mut pieces: Receiver<Piece>| async { Some((pieces.recv().await?, pieces)) };
        let mut request = Request::new(StreamBody::new(Box::pin(stream::unfold(pieces, next)) as _));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = client.url().parse().unwrap();
        *request.headers_mut() = client.headers.clone();
        let answer = self.0.request(request);
        let answer = tokio::spawn(async {
            let body = answer.await.unwrap().into_body().collect().await.unwrap().to_bytes();
            String::from_utf8(body.into()).unwrap()
        });
        Pieces { body, answer }
    }
}

impl Pieces {
    /// Sends more of the body, in pieces of so many bytes.
    pub(crate) async fn send(&self, part: &Bytes, size: usize) {
        for from in (0..part.len()).step_by(size) {
            let piece = part.slice(from..part.len().min(from + size));
            // It may have been answered already.
            let _ = soon(self.body.send(Ok(Frame::data(piece)))).await;
        }
    }

    /// Returns whether it has been answered though its body has not ended.
    pub(crate) fn is_answered(&self) -> bool {
        self.answer.is_finished()
    }

    /// Ends the body, and returns the answer.
    pub(crate) fn end(self) -> JoinHandle<String> {
        self.answer
    }
}
