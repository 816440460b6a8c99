//! Finds out the generation of a server ("Versioning", section "Backward Compatibility with Initialization-Based
//! Versions"): asks with `server/discover` first, and falls back to `initialize` on the same link.

use std::{future::pending, sync::Arc, time::Duration};

use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::{
    Agreed, Handshake, NotAgreed, UpstreamSession,
    handshake::{LinkGuard, ending},
};
use crate::{
    upstream::{
        Exchange, Failure, Inbound, MAX_MESSAGE, Outgoing, Purpose,
        http::{METHOD, NAME, PROTOCOL_VERSION},
    },
    wire::{
        Message, Version,
        modern::{Discovered, VERSION, discovered, own_params},
    },
};

/// How long a server may be silent before `initialize` is sent as well: some older servers ignore what comes before it.
const SILENCE: Duration = Duration::from_secs(5);

/// A server that was asked for its generation.
#[derive(Debug)]
pub enum Introduced {
    /// It is modern.
    Modern {
        /// Its link, for callers without sessions.
        session: UpstreamSession,
        /// Its answer to `server/discover`.
        answer: Message,
    },
    /// It knows sessions only, and has opened one.
    Legacy(Agreed),
}

impl Handshake<'_> {
    /// Connects, and asks for the generation. Opens a session by the `initialize` in `request` where the server is a
    /// legacy one.
    ///
    /// # Errors
    /// [`NotAgreed`]
    pub async fn introduce(
        self,
        request: &Message,
        version: Version,
        headers: &HeaderMap,
    ) -> Result<Introduced, NotAgreed> {
        let inbound = self.inbound();
        let link = self.server.connect(inbound.clone(), self.vacancy).await.map_err(NotAgreed::Failed)?;
        let guard = LinkGuard { link, headers, agreed: false };
        let mut probe = guard.probe(&inbound)?;
        let answering = ending(&mut probe, &inbound, &guard.link, headers);
        let answer = match tokio::time::timeout(SILENCE, answering).await {
            Ok(answered) => modern(answered).map_err(NotAgreed::Failed)?,
            Err(_) => None,
        };
        if let Some(answer) = answer {
            return Ok(Introduced::Modern { session: guard.modern(inbound), answer });
        }
        let number = probe.number;
        let late = async {
            let answered = ending(&mut probe, &inbound, &guard.link, headers).await;
            match modern(answered) {
                Ok(Some(answer)) => answer,
                Ok(None) | Err(_) => pending().await,
            }
        };
        let accepted = tokio::select! {
            biased;
            answer = late => {
                return Ok(Introduced::Modern { session: guard.modern(inbound.clone()), answer });
            }
            accepted = guard.offer(request, version, &inbound) => accepted?,
        };
        // A server that ignores it would keep the session in use.
        inbound.exchanges.cancel(number);
        Ok(Introduced::Legacy(guard.accept(accepted, inbound)))
    }

    /// Connects, and returns the answer to `server/discover` of a modern server. Leaves no link behind.
    pub async fn discover(self, headers: &HeaderMap) -> Option<Message> {
        let inbound = self.inbound();
        let link = self.server.connect(inbound.clone(), self.vacancy).await.ok()?;
        let guard = LinkGuard { link, headers, agreed: false };
        let mut probe = guard.probe(&inbound).ok()?;
        let answering = ending(&mut probe, &inbound, &guard.link, headers);
        modern(tokio::time::timeout(SILENCE, answering).await.ok()?).ok()?
    }
}

impl LinkGuard<'_> {
    /// Sends `server/discover`.
    fn probe(&self, inbound: &Inbound) -> Result<Exchange, NotAgreed> {
        // The session may be one with `initialize`, in which nothing is asked in the course of this.
        let mut exchange = inbound.exchanges.begin_apart(None, Purpose::Foreground).map_err(NotAgreed::TooMany)?;
        let number = exchange.number;
        let params = own_params(None);
        let message = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"server/discover","params":{params}}}"#);
        let headers = own_headers(self.headers, "server/discover");
        let message = message.into();
        exchange.carry(self.link.request(Outgoing { number, message, headers, max_answer: MAX_MESSAGE, relay: false }));
        Ok(exchange)
    }

    /// Returns the link to a modern server.
    fn modern(mut self, inbound: Inbound) -> UpstreamSession {
        self.link.set_modern();
        self.agreed = true;
        UpstreamSession::modern(inbound, Arc::clone(&self.link))
    }
}

/// Returns the headers of a request of taskgate's own to a modern server, out of those of a request of a client, some
/// of which may mirror its params.
pub(super) fn own_headers(headers: &HeaderMap, method: &'static str) -> HeaderMap {
    let mirrors = |name: &HeaderName| *name == NAME || name.as_str().starts_with("mcp-param-");
    let kept = headers.iter().filter(|(name, _)| !mirrors(name));
    let mut headers: HeaderMap = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(VERSION));
    headers.insert(METHOD, HeaderValue::from_static(method));
    headers
}

/// Returns the answer of a modern server; `None` for a legacy one.
///
/// # Errors
/// [`Failure`] where there is no use in sending `initialize`.
fn modern(answered: Result<Message, Failure>) -> Result<Option<Message>, Failure> {
    match answered {
        Ok(answer) => match discovered(&answer) {
            Discovered::Modern => Ok(Some(answer)),
            Discovered::Legacy => Ok(None),
            Discovered::Other(why) => Err(Failure::BadAnswer(why)),
        },
        Err(Failure::Http(error)) if error.is_authorization() => Err(Failure::Http(error)),
        Err(
            failure @ (Failure::Unreachable(_)
            | Failure::Refused(_)
            | Failure::ProcessEnded(_)
            | Failure::Limit(_)
            | Failure::Abandoned
            | Failure::OwnFault
            | Failure::Stopping
            | Failure::Cancelled),
        ) => Err(failure),
        Err(_) => Ok(None),
    }
}
