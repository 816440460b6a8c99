//! A client on one channel, as over stdio and over the 2024-11-05 HTTP+SSE transport: all that it sends comes in one
//! after the other, and all that it is sent goes out one after the other. The session ends with the channel.

mod in_flight;
mod modern;
mod old_sse;
mod output;
mod stdio;

use std::{collections::VecDeque, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use http::HeaderMap;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use old_sse::OldStreams;
pub(super) use old_sse::{InputRoom, OldStream};

use in_flight::InFlight;
pub(super) use output::Outgoing;
use output::Output;

use crate::{
    dialect::{
        modern::{LastCaller, Modern},
        recognise::{is_modern, lacks_revision},
        tools::waits_for_jobs,
    },
    gate::{
        Dispatcher, Lifecycle, Services,
        delivery::{Carrier, Delivery, Whole},
        lifecycle::NewClient,
        refuse::Refusal,
    },
    observe::Observer,
    session::{Session, SessionGuard},
    upstream::{Generation, MAX_IN_FLIGHT, TooMany, Upstream, stdio::TIME_TO_END},
    wire::{Kind, Message, Method, RpcError, response::pong},
};

/// How many messages may wait in either direction; the outboxes behind are bounded in bytes.
const QUEUE: usize = 16;
/// How long requests that are under way may still be answered once the client has closed its end.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// Clients give `taskgate stdio` 2 s after they have closed its stdin, and 2 s more after SIGTERM. Its server is gone
/// before.
const _: () = assert!(LAST_ANSWERS.as_millis() + 2 * TIME_TO_END.as_millis() < 4000);

/// What a client sends.
#[derive(Debug)]
pub(super) struct ClientMessage {
    /// The message, or the response that says why it is malformed.
    pub message: Result<Message, Bytes>,
    /// The end-to-end headers that came with it.
    pub headers: HeaderMap,
    /// What it takes while it waits, where that is counted.
    pub room: Option<InputRoom>,
}

/// The client's end of a channel.
#[derive(Debug)]
pub(super) struct ClientEnd {
    /// What the client sends. Closing it ends the channel.
    pub input: mpsc::Sender<ClientMessage>,
    /// What the client gets; it ends when the channel has ended.
    pub output: mpsc::Receiver<Outgoing>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
type OpeningSession = Pin<Box<dyn Future<Output = (Box<str>, Result<(Arc<Session>, Delivery), Whole>)> + Send>>;

/// The front for clients on one channel.
#[derive(Clone, Debug)]
pub struct ChannelFront {
    lifecycle: Arc<Lifecycle>,
    dispatcher: Arc<Dispatcher>,
    modern: Arc<Modern>,
    observer: Arc<Observer>,
}

/// One client of one upstream.
struct Channel {
    front: ChannelFront,
    upstream: Arc<Upstream>,
    principal: Option<Arc<str>>,
    session: Option<SessionGuard>,
    output: Output,
    /// The handshake, while it lasts.
    opening: Option<OpeningSession>,
    /// What has to be done before the next message is taken in: what expects no answer goes upstream in its order.
    now: Option<Work>,
    /// Answers under way.
    answers: FuturesUnordered<Work>,
    /// What the client has asked and not cancelled.
    in_flight: InFlight,
    /// Who has sent the last request without a session.
    last_caller: Arc<LastCaller>,
    /// Cancelled when the client has closed its end: the answers that it has cancelled are no longer waited for.
    closing: CancellationToken,
    /// What the server sends of itself.
    listening: Option<Work>,
    /// No session has come about, though the client wanted one.
    refused: bool,
    /// What ends the channel besides the client.
    ends_with: EndsWith,
}

/// What ends a channel whose client stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndsWith {
    /// The end of the session, and of its tasks.
    Session,
    /// The end of the server's process, which has the one session, and of its tasks.
    Server,
    /// The client alone: where the session is lost, it may open another one.
    Client,
}

impl ChannelFront {
    /// Creates the front for clients on one channel.
    #[must_use]
    pub fn new(services: Services) -> Self {
        let Services { lifecycle, dispatcher, modern, observer } = services;
        Self { lifecycle, dispatcher, modern, observer }
    }

    /// Opens a channel to an upstream, and the work that serves it until the client closes it, or does not read any
    /// more, or the session has ended and no task is left in it to be asked for. The work tells whether the client got
    /// the session that it wanted, if it wanted one.
    fn open(
        &self,
        upstream: Arc<Upstream>,
        principal: Option<Arc<str>>,
        ends_with: EndsWith,
    ) -> (ClientEnd, impl Future<Output = bool> + Send + use<>) {
        let (input, incoming) = mpsc::channel(QUEUE);
        let (output, outgoing) = match ends_with {
            EndsWith::Session => Output::bounded(Arc::clone(self.lifecycle.outbox()), Arc::clone(&self.observer)),
            EndsWith::Server | EndsWith::Client => Output::trusted(),
        };
        let channel = Channel {
            front: self.clone(),
            upstream,
            principal,
            session: None,
            output,
            opening: None,
            now: None,
            answers: FuturesUnordered::new(),
            in_flight: InFlight::default(),
            last_caller: Arc::default(),
            closing: CancellationToken::new(),
            listening: None,
            refused: false,
            ends_with,
        };
        (ClientEnd { input, output: outgoing }, channel.serve(incoming))
    }
}

impl Channel {
    async fn serve(mut self, mut incoming: mpsc::Receiver<ClientMessage>) -> bool {
        let (mut waiting, mut open) = (VecDeque::new(), true);
        loop {
            // A request is on its way before the next message is taken in, which may cancel it.
            while self.answers.next().now_or_never().flatten().is_some() {}
            if self.now.is_none() {
                match self.next_of(&mut waiting) {
                    Some(next) => {
                        self.take(next);
                        continue;
                    }
                    None if self.opening.is_some() => {}
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
                () = self.front.lifecycle.closing() => break,
                () = over(&self.front.lifecycle, self.session.as_ref(), self.ends_with) => break,
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
            drop(self.front.lifecycle.end(session.get(), HeaderMap::new(), "client").await);
        }
        !self.refused
    }

    /// Takes out the next message; while a session is being opened, the next one that needs none.
    fn next_of(&self, waiting: &mut VecDeque<ClientMessage>) -> Option<ClientMessage> {
        if self.opening.is_none() {
            return waiting.pop_front();
        }
        let needs_none = |next: &ClientMessage| match &next.message {
            Ok(message) if message.kind() == Kind::Request && message.method() == Method::Ping => true,
            Ok(message) => is_modern(message),
            Err(_) => true,
        };
        waiting.iter().position(needs_none).and_then(|at| waiting.remove(at))
    }

    fn take(&mut self, incoming: ClientMessage) {
        let ClientMessage { message, headers, room: _room } = incoming;
        let message = match message {
            Ok(message) => message,
            Err(response) => return self.say(response),
        };
        let id: Box<str> = message.id_to_answer().into();
        if is_modern(&message) && self.serves_modern() {
            // It needs no session.
            self.refused = false;
            return self.take_modern(id, message);
        }
        if is_modern(&message) {
            return self.say(Refusal::modern().answering(Some(&id)).into_document(&self.front.observer));
        }
        let session = self.session.as_ref().map(|session| Arc::clone(session.get()));
        let anew = message.kind() == Kind::Request && message.method() == Method::Initialize;
        match session.filter(|session| !(anew && session.is_lost())) {
            None => self.take_without_session(id, message, headers),
            Some(session) if message.kind() == Kind::Request => self.answer(session, id, message, headers),
            Some(session) => self.accept(session, message, headers),
        }
    }

    fn take_without_session(&mut self, id: Box<str>, message: Message, headers: HeaderMap) {
        match (message.kind(), message.method()) {
            (Kind::Request, Method::Initialize) => self.open(id, message, headers),
            (Kind::Request, Method::Ping) => self.say(pong(&id)),
            (Kind::Request, _) if self.serves_modern() && lacks_revision(&self.upstream, &message) => {
                self.take_modern(id, message);
            }
            (Kind::Request, _) => {
                let error = RpcError::invalid_request("Invalid request: start with initialize");
                self.say(error.to_response(Some(&id)));
            }
            (Kind::Notification, Method::Cancelled) => self.in_flight.cancel(&message),
            (Kind::Notification | Kind::Response, _) => {}
        }
    }

    /// Begins to answer a request. Returns what its client cancels it by, or answers that it cannot begin.
    fn begin(&mut self, id: &str) -> Option<CancellationToken> {
        let begun = if self.answers.len() < MAX_IN_FLIGHT {
            self.in_flight.begin(id)
        } else {
            Err(RpcError::internal(TooMany.to_string()))
        };
        begun.map_err(|error| self.say(error.to_response(Some(id)))).ok()
    }

    fn answer(&mut self, session: Arc<Session>, id: Box<str>, request: Message, headers: HeaderMap) {
        let Some(cancelled) = self.begin(&id) else { return };
        let (front, output) = (self.front.clone(), self.output.clone());
        if output.is_full() {
            // A client that reads no answers must not go on to ask.
            let output = output.clone();
            self.now = Some(Box::pin(async move { output.has_room().await }));
        }
        let waits_for_task = request.method() == Method::TasksResult || waits_for_jobs(&session, &request);
        let (in_flight, closing) = (self.in_flight.clone(), self.closing.clone());
        self.answers.push(Box::pin(async move {
            let answering = async {
                match front.dispatcher.request(&session, request, headers, Carrier::Channel).await {
                    Ok(answer) => output.deliver(answer, &id).await,
                    Err(refusal) => {
                        let refused = refusal.answering(Some(&id)).into_document(&front.observer);
                        let _ = output.send(refused).await;
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
            in_flight.end(&id);
        }));
    }

    /// Takes what expects no answer. It gets none, but a refusal is counted.
    fn accept(&mut self, session: Arc<Session>, message: Message, headers: HeaderMap) {
        if message.method() == Method::Cancelled {
            self.in_flight.cancel(&message);
        }
        let front = self.front.clone();
        self.now = Some(Box::pin(async move {
            if let Err(refusal) = front.dispatcher.accept(&session, message, headers).await {
                refusal.emit(&front.observer);
            }
        }));
    }

    fn open(&mut self, id: Box<str>, initialize: Message, headers: HeaderMap) {
        let (lifecycle, upstream) = (Arc::clone(&self.front.lifecycle), Arc::clone(&self.upstream));
        let principal = self.principal.clone();
        // The tasks of a session that is lost stay the client's.
        let previous = self.session.as_ref().map(|session| session.get().caller.owner.clone());
        self.opening = Some(Box::pin(async move {
            let client = NewClient { upstream: &upstream, principal, previous, comes_back: false };
            (id, lifecycle.open(client, &initialize, headers).await)
        }));
    }

    /// Answers `initialize`, and listens to what the server sends of itself.
    fn opened(&mut self, id: &str, opened: Result<(Arc<Session>, Delivery), Whole>) {
        self.opening = None;
        let (output, id) = (self.output.clone(), id.to_owned());
        let answer = match opened {
            Ok((session, answer)) => {
                let (source, output) = (self.front.dispatcher.listener(&session), output.clone());
                self.listening = Some(Box::pin(async move { output.pump(source, None).await }));
                if let Some(lost) = self.session.replace(session.hold()) {
                    self.front.lifecycle.replaced(lost.get());
                }
                self.refused = false;
                answer
            }
            Err(whole) => {
                self.refused = true;
                whole.into()
            }
        };
        self.now = Some(Box::pin(async move { output.deliver(answer, &id).await }));
    }

    /// Returns whether the server's process has ended without having given the client a session. One that has none may
    /// still serve the client.
    fn has_no_server(&self) -> bool {
        let is_modern = self.serves_modern() && self.upstream.pool.generation().is_some_and(Generation::is_modern);
        let exit_status = || self.upstream.server.exit_status();
        let wants = self.ends_with == EndsWith::Server && self.refused && self.session.is_none();
        wants && !is_modern && exit_status().is_some()
    }

    fn say(&mut self, document: impl Into<Bytes>) {
        let (output, document) = (self.output.clone(), document.into());
        self.now = Some(Box::pin(async move {
            let _ = output.send(document).await;
        }));
    }
}

/// Waits until a session ends the channel.
async fn over(lifecycle: &Lifecycle, session: Option<&SessionGuard>, ends_with: EndsWith) {
    let Some(session) = session.filter(|_| ends_with != EndsWith::Client) else { return std::future::pending().await };
    lifecycle.over(session.get()).await;
}

async fn done(work: &mut Option<Work>) {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

async fn handshake(opening: &mut Option<OpeningSession>) -> (Box<str>, Result<(Arc<Session>, Delivery), Whole>) {
    match opening {
        Some(opening) => opening.await,
        None => std::future::pending().await,
    }
}
