//! The requests that wait for the test's answer, and the streams that it writes.

use std::io;

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{seen::Seen, soon, upstream::Answers};

pub(super) type Body = BoxBody<Bytes, io::Error>;

/// A request that waits for the test's answer. Dropping it breaks its connection.
pub(crate) struct Held {
    pub(crate) seen: Seen,
    pub(super) reply: oneshot::Sender<Response<Body>>,
    pub(super) answers: Answers,
    pub(super) string_ids: bool,
}

impl Held {
    /// Answers with a result, raw JSON, in the server's usual form.
    pub(crate) fn result(self, result: &str) {
        self.members(&format!(r#""result":{result}"#));
    }

    /// Answers with an error, raw JSON, in the server's usual form.
    pub(crate) fn error(self, error: &str) {
        self.members(&format!(r#""error":{error}"#));
    }

    fn members(self, members: &str) {
        let document = self.response(members);
        match self.answers {
            Answers::Json => self.json(&document),
            Answers::Sse => self.status(200, &[("content-type", "text/event-stream")], &frame(&document)),
        }
    }

    /// Returns the response to this request with these members, as raw JSON.
    pub(crate) fn response(&self, members: &str) -> String {
        let id = if self.string_ids { format!("\"{}\"", self.seen.id()) } else { self.seen.id() };
        format!(r#"{{"jsonrpc":"2.0","id":{id},{members}}}"#)
    }

    /// Answers with a JSON body, byte for byte.
    pub(crate) fn json(self, body: &str) {
        self.status(200, &[("content-type", "application/json")], body);
    }

    /// Answers with any status, headers and body.
    pub(crate) fn status(self, status: u16, headers: &[(&str, &str)], body: &str) {
        let mut response = Response::new(full(body));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            response.headers_mut().append(name, value.parse().unwrap());
        }
        // The client may have disconnected.
        let _ = self.reply.send(response);
    }

    /// Answers with a stream that the test writes.
    pub(crate) fn sse(self) -> Sse {
        let (frames, received) = mpsc::channel(64);
        let stream = stream::unfold(received, |mut received| async { Some((received.recv().await?, received)) });
        let mut response = Response::new(BodyExt::boxed(StreamBody::new(stream)));
        response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
        let Self { seen, reply, string_ids, .. } = self;
        let _ = reply.send(response);
        Sse { seen, frames, string_ids }
    }

    /// Resolves when the other side has abandoned the request.
    #[track_caller]
    pub(crate) fn abandoned(mut self) -> impl Future<Output = ()> {
        soon(async move { self.reply.closed().await })
    }

    /// Returns whether the other side still waits.
    pub(crate) fn is_open(&self) -> bool {
        !self.reply.is_closed()
    }
}

/// A stream towards taskgate. Dropping it ends the stream.
pub(crate) struct Sse {
    pub(crate) seen: Seen,
    frames: mpsc::Sender<Result<Frame<Bytes>, io::Error>>,
    string_ids: bool,
}

impl Sse {
    /// Sends a JSON document as an event.
    pub(crate) async fn event(&self, document: &str) {
        self.raw(&frame(document)).await;
    }

    /// Sends bytes as they are.
    pub(crate) async fn raw(&self, text: &str) {
        self.frames.send(Ok(Frame::data(Bytes::from(text.to_owned())))).await.expect("taskgate reads the stream");
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: Value) {
        self.event(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()).await;
    }

    /// Sends progress under the token that came with the request.
    pub(crate) async fn progress(&self, progress: u32) {
        let token = self.seen.json()["params"]["_meta"]["progressToken"].take();
        self.notify("notifications/progress", json!({ "progressToken": token, "progress": progress })).await;
    }

    /// Sends the response, raw JSON for its result, and ends the stream.
    pub(crate) async fn result(self, result: &str) {
        let id = if self.string_ids { format!("\"{}\"", self.seen.id()) } else { self.seen.id() };
        self.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)).await;
    }

    /// Breaks the connection.
    pub(crate) async fn cut(self) {
        let _ = self.frames.send(Err(io::Error::other("cut by the test"))).await;
    }

    /// Resolves when the other side has abandoned the stream.
    #[track_caller]
    pub(crate) fn abandoned(self) -> impl Future<Output = ()> {
        soon(async move { self.frames.closed().await })
    }
}

pub(super) fn frame(document: &str) -> String {
    format!("event: message\ndata: {document}\n\n")
}

fn full(body: &str) -> Body {
    Full::new(Bytes::from(body.to_owned())).map_err(|never| match never {}).boxed()
}

pub(super) fn whole(status: StatusCode, content_type: &'static str, body: &str) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", content_type.parse().unwrap());
    response
}

/// Returns an answer that breaks its connection before the first byte of the body.
pub(super) fn broken() -> Response<Body> {
    let error = stream::iter([Err(io::Error::other("dropped by the test"))]);
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(error)));
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}
