//! One session over Streamable HTTP: its exchanges, the resumption of broken answers, the GET stream and the end.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE},
};
use http_body_util::Full;
use hyper::body::Body;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    AnswerBody, PROTOCOL_VERSION, SEND_TIMEOUT, SESSION_ID, Server,
    body::{MAX_ERROR, MAX_UNASKED, is_stream, media_type, messages_in, next_chunk, read, rpc_error_in},
    session_id,
    sse::{SseLink, answer_in},
};
use crate::{
    upstream::{Carrier, Failure, Inbound, Link, Outgoing, Resumption, SavedLink, Sending, UpstreamResponse},
    wire::{
        Message, Version,
        received::{Received, last_mistake, receive},
        sse::Decoder,
    },
};

/// From this size on, in bytes, an answer is passed on while it arrives.
const RELAY_FROM: u64 = 64 * 1024;
/// How many answers to requests of the upstream taskgate sends at once in one session.
const MAX_REPLIES: usize = 16;
/// How long an upstream may take to end a session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why an exchange fails whose answer ends without a response.
pub(super) const NO_RESPONSE: &str = "the answer has no response to the request";

/// A session over Streamable HTTP.
#[derive(Debug)]
pub(in crate::upstream) struct HttpLink(Arc<HttpSession>);

/// What the tasks of one session share.
#[derive(Debug)]
pub(super) struct HttpSession {
    pub(super) server: Server,
    pub(super) inbound: Inbound,
    /// The upstream's session id, from the answer to `initialize`, if the upstream has sessions.
    id: OnceLock<HeaderValue>,
    /// The revision that was agreed with the upstream.
    version: OnceLock<Version>,
    /// Whether the server is of the modern generation, which has no sessions, resumes nothing, and takes only requests.
    pub(super) modern: AtomicBool,
    /// Cancelled when the upstream has ended the session.
    pub(super) lost: CancellationToken,
    /// Whether a task keeps the GET stream open.
    pub(super) listening: AtomicBool,
    /// Cancelled when this side has ended the session.
    closed: CancellationToken,
    /// One permit for each answer to a request of the upstream that may be on its way at once.
    replies: Arc<Semaphore>,
}

/// An answer that is being read.
pub(super) struct StreamedAnswer<'a> {
    pub(super) number: u64,
    /// The largest event to take, in bytes.
    pub(super) limit: usize,
    pub(super) headers: &'a HeaderMap,
}

impl HttpLink {
    pub(super) fn new(server: Server, inbound: Inbound) -> Self {
        Self(Arc::new(HttpSession {
            server,
            inbound,
            id: OnceLock::new(),
            version: OnceLock::new(),
            modern: AtomicBool::new(false),
            lost: CancellationToken::new(),
            listening: AtomicBool::new(false),
            closed: CancellationToken::new(),
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
        }))
    }

    /// Returns a link that goes on with a session; `None` if its id cannot be sent.
    pub(super) fn restored(server: Server, inbound: Inbound, saved: &SavedLink) -> Option<Self> {
        let link = Self::new(server, inbound);
        if let Some(id) = &saved.session {
            link.0.id.set(HeaderValue::from_str(id).ok()?).ok()?;
        }
        link.0.version.set(saved.version).ok()?;
        Some(link)
    }

    /// Creates a link over HTTP+SSE to the same server. It is closed with this one.
    pub(super) fn over_sse(&self) -> SseLink {
        SseLink::new(self.0.server.clone(), self.0.inbound.clone(), self.0.closed.clone())
    }

    /// Carries one exchange from its request to the end of its answer, or to the HTTP error that refuses it.
    pub(super) async fn exchange(&self, outgoing: Outgoing) -> Result<(), Failure> {
        self.0.exchange(outgoing).await
    }

    /// Ends the exchange that was carried. Has no effect if the response has already ended it.
    pub(super) fn finish(&self, number: u64, ended: Result<(), Failure>) {
        self.0.finish(number, ended);
    }
}

impl Link for HttpLink {
    fn request(&self, outgoing: Outgoing) -> Option<Carrier> {
        let session = Arc::clone(&self.0);
        let number = outgoing.number;
        Some(Box::pin(async move {
            let ended = session.exchange(outgoing).await;
            session.finish(number, ended);
        }))
    }

    fn resume(&self, resumption: Resumption) -> Result<Carrier, Failure> {
        let (session, number) = (Arc::clone(&self.0), resumption.number);
        Ok(Box::pin(async move {
            let ended = session.resume(resumption).await;
            session.finish(number, ended);
        }))
    }

    fn send(&self, message: Bytes, headers: HeaderMap) -> Sending<'_> {
        Box::pin(self.0.send(message, headers))
    }

    fn listen(&self, headers: HeaderMap) {
        // Pairs with the store that gives the stream up.
        if self.0.listening.swap(true, Ordering::AcqRel) {
            return;
        }
        let session = Arc::clone(&self.0);
        tokio::spawn(async move {
            let closed = session.closed.clone();
            // Boxed, or the task would have room for it twice while the stream is open.
            closed.run_until_cancelled(Box::pin(session.listen(headers))).await;
        });
    }

    fn agreed(&self, version: Version) {
        let _ = self.0.version.set(version);
    }

    fn set_modern(&self) {
        self.0.modern.store(true, Ordering::Relaxed);
    }

    fn lost(&self) -> &CancellationToken {
        &self.0.lost
    }

    fn saved(&self) -> Option<SavedLink> {
        let is_over = self.0.lost.is_cancelled() || self.0.closed.is_cancelled();
        if is_over || self.0.modern.load(Ordering::Relaxed) {
            return None;
        }
        let session = self.0.id.get().map(|id| id.to_str().map(str::to_owned)).transpose().ok()?;
        Some(SavedLink { address: self.0.server.address.to_string(), session, version: *self.0.version.get()? })
    }

    fn leave(&self) {
        self.0.closed.cancel();
        self.0.inbound.exchanges.abandon_all(&Failure::Abandoned);
    }

    fn close(&self, headers: HeaderMap) {
        if self.0.closed.is_cancelled() {
            return;
        }
        self.leave();
        if self.0.session().is_none() || self.0.lost.is_cancelled() {
            return;
        }
        let session = Arc::clone(&self.0);
        self.0.server.closings.spawn(async move {
            let request = session.request(Method::DELETE, headers, Bytes::new());
            // An upstream that refuses the DELETE ends the session by itself.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, session.server.request(request)).await;
        });
    }
}

impl HttpSession {
    async fn send(&self, message: Bytes, headers: HeaderMap) -> Result<(), Failure> {
        if self.modern.load(Ordering::Relaxed) {
            // A request is cancelled by closing its stream, and there is nothing else to send ("Sending Messages").
            return Ok(());
        }
        let sending = tokio::time::timeout(SEND_TIMEOUT, async {
            let response = self.post(message.clone(), headers).await?;
            if response.status().is_success() {
                return Ok(());
            }
            let Some(answer) = answer_in(&message) else { return Err(self.refusal(response, MAX_UNASKED).await) };
            let failure = self.refusal_of_request(response, MAX_UNASKED).await;
            self.not_sent(&answer, &failure);
            Err(failure)
        });
        match self.closed.run_until_cancelled(sending).await {
            Some(sent) => sent.unwrap_or(Err(Failure::TimedOut(SEND_TIMEOUT))),
            None => Err(Failure::Abandoned),
        }
    }

    /// Ends the exchange that waits for an answer of its client, where the session that should take it is lost.
    fn not_sent(&self, answer: &Message, failure: &Failure) {
        let asked = self.inbound.exchanges.asked(answer.id_to_answer());
        if let (Some(number), Failure::SessionLost) = (asked, failure) {
            self.inbound.exchanges.end(number, Err(Failure::SessionLost));
        }
    }

    /// Delivers what came with the answer to exchange `carrier`, or with none. Sends back the answers that have to go
    /// back at once.
    async fn deliver(self: &Arc<Self>, all: Vec<Received>, carrier: Option<u64>, headers: &HeaderMap) {
        for received in all {
            match (carrier, received.request()) {
                (Some(number), Some(request)) => self.inbound.exchanges.room_for(number, request).await,
                // One that comes while there is no call is of none.
                (None, Some(request))
                    if request.method().asks_client() && self.inbound.exchanges.newest(None).is_some() =>
                {
                    self.server.note_asks_apart();
                }
                _ => {}
            }
            if let Some(reply) = self.inbound.take(received, carrier) {
                let (session, headers) = (Arc::clone(self), headers.clone());
                // A server that asks faster than it takes the answers has to wait.
                let Ok(turn) = Arc::clone(&self.replies).acquire_owned().await else { return };
                tokio::spawn(async move {
                    let _ = session.send(reply, headers).await;
                    drop(turn);
                });
            }
        }
    }

    async fn exchange(self: &Arc<Self>, outgoing: Outgoing) -> Result<(), Failure> {
        let Outgoing { number, message, headers, max_answer, relay } = outgoing;
        let response = self.post(message, headers.clone()).await?;
        if !response.status().is_success() {
            let failure = Box::pin(self.refusal_of_request(response, max_answer.min(MAX_ERROR))).await;
            if matches!(failure, Failure::SessionLost) {
                self.inbound.exchanges.note_refused(number);
            }
            return Err(failure);
        }
        let modern = self.modern.load(Ordering::Relaxed);
        if let Some(id) = response.headers().get(SESSION_ID).filter(|_| !modern) {
            let id = session_id(id)?;
            self.id.get_or_init(|| id);
        }
        if let Some(encoding) = response.headers().get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
            return Err(Failure::BadAnswer(format!(
                "it has the content encoding {encoding:?}, which was not asked for"
            )));
        }
        match media_type(response.headers()) {
            json if json.eq_ignore_ascii_case("application/json") => {
                let mut body = response.into_body();
                let mut first = Bytes::new();
                if relay && body.size_hint().lower() >= RELAY_FROM {
                    first = next_chunk(&mut body).await?.unwrap_or_default();
                    if first.trim_ascii_start().starts_with(b"{") {
                        self.inbound.exchanges.end(number, Ok(UpstreamResponse::Large { first, rest: body }));
                        return Ok(());
                    }
                }
                let all = receive(&read(first, body, max_answer).await?);
                let mistake = last_mistake(&all);
                self.deliver(all, Some(number), &headers).await;
                // Has no effect if the response has come too.
                mistake.map_or(Ok(()), |why| Err(Failure::BadAnswer(why)))
            }
            stream if is_stream(stream) => {
                self.inbound.exchanges.note_stream(number);
                let answer = StreamedAnswer { number, limit: max_answer, headers: &headers };
                Box::pin(self.answer(answer, response.into_body())).await
            }
            other => {
                let status = response.status();
                Err(Failure::BadAnswer(format!("HTTP {status} with the content type {other:?}")))
            }
        }
    }

    fn finish(&self, number: u64, ended: Result<(), Failure>) {
        let failure = ended.err().unwrap_or_else(|| Failure::Incomplete(NO_RESPONSE.to_owned()));
        if let Failure::Http(error) = &failure {
            self.inbound.exchanges.note_status(number, error.status);
            // It may be the word of a gateway, whatever id it has.
            self.inbound.exchanges.note_failure(number, &failure);
        }
        let response = rpc_error_in(&failure);
        self.inbound.exchanges.end(number, response.map(UpstreamResponse::Whole).ok_or(failure));
    }

    async fn post(&self, message: Bytes, mut headers: HeaderMap) -> Result<Response<AnswerBody>, Failure> {
        // Besides these two the session, the revision, the host and the length.
        headers.reserve(6);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        self.server.ask(self.request(Method::POST, headers, message)).await
    }

    /// Returns the id of the session. A modern server has none, whatever it said before that was known.
    pub(super) fn session(&self) -> Option<&HeaderValue> {
        self.id.get().filter(|_| !self.modern.load(Ordering::Relaxed))
    }

    fn request(&self, method: Method, headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.server.uri.clone();
        *request.headers_mut() = headers;
        if let Some(id) = self.session() {
            request.headers_mut().insert(SESSION_ID, id.clone());
        }
        if let Some(version) = self.version.get() {
            request.headers_mut().insert(PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()));
        }
        request
    }

    pub(super) async fn get(&self, mut headers: HeaderMap) -> Result<Response<AnswerBody>, Failure> {
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        self.server.ask(self.request(Method::GET, headers, Bytes::new())).await
    }

    /// Delivers the messages of one stream until it ends: of the answer to exchange `carrier`, or of the GET stream.
    pub(super) async fn events(
        self: &Arc<Self>,
        mut body: AnswerBody,
        limit: usize,
        carrier: Option<u64>,
        headers: &HeaderMap,
        decoder: &mut Decoder,
    ) -> Result<(), Failure> {
        while let Some(chunk) = next_chunk(&mut body).await? {
            self.take_chunk(chunk, limit, carrier, headers, decoder).await?;
        }
        Ok(())
    }

    /// Delivers the messages of one part of a stream. Returns how many there were.
    pub(super) async fn take_chunk(
        self: &Arc<Self>,
        chunk: Bytes,
        limit: usize,
        carrier: Option<u64>,
        headers: &HeaderMap,
        decoder: &mut Decoder,
    ) -> Result<usize, Failure> {
        let (mut events, mut messages) = (Vec::new(), 0);
        decoder.push(&chunk, &mut events).map_err(|_| Failure::TooLarge(limit))?;
        drop(chunk);
        for event in events {
            let received = messages_in(&event);
            messages += received.len();
            // Boxed: a stream is mostly silent.
            Box::pin(self.deliver(received, carrier, headers)).await;
            if let Some(number) = carrier {
                self.inbound.exchanges.heard(number, event.id.as_ref());
            }
        }
        if let Some(number) = carrier {
            // An event without data has an id too.
            self.inbound.exchanges.heard(number, decoder.last_id());
        }
        Ok(messages)
    }
}
