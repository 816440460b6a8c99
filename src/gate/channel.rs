//! A client on one channel, as over stdio and over the 2024-11-05 HTTP+SSE transport: all that it sends comes in one after
//! the other, and all that it is sent goes out one after the other. The session lives as long as the channel.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Gate,
    answer::{Answer, Whole},
    refuse::Refusal,
};
use crate::{
    route::is_modern,
    session::{Session, SessionGuard, Source, StreamItem},
    upstream::{MAX_IN_FLIGHT, TooMany, Upstream, stdio::TIME_TO_END},
    wire::{Kind, Message, Method, RpcError, object::Members, response::pong},
};

/// How many messages may wait in either direction; the outboxes behind are bounded in bytes.
const QUEUE: usize = 16;
/// How long requests that are under way may still be answered once the client has closed its end.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// Clients give `taskgate stdio` 2 s after they have closed its stdin, and 2 s more after SIGTERM. Its server is gone before.
const _: () = assert!(LAST_ANSWERS.as_millis() + 2 * TIME_TO_END.as_millis() < 4000);

/// What a client sends.
#[derive(Debug)]
pub(super) struct Incoming {
    /// The message, or why it is none.
    pub message: Result<Message, RpcError>,
    /// The end-to-end headers that came with it.
    pub headers: HeaderMap,
}

/// The client's end of a channel.
#[derive(Debug)]
pub(super) struct Ends {
    /// What the client sends. Closing it ends the channel.
    pub input: mpsc::Sender<Incoming>,
    /// What the client gets; it ends when the channel has ended.
    pub output: mpsc::Receiver<Bytes>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
type Opening = Pin<Box<dyn Future<Output = (Box<str>, Result<(Arc<Session>, Answer), Whole>)> + Send>>;

/// One client of one upstream.
struct Channel {
    gate: Arc<Gate>,
    upstream: Arc<Upstream>,
    principal: Option<Arc<str>>,
    session: Option<SessionGuard>,
    output: mpsc::Sender<Bytes>,
    /// The handshake, as long as it lasts.
    opening: Option<Opening>,
    /// What has to be done before the next message is taken in: what expects no answer goes upstream in its order.
    now: Option<Work>,
    /// Answers under way.
    answers: FuturesUnordered<Work>,
    /// What the client has asked and not cancelled.
    asked: Asked,
    /// Cancelled when the client has closed its end, and nothing is waited for that it does not want.
    closing: CancellationToken,
    /// What the server sends of itself.
    listening: Option<Work>,
    /// No session has come about, though the client wanted one.
    refused: bool,
    /// When the channel ends if the client does not end it.
    lasts: Lasts,
}

/// As long as what a channel lasts whose client stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    /// The session, or its tasks.
    Session,
    /// The process of the server, which has the one session, or its tasks.
    Server,
    /// The client: where the session is lost, it may open another one.
    Client,
}

/// What cancels each request under way, by its raw id.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<HashMap<Box<str>, CancellationToken>>>);

impl Asked {
    fn begin(&self, id: &str) -> CancellationToken {
        let token = CancellationToken::new();
        self.0.lock().insert(id.into(), token.clone());
        token
    }

    fn end(&self, id: &str) {
        self.0.lock().remove(id);
    }

    /// Cancels the request that a `notifications/cancelled` names.
    fn cancel(&self, cancelled: &Message) {
        let params = cancelled.params().and_then(|params| Members::parse(params).ok());
        if let Some(token) = params.and_then(|params| self.0.lock().remove(params.get("requestId")?)) {
            token.cancel();
        }
    }
}

impl Gate {
    /// Opens a channel to an upstream, and the work that serves it until the client closes it, or does not read any more,
    /// or the session has ended and no task is left in it to be asked for. The work tells whether the client got the
    /// session that it wanted, if it wanted one.
    pub(super) fn channel(
        self: &Arc<Self>,
        upstream: Arc<Upstream>,
        principal: Option<Arc<str>>,
        lasts: Lasts,
    ) -> (Ends, impl Future<Output = bool> + Send + use<>) {
        let (input, incoming) = mpsc::channel(QUEUE);
        let (output, outgoing) = mpsc::channel(QUEUE);
        let channel = Channel {
            gate: Arc::clone(self),
            upstream,
            principal,
            session: None,
            output,
            opening: None,
            now: None,
            answers: FuturesUnordered::new(),
            asked: Asked::default(),
            closing: CancellationToken::new(),
            listening: None,
            refused: false,
            lasts,
        };
        (Ends { input, output: outgoing }, channel.serve(incoming))
    }
}

impl Channel {
    async fn serve(mut self, mut incoming: mpsc::Receiver<Incoming>) -> bool {
        let (mut waiting, mut open) = (VecDeque::new(), true);
        loop {
            // A request is on its way before the next message is taken in, which may cancel it.
            while self.answers.next().now_or_never().flatten().is_some() {}
            if self.opening.is_none() && self.now.is_none() {
                match waiting.pop_front() {
                    Some(next) => {
                        self.take(next);
                        continue;
                    }
                    None if !open => break,
                    None if self.has_no_server() => {
                        tracing::error!("the server ended before it had answered initialize; taskgate ends with it");
                        break;
                    }
                    None => {}
                }
            }
            tokio::select! {
                Some(()) = self.answers.next() => {}
                () = done(&mut self.listening) => self.listening = None,
                () = done(&mut self.now) => self.now = None,
                (id, opened) = handshake(&mut self.opening) => self.opened(&id, opened),
                () = self.output.closed() => break,
                () = self.gate.sessions.closing() => break,
                () = over(&self.gate, self.session.as_ref(), self.lasts) => break,
                next = incoming.recv(), if open && waiting.len() < QUEUE => match next {
                    Some(next) => waiting.push_back(next),
                    None => open = false,
                },
            }
        }
        self.closing.cancel();
        let answered = async { while self.answers.next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
        if let Some(session) = self.session.take() {
            self.gate.end(session.get(), HeaderMap::new(), "client").await;
        }
        !self.refused
    }

    fn take(&mut self, incoming: Incoming) {
        let Incoming { message, headers } = incoming;
        let message = match message {
            Ok(message) => message,
            Err(error) => return self.say(error.to_response(None)),
        };
        let id: Box<str> = message.id_to_answer().into();
        if is_modern(&message) {
            return self.say(Refusal::modern().answering(Some(&id)).into_document(&self.gate.observer));
        }
        let session = self.session.as_ref().map(|session| Arc::clone(session.get()));
        let anew = message.kind() == Kind::Request && message.method() == Method::Initialize;
        let Some(session) = session.filter(|session| !(anew && session.is_lost())) else {
            return match (message.kind(), message.method()) {
                (Kind::Request, Method::Initialize) => self.open(id, message, headers),
                (Kind::Request, Method::Ping) => self.say(pong(&id)),
                (Kind::Request, _) => {
                    let error = RpcError::invalid_request("Invalid request: start with initialize");
                    self.say(error.to_response(Some(&id)));
                }
                (Kind::Notification | Kind::Response, _) => {}
            };
        };
        let (gate, output) = (Arc::clone(&self.gate), self.output.clone());
        if message.kind() == Kind::Request {
            if self.answers.len() >= MAX_IN_FLIGHT {
                return self.say(RpcError::internal(TooMany.to_string()).to_response(Some(&id)));
            }
            if output.capacity() == 0 {
                // Answers wait here, with nothing to bound their bytes: a client that reads none must not go on to ask.
                let output = output.clone();
                self.now = Some(Box::pin(async move { drop(output.reserve().await) }));
            }
            let waits_for_task = message.method() == Method::TasksResult;
            let (asked, cancelled, closing) = (self.asked.clone(), self.asked.begin(&id), self.closing.clone());
            self.answers.push(Box::pin(async move {
                let answering = async {
                    match gate.request(&session, message, headers, false).await {
                        Ok(answer) => deliver(answer, &id, &output).await,
                        Err(refusal) => {
                            let refused = refusal.answering(Some(&id)).into_document(&gate.observer);
                            drop(output.send(refused).await);
                        }
                    }
                };
                let unwanted = async {
                    cancelled.cancelled().await;
                    // The server may answer a call all the same, and then the client gets that.
                    if !waits_for_task {
                        closing.cancelled().await;
                    }
                };
                tokio::select! {
                    () = answering => {}
                    () = unwanted => {}
                }
                asked.end(&id);
            }));
        } else {
            if message.method() == Method::Cancelled {
                self.asked.cancel(&message);
            }
            self.now = Some(Box::pin(async move {
                // What expects no answer gets none, but it is counted.
                if let Err(refusal) = gate.accept(&session, message, headers).await {
                    refusal.emit(&gate.observer);
                }
            }));
        }
    }

    fn open(&mut self, id: Box<str>, initialize: Message, headers: HeaderMap) {
        let (gate, upstream) = (Arc::clone(&self.gate), Arc::clone(&self.upstream));
        let principal = self.principal.clone();
        // The tasks of a session that is lost stay the client's.
        let previous = self.session.as_ref().map(|session| session.get().caller.owner.clone());
        self.opening = Some(Box::pin(async move {
            let opened = gate.open_again(&upstream, (principal, previous), &initialize, headers).await;
            (id, opened)
        }));
    }

    /// Answers `initialize`, and listens to what the server sends of itself.
    fn opened(&mut self, id: &str, opened: Result<(Arc<Session>, Answer), Whole>) {
        self.opening = None;
        let (output, id) = (self.output.clone(), id.to_owned());
        let answer = match opened {
            Ok((session, answer)) => {
                self.listening = Some(Box::pin(pump(self.gate.legacy.get_stream(&session), output.clone())));
                if let Some(lost) = self.session.replace(session.hold()) {
                    self.gate.sessions.take(lost.get().id, "replaced");
                    // Its calls have failed with it; its tasks are those of the new one.
                    lost.get().end(HeaderMap::new());
                    self.gate.engine.session_ended(lost.get());
                }
                self.refused = false;
                answer
            }
            Err(whole) => {
                self.refused = true;
                whole.into()
            }
        };
        self.now = Some(Box::pin(async move { deliver(answer, &id, &output).await }));
    }

    /// Whether the server's process has ended without having given the client a session.
    fn has_no_server(&self) -> bool {
        let exit_status = || self.upstream.server.exit_status();
        self.lasts == Lasts::Server && self.refused && self.session.is_none() && exit_status().is_some()
    }

    fn say(&mut self, document: impl Into<Bytes>) {
        let (output, document) = (self.output.clone(), document.into());
        self.now = Some(Box::pin(async move { drop(output.send(document).await) }));
    }
}

/// Resolves when a session has ended upstream, and no task in it is left to be asked for.
async fn over(gate: &Gate, session: Option<&SessionGuard>, lasts: Lasts) {
    let Some(session) = session.filter(|_| lasts != Lasts::Client) else { return std::future::pending().await };
    let session = session.get();
    session.upstream_session.lost().await;
    loop {
        gate.engine.without_tasks(&session.caller.owner).await;
        if gate.engine.release(session, || true).await {
            return;
        }
    }
}

async fn done(work: &mut Option<Work>) {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

async fn handshake(opening: &mut Option<Opening>) -> (Box<str>, Result<(Arc<Session>, Answer), Whole>) {
    match opening {
        Some(opening) => opening.await,
        None => std::future::pending().await,
    }
}

async fn deliver(answer: Answer, id: &str, output: &mpsc::Sender<Bytes>) {
    let document = match answer {
        Answer::Whole(Whole::Document(document)) => document.into_bytes(),
        Answer::Whole(Whole::Unauthorized(error)) => {
            let why = format!("the MCP server behind taskgate answered HTTP {}", error.status);
            RpcError::internal(why).to_response(Some(id))
        }
        Answer::Acknowledgement(document, start) => {
            let sent = output.send(document.into_bytes()).await;
            // The call starts behind its acknowledgement.
            drop(start);
            return drop(sent);
        }
        Answer::Stream(source, _) => return pump(source, output.clone()).await,
        Answer::Large(..) => {
            let error = RpcError::internal("answers are not relayed where they go one after the other");
            error.to_response(Some(id))
        }
    };
    let _ = output.send(document).await;
}

/// Sends all that a source has.
async fn pump(mut source: Box<dyn Source>, output: mpsc::Sender<Bytes>) {
    source.attached(false);
    while let Some(next) = std::future::poll_fn(|cx| source.poll_next(cx)).await {
        match next {
            StreamItem::Document(document) | StreamItem::Question(_, document) => {
                if output.send(document).await.is_err() {
                    return;
                }
            }
            // The channel stays, whatever the upstream does.
            StreamItem::Pause(_) => {}
        }
    }
}
