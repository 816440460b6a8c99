//! Clients of the 2024-11-05 HTTP+SSE transport: a channel behind each stream. What such a client sends comes to the
//! address that the stream names first.

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, error::SendTimeoutError};
use uuid::Uuid;

use super::{ChannelFront, ClientMessage, EndsWith, Outgoing};
use crate::{
    config::SSE_MESSAGES,
    flow::{ByteRoom, TakenBytes},
    gate::refuse::Refusal,
    identity::{Pass, Principal},
    session::Sessions,
    upstream::Upstream,
    wire::{
        Message, headers_cost, ids,
        sse::{encode, endpoint},
    },
};

/// The parameter that names the stream that a message belongs to.
const SESSION: &str = "sessionId=";
/// How long a message may wait for those before it.
const INPUT_TIMEOUT: Duration = Duration::from_secs(30);

/// The pass of the message whose token lasts longest: a stream that has ended cannot be resumed, and its session ends
/// with it.
type SharedPass = Arc<Mutex<Pass>>;

/// How many messages of `max_body` bytes one stream may have waiting.
const WAITING: usize = 2;

/// What a message takes while it waits for those before it: of the room of its stream, and of that of all.
pub(in crate::gate) type InputRoom = [TakenBytes; 2];

/// The streams that are open.
#[derive(Debug)]
pub struct OldStreams {
    open: Mutex<HashMap<Uuid, OpenStream>>,
    /// How many bytes a message may have.
    max_body: usize,
    /// The room for messages of all streams that wait.
    room: ByteRoom,
    channels: ChannelFront,
    /// Each stream is to become one.
    sessions: Arc<Sessions>,
}

#[derive(Debug)]
struct OpenStream {
    upstream: Arc<Upstream>,
    /// The name of the principal.
    principal: Option<Arc<str>>,
    pass: SharedPass,
    input: mpsc::Sender<ClientMessage>,
    /// The room for messages that wait for it.
    room: ByteRoom,
}

/// One stream. Dropping it ends its session.
pub(in crate::gate) struct OldStream {
    /// The event with the address for messages.
    endpoint: Option<Bytes>,
    output: mpsc::Receiver<Outgoing>,
    pass: SharedPass,
    id: Uuid,
    streams: Arc<OldStreams>,
}

/// Where the messages for one stream go.
pub(in crate::gate) struct OldInput {
    input: mpsc::Sender<ClientMessage>,
    upstream: Arc<Upstream>,
    room: ByteRoom,
    room_of_all: ByteRoom,
}

impl OldStream {
    /// Returns the next event.
    pub(in crate::gate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.pass.lock().is_live() {
            return Poll::Ready(None);
        }
        if let Some(endpoint) = self.endpoint.take() {
            return Poll::Ready(Some(endpoint));
        }
        let outgoing = ready!(self.output.poll_recv(cx));
        // There is no resumption, so events have no ids.
        Poll::Ready(outgoing.map(|outgoing| encode(&outgoing.document, None)))
    }
}

impl Drop for OldStream {
    fn drop(&mut self) {
        self.streams.open.lock().remove(&self.id);
    }
}

impl fmt::Debug for OldStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldStream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl OldStreams {
    /// Creates the table of the streams, which share the limits of `sessions` and are served as `channels`. Their
    /// messages have `max_body` bytes at most, and of all of them `max_waiting` bytes may wait for those before them.
    #[must_use]
    pub fn new(channels: ChannelFront, sessions: Arc<Sessions>, max_body: usize, max_waiting: usize) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), max_body, room: ByteRoom::new(max_waiting), channels, sessions })
    }

    /// Opens a stream at `path`.
    pub(in crate::gate) fn open(
        this: &Arc<Self>,
        upstream: Arc<Upstream>,
        principal: Option<Principal>,
        path: &str,
    ) -> Result<OldStream, Refusal> {
        let mut open = this.open.lock();
        let (principal, pass) = parts(principal);
        let of_principal = |open: &&OpenStream| open.upstream.id == upstream.id && open.principal == principal;
        let own = principal.as_ref().map_or(0, |_| open.values().filter(of_principal).count());
        this.sessions.check(open.len(), own).map_err(|full| Refusal::full(&full))?;
        let id = Uuid::new_v4();
        let pass = Arc::new(Mutex::new(pass));
        let (client, serving) = this.channels.open(Arc::clone(&upstream), principal.clone(), EndsWith::Session);
        let room = ByteRoom::new(WAITING * this.max_body);
        open.insert(id, OpenStream { upstream, principal, pass: Arc::clone(&pass), input: client.input, room });
        drop(open);
        tokio::spawn(serving);
        let endpoint = Some(endpoint(&format!("{path}{SSE_MESSAGES}?{SESSION}{id}")));
        Ok(OldStream { endpoint, output: client.output, pass, id, streams: Arc::clone(this) })
    }

    /// Returns the input of the stream that `query` names, and renews its pass. A stream of another principal, or of
    /// another upstream, is as unknown as one that never was.
    pub(in crate::gate) fn find(
        &self,
        upstream: &Upstream,
        principal: Option<Principal>,
        query: Option<&str>,
    ) -> Result<OldInput, Refusal> {
        let id = query.into_iter().flat_map(|query| query.split('&')).find_map(|pair| pair.strip_prefix(SESSION));
        let id = id.and_then(ids::parse);
        let (principal, pass) = parts(principal);
        let input = id.and_then(|id| {
            let open = self.open.lock();
            let open = open.get(&id);
            let open = open.filter(|open| open.upstream.id == upstream.id && open.principal == principal)?;
            open.pass.lock().renew(pass);
            let (input, upstream) = (open.input.clone(), Arc::clone(&open.upstream));
            Some(OldInput { input, upstream, room: open.room.clone(), room_of_all: self.room.clone() })
        });
        input.ok_or_else(Refusal::unknown_session)
    }
}

impl OldInput {
    /// Returns the upstream of the stream.
    pub(in crate::gate) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Takes a message, behind those before it.
    pub(in crate::gate) async fn send(self, message: Message, headers: HeaderMap) -> Result<(), Refusal> {
        let bytes = message.bytes().len() + headers_cost(&headers);
        let of_stream = self.room.take_at_any_size(bytes).ok_or_else(Refusal::busy)?;
        let of_all = self.room_of_all.take_at_any_size(bytes);
        let of_all = of_all.ok_or_else(|| Refusal::too_many_waiting(self.room_of_all.most()))?;
        let message = ClientMessage { message: Ok(message), headers, room: Some([of_stream, of_all]) };
        self.input.send_timeout(message, INPUT_TIMEOUT).await.map_err(|error| match error {
            SendTimeoutError::Timeout(_) => Refusal::busy(),
            SendTimeoutError::Closed(_) => Refusal::unknown_session(),
        })
    }
}

/// Returns the name of a principal, and how long it holds.
fn parts(principal: Option<Principal>) -> (Option<Arc<str>>, Pass) {
    principal.map_or((None, Pass::Lasting), |principal| (Some(principal.name), principal.pass))
}
