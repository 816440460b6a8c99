//! One session over HTTP+SSE, the transport of revision 2024-11-05. The client's messages go by POST to the endpoint
//! that the server names. Everything that the server sends comes on one stream, which cannot be resumed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
    vec,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode, Uri,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::Full;
use tokio::{sync::OnceCell, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    AnswerBody, SEND_TIMEOUT, Server,
    body::{MAX_UNASKED, is_stream, media_type, messages_in, next_chunk, read},
    endpoint::resolve,
    lost::speaks_of_no_session,
};
use crate::{
    upstream::{Carrier, Failure, Inbound, Link, MAX_MESSAGE, Outgoing, Sending},
    wire::{
        Kind, Message, Version,
        message::Outcome,
        received::Received,
        sse::{Decoder, Event},
    },
};

/// How long the server may take to send the `endpoint` event, connecting included.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(10);
/// How many answers that taskgate gives in place of the client may be on their way at once.
const MAX_REPLIES: usize = 64;

/// A session with a server of the older transport.
#[derive(Debug)]
pub(super) struct SseLink(Arc<SseSession>);

/// What the tasks of one session share.
#[derive(Debug)]
struct SseSession {
    server: Server,
    inbound: Inbound,
    /// Where messages go by POST, once the stream is open.
    endpoint: OnceCell<Uri>,
    /// Whether `initialize` was answered: before that there is no session to be forgotten.
    agreed: AtomicBool,
    /// Cancelled when the stream has ended, and with it the session, or when the server says that it has forgotten it.
    lost: CancellationToken,
    /// Cancelled when this side has ended the session.
    closed: CancellationToken,
}

impl SseLink {
    /// Creates a link that ends when `closed` is cancelled. The first message opens its stream.
    pub(super) fn new(server: Server, inbound: Inbound, closed: CancellationToken) -> Self {
        let (endpoint, agreed, lost) = (OnceCell::new(), AtomicBool::new(false), CancellationToken::new());
        Self(Arc::new(SseSession { server, inbound, endpoint, agreed, lost, closed }))
    }

    /// Opens the stream if it is not open.
    pub(super) async fn open(&self, headers: &HeaderMap) -> Result<(), Failure> {
        self.0.endpoint(headers).await.map(drop)
    }
}

impl Link for SseLink {
    fn request(&self, outgoing: Outgoing) -> Option<Carrier> {
        let session = Arc::clone(&self.0);
        Some(Box::pin(async move {
            let Outgoing { number, message, headers, .. } = outgoing;
            // The response comes on the stream.
            if let Err(failure) = session.post(message, headers).await {
                if matches!(failure, Failure::SessionLost) {
                    session.inbound.exchanges.note_refused(number);
                }
                session.inbound.exchanges.end(number, Err(failure));
            }
        }))
    }

    fn send(&self, message: Bytes, headers: HeaderMap) -> Sending<'_> {
        Box::pin(async move {
            let sending = tokio::time::timeout(SEND_TIMEOUT, self.0.send(message, headers));
            match self.0.closed.run_until_cancelled(sending).await {
                Some(sent) => sent.unwrap_or(Err(Failure::TimedOut(SEND_TIMEOUT))),
                None => Err(Failure::Abandoned),
            }
        })
    }

    fn listen(&self, _headers: HeaderMap) {}

    fn agreed(&self, _version: Version) {
        self.0.agreed.store(true, Ordering::Relaxed);
    }

    /// Its transport is older than the modern generation.
    fn set_modern(&self) {}

    fn lost(&self) -> &CancellationToken {
        &self.0.lost
    }

    fn close(&self, _headers: HeaderMap) {
        // The server learns of it by the end of the stream.
        self.0.closed.cancel();
        self.0.inbound.exchanges.abandon_all(&Failure::Abandoned);
    }
}

/// Returns the message if it is an answer.
pub(super) fn answer_in(message: &Bytes) -> Option<Message> {
    // What goes to a server has been read before.
    Message::parse(message.clone()).ok().filter(|message| message.kind() == Kind::Response)
}

impl SseSession {
    async fn send(self: &Arc<Self>, message: Bytes, headers: HeaderMap) -> Result<(), Failure> {
        // The calls that go on may have asked: an answer is for the server to refuse.
        if self.lost.is_cancelled() && answer_in(&message).is_none() {
            return Err(Failure::SessionLost);
        }
        let endpoint = self.endpoint(&headers).await?.clone();
        let sent = self.post_to(endpoint, message.clone(), headers).await;
        sent.map_err(|failure| self.not_sent(&message, failure))
    }

    /// Where the server has refused the answer to a question, as it has forgotten the session, ends the call that asked:
    /// its stream may stay open for ever. Ends all calls where that one is not known, and in a client's own session.
    fn not_sent(&self, message: &Bytes, failure: Failure) -> Failure {
        if !matches!(failure, Failure::SessionLost) {
            return failure;
        }
        let Some(answer) = answer_in(message) else { return failure };
        self.lost.cancel();
        let exchanges = &self.inbound.exchanges;
        match (exchanges.asked(answer.id_to_answer()), self.inbound.pooled) {
            (Some(number), true) => exchanges.end(number, Err(Failure::SessionLost)),
            // No call waits for the answer to a ping, and the pool gives no other result to a question of no call.
            (None, true) if matches!(answer.outcome(), Some((Outcome::Result, _))) => {}
            _ => exchanges.abandon_all(&Failure::SessionLost),
        }
        Failure::SessionLost
    }

    /// Returns whether a server says by its refusal of a message that it has forgotten the session.
    fn is_forgotten(&self, refusal: &Failure) -> bool {
        let is_unknown = matches!(refusal, Failure::Http(error) if error.status == StatusCode::NOT_FOUND);
        self.agreed.load(Ordering::Relaxed) && (is_unknown || speaks_of_no_session(refusal))
    }

    async fn post(self: &Arc<Self>, message: Bytes, headers: HeaderMap) -> Result<(), Failure> {
        if self.lost.is_cancelled() {
            return Err(Failure::SessionLost);
        }
        let endpoint = self.endpoint(&headers).await?.clone();
        self.post_to(endpoint, message, headers).await
    }

    async fn post_to(&self, endpoint: Uri, message: Bytes, mut headers: HeaderMap) -> Result<(), Failure> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let response = self.server.ask(request(Method::POST, endpoint, headers, message)).await?;
        if !response.status().is_success() {
            let is_unknown = response.status() == StatusCode::NOT_FOUND;
            let failure = self.server.refusal(response, MAX_UNASKED).await;
            if !self.is_forgotten(&failure) {
                return Err(failure);
            }
            self.lost.cancel();
            // Status 400 may mean something else.
            if is_unknown {
                // The stream may stay open for ever, and no answer comes there any more.
                self.inbound.exchanges.abandon_all(&Failure::SessionLost);
            }
            return Err(Failure::SessionLost);
        }
        // The body is not a message, but a connection that was read to the end can be used again.
        let _ = read(Bytes::new(), response.into_body(), MAX_UNASKED).await;
        Ok(())
    }

    async fn endpoint(self: &Arc<Self>, headers: &HeaderMap) -> Result<&Uri, Failure> {
        self.endpoint.get_or_try_init(|| self.open(headers.clone())).await
    }

    /// Opens the stream. Leaves it to a task of its own once its first event has named the endpoint.
    async fn open(self: &Arc<Self>, mut headers: HeaderMap) -> Result<Uri, Failure> {
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let opening = async {
            let request = request(Method::GET, self.server.uri.clone(), headers.clone(), Bytes::new());
            let response = self.server.ask(request).await?;
            if !response.status().is_success() {
                return Err(self.server.refusal(response, MAX_UNASKED).await);
            }
            let kind = media_type(response.headers());
            if !is_stream(kind) {
                return Err(Failure::BadAnswer(format!("the content type {kind:?} and not an event stream")));
            }
            let mut stream = EventStream::new(response.into_body());
            match stream.next().await? {
                Some(event) if event.name == "endpoint" => Ok((stream, self.named(&event.data)?)),
                Some(_) => Err(Failure::BadAnswer("its stream does not begin with an endpoint event".to_owned())),
                None => Err(Failure::BadAnswer("its stream ended before an endpoint event".to_owned())),
            }
        };
        let opened = tokio::time::timeout(ENDPOINT_TIMEOUT, opening).await;
        let (stream, endpoint) = opened.unwrap_or_else(|_| {
            let limit = humantime::format_duration(ENDPOINT_TIMEOUT);
            Err(Failure::BadAnswer(format!("no endpoint event came within {limit}")))
        })?;
        let (session, to) = (Arc::clone(self), endpoint.clone());
        tokio::spawn(async move {
            let closed = session.closed.clone();
            closed.run_until_cancelled(session.read(stream, &to, &headers)).await;
        });
        Ok(endpoint)
    }

    fn named(&self, data: &[u8]) -> Result<Uri, Failure> {
        resolve(&self.server.uri, &String::from_utf8_lossy(data)).map_err(Failure::BadAnswer)
    }

    /// Delivers messages until the stream ends, which ends the session. Never waits for a client.
    async fn read(self: &Arc<Self>, mut stream: EventStream, endpoint: &Uri, headers: &HeaderMap) {
        let mut replies = JoinSet::new();
        let why = loop {
            match stream.next().await {
                Ok(Some(event)) => {
                    let deliver = |received| match received {
                        Received::Message(message) => self.inbound.deliver_unaddressed(message),
                        broken @ Received::Broken(_) => self.inbound.take(broken, None),
                    };
                    for reply in messages_in(&event).into_iter().filter_map(deliver) {
                        while replies.try_join_next().is_some() {}
                        // A server that takes no answers gets none.
                        if replies.len() < MAX_REPLIES {
                            let (session, endpoint, headers) = (Arc::clone(self), endpoint.clone(), headers.clone());
                            let sending = async move {
                                let sent = session.post_to(endpoint, reply.clone(), headers).await;
                                sent.map_err(|failure| session.not_sent(&reply, failure))
                            };
                            replies.spawn(tokio::time::timeout(SEND_TIMEOUT, sending));
                        }
                    }
                }
                Ok(None) => break "has ended".to_owned(),
                Err(Failure::Incomplete(why)) => break format!("broke ({why})"),
                Err(_) => break format!("had an event of more than {MAX_MESSAGE} bytes"),
            }
        };
        self.lost.cancel();
        let why = format!("its event stream {why}, which ends the session");
        self.inbound.exchanges.abandon_all(&Failure::Incomplete(why));
    }
}

fn request(method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

/// Reads a body as events.
struct EventStream {
    body: AnswerBody,
    decoder: Decoder,
    /// Events that came with the last part of the body.
    ready: vec::IntoIter<Event>,
}

impl EventStream {
    fn new(body: AnswerBody) -> Self {
        Self { body, decoder: Decoder::new(MAX_MESSAGE), ready: Vec::new().into_iter() }
    }

    /// Returns the next event; `None` at the end.
    async fn next(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(event) = self.ready.next() {
                return Ok(Some(event));
            }
            let Some(chunk) = next_chunk(&mut self.body).await? else { return Ok(None) };
            let mut events = Vec::new();
            self.decoder.push(&chunk, &mut events).map_err(|_| Failure::TooLarge(MAX_MESSAGE))?;
            self.ready = events.into_iter();
        }
    }
}
