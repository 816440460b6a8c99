//! The endpoint for clients of the 2024-11-05 HTTP+SSE transport: a GET opens a stream for everything that the client is
//! sent, and what the client sends comes by POST to the address that the stream names first.

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, error::SendTimeoutError};
use uuid::Uuid;

use super::{Incoming, Lasts};
use crate::{
    config::SSE_MESSAGES,
    gate::{
        Gate, Response,
        http::{
            headers::{accepts_stream, is_json},
            intake::Intake,
            sse,
        },
        refuse::Refusal,
    },
    identity::{Pass, Principal},
    upstream::Upstream,
    wire::{
        ids,
        sse::{encode, endpoint},
    },
};

/// The parameter that names the stream that a message belongs to.
const SESSION: &str = "sessionId=";
/// How long a message may wait for those before it.
const INPUT_TIMEOUT: Duration = Duration::from_secs(30);

/// That of the message whose token lasts longest: a stream that has ended cannot be resumed, and its session ends with it.
type SharedPass = Arc<Mutex<Pass>>;

/// The streams that are open.
#[derive(Clone, Debug, Default)]
pub struct Channels(Arc<Mutex<HashMap<Uuid, Open>>>);

#[derive(Debug)]
struct Open {
    upstream: Arc<Upstream>,
    /// The name of the principal.
    principal: Option<Arc<str>>,
    pass: SharedPass,
    input: mpsc::Sender<Incoming>,
}

/// One stream. Dropping it ends its session.
pub(in crate::gate) struct OldStream {
    /// The event with the address for messages.
    endpoint: Option<Bytes>,
    output: mpsc::Receiver<Bytes>,
    pass: SharedPass,
    id: Uuid,
    channels: Channels,
}

impl OldStream {
    /// The next event.
    pub(in crate::gate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if !self.pass.lock().is_live() {
            return Poll::Ready(None);
        }
        if let Some(endpoint) = self.endpoint.take() {
            return Poll::Ready(Some(endpoint));
        }
        let document = ready!(self.output.poll_recv(cx));
        // There is no resumption, so events have no ids.
        Poll::Ready(document.map(|document| encode(&document, None)))
    }
}

impl Drop for OldStream {
    fn drop(&mut self) {
        self.channels.0.lock().remove(&self.id);
    }
}

impl fmt::Debug for OldStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldStream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Gate {
    /// GET: opens a stream.
    pub(in crate::gate) fn open_old_sse(
        self: &Arc<Self>,
        upstream: Arc<Upstream>,
        principal: Option<Principal>,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Response, Refusal> {
        accepts_stream(headers)?;
        let mut open = self.channels.0.lock();
        let (principal, pass) = parts(principal);
        let of_principal = |open: &&Open| open.upstream.id == upstream.id && open.principal == principal;
        let own = principal.as_ref().map_or(0, |_| open.values().filter(of_principal).count());
        self.sessions.check(open.len(), own).map_err(|full| Refusal::full(&full))?;
        let id = Uuid::new_v4();
        let pass = Arc::new(Mutex::new(pass));
        let (ends, serving) = self.channel(Arc::clone(&upstream), principal.clone(), Lasts::Session);
        open.insert(id, Open { upstream, principal, pass: Arc::clone(&pass), input: ends.input });
        drop(open);
        tokio::spawn(serving);
        let endpoint = Some(endpoint(&format!("{path}{SSE_MESSAGES}?{SESSION}{id}")));
        Ok(sse::old_response(OldStream { endpoint, output: ends.output, pass, id, channels: self.channels.clone() }))
    }

    /// POST: takes a message for a stream, where it is answered.
    pub(in crate::gate) async fn old_message(
        &self,
        upstream: &Upstream,
        principal: Option<Principal>,
        query: Option<&str>,
        headers: HeaderMap,
        intake: Intake,
    ) -> Result<Response, Refusal> {
        is_json(&headers)?;
        let id = query.into_iter().flat_map(|query| query.split('&')).find_map(|pair| pair.strip_prefix(SESSION));
        let id = id.and_then(ids::parse);
        let (principal, pass) = parts(principal);
        let open = id.and_then(|id| {
            let open = self.channels.0.lock();
            let open = open.get(&id);
            let open = open.filter(|open| open.upstream.id == upstream.id && open.principal == principal)?;
            open.pass.lock().renew(pass);
            Some((open.input.clone(), Arc::clone(&open.upstream)))
        });
        let (input, upstream) = open.ok_or_else(Refusal::unknown_session)?;
        let message = intake.message(&self.bodies).await?;
        let incoming = Incoming { message: Ok(message), headers: Self::onward(&upstream, headers)? };
        input.send_timeout(incoming, INPUT_TIMEOUT).await.map_err(|error| match error {
            SendTimeoutError::Timeout(_) => Refusal::busy(),
            SendTimeoutError::Closed(_) => Refusal::unknown_session(),
        })?;
        let mut response = Response::new(Bytes::from_static(b"Accepted").into());
        *response.status_mut() = StatusCode::ACCEPTED;
        Ok(response)
    }
}

/// The name of a principal, and how long it holds.
fn parts(principal: Option<Principal>) -> (Option<Arc<str>>, Pass) {
    principal.map_or((None, Pass::Lasting), |principal| (Some(principal.name), principal.pass))
}
