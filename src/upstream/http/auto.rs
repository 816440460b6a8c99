//! One session with a server whose transport only `initialize` finds out (revision 2025-11-25, "Transports", "Backwards
//! Compatibility").

use std::sync::{Arc, OnceLock, atomic::Ordering};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio_util::sync::CancellationToken;

use super::{Server, body::rpc_error_in, link::HttpLink, sse::SseLink};
use crate::{
    net::without_secrets,
    upstream::{Carrier, Failure, Inbound, Link, Outgoing, SavedLink, Sending},
    wire::{Version, message::echoed_number},
};

/// A link over Streamable HTTP, or over HTTP+SSE where the server refuses that.
#[derive(Debug)]
pub(super) struct AutoLink(Arc<AutoSession>);

/// What the tasks of one session share.
#[derive(Debug)]
struct AutoSession {
    server: Server,
    /// The link over Streamable HTTP.
    streamable: HttpLink,
    /// Set once the transport is known; with a link if it is HTTP+SSE.
    decided: OnceLock<Option<SseLink>>,
}

impl AutoLink {
    pub(super) fn new(server: Server, inbound: Inbound) -> Self {
        let streamable = HttpLink::new(server.clone(), inbound);
        Self(Arc::new(AutoSession { server, streamable, decided: OnceLock::new() }))
    }
}

impl Link for AutoLink {
    fn request(&self, outgoing: Outgoing) -> Option<Carrier> {
        if self.0.decided.get().is_some() {
            return self.0.link().request(outgoing);
        }
        let session = Arc::clone(&self.0);
        Some(Box::pin(async move { session.introduce(outgoing).await }))
    }

    fn send(&self, message: Bytes, headers: HeaderMap) -> Sending<'_> {
        self.0.link().send(message, headers)
    }

    fn listen(&self, headers: HeaderMap) {
        self.0.link().listen(headers);
    }

    fn agreed(&self, version: Version) {
        if self.0.decided.get_or_init(|| None).is_none() {
            self.0.server.last_over_sse.store(false, Ordering::Relaxed);
        }
        self.0.link().agreed(version);
    }

    fn set_modern(&self) {
        if self.0.decided.get_or_init(|| None).is_none() {
            self.0.server.last_over_sse.store(false, Ordering::Relaxed);
        }
        self.0.link().set_modern();
    }

    fn lost(&self) -> &CancellationToken {
        self.0.link().lost()
    }

    fn close(&self, headers: HeaderMap) {
        // This closes the link over HTTP+SSE too.
        self.0.streamable.close(headers);
    }

    fn saved(&self) -> Option<SavedLink> {
        self.0.link().saved()
    }

    fn leave(&self) {
        self.0.streamable.leave();
    }
}

impl AutoSession {
    fn link(&self) -> &dyn Link {
        match self.decided.get() {
            Some(Some(sse)) => sse,
            _ => &self.streamable,
        }
    }

    /// Carries the first request over the transport that worked last time. If that fails, tries the other one.
    async fn introduce(&self, outgoing: Outgoing) {
        let number = outgoing.number;
        let mut opened = None;
        if self.server.last_over_sse.load(Ordering::Relaxed) {
            match self.open_sse(&outgoing.headers).await {
                Ok(sse) => return carry(sse, outgoing).await,
                Err(failure) if is_authorization(&failure) => return self.streamable.finish(number, Err(failure)),
                Err(failure) => opened = Some(Err(failure)),
            }
        }
        let ended = match self.streamable.exchange(outgoing.clone()).await {
            Err(post) if may_speak_sse(&post, number) => {
                let opened = match opened {
                    Some(failed) => failed,
                    None => self.open_sse(&outgoing.headers).await,
                };
                match opened {
                    Ok(sse) => return carry(sse, outgoing).await,
                    Err(get) if is_authorization(&get) => Err(get),
                    Err(_) if rpc_error_in(&post).is_some() => Err(post),
                    Err(get) => Err(Failure::NoTransport { post: Box::new(post), get: Box::new(get) }),
                }
            }
            ended => ended,
        };
        self.streamable.finish(number, ended);
    }

    async fn open_sse(&self, headers: &HeaderMap) -> Result<&SseLink, Failure> {
        let sse = self.streamable.over_sse();
        sse.open(headers).await?;
        if !self.server.last_over_sse.swap(true, Ordering::Relaxed) {
            let (upstream, url) = (self.server.id.as_str(), without_secrets(&self.server.uri));
            tracing::info!(upstream, url, "the server speaks the HTTP+SSE transport of revision 2024-11-05");
        }
        self.decided.get_or_init(|| Some(sse)).as_ref().ok_or(Failure::Abandoned)
    }
}

async fn carry(link: &SseLink, outgoing: Outgoing) {
    if let Some(carrier) = link.request(outgoing) {
        carrier.await;
    }
}

/// Returns whether the POST was refused in the way of a server of the older transport. A server that answers under the
/// request's id has understood it.
fn may_speak_sse(failure: &Failure, number: u64) -> bool {
    const REFUSALS: [StatusCode; 3] = [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];
    let refused = matches!(failure, Failure::Http(error) if REFUSALS.contains(&error.status));
    refused && rpc_error_in(failure).is_none_or(|error| error.id().and_then(echoed_number) != Some(number))
}

fn is_authorization(failure: &Failure) -> bool {
    matches!(failure, Failure::Http(error) if error.is_authorization())
}
