//! The handshake with a server (revision 2025-11-25, "Lifecycle"): offers a revision, and lower ones while it is
//! refused.

use std::{sync::Arc, time::Duration};

use ::http::HeaderMap;
use bytes::Bytes;
use tokio::sync::Semaphore;

use super::{UpstreamSession, with_id};
use crate::{
    config::UpstreamId,
    flow::{Capacity, Item},
    identity::Owner,
    observe::Observer,
    upstream::{
        Exchange, Failure, Inbound, KnownTools, Link, MAX_MESSAGE, Outgoing, Purpose, Server, TooMany, Vacancy,
    },
    wire::{
        ClientCapabilities, Edits, Message, Parts, Version, excerpt,
        legacy::error_code,
        message::Outcome,
        object::{Members, quote},
    },
};

/// How long a server may take to answer `initialize`.
const INITIALIZE_TIMEOUT: Duration = Duration::from_mins(1);

/// How many answers to requests that come before the response may be on their way to the server.
const MAX_REPLIES: usize = 16;
/// The codes with which servers without sessions refuse `initialize`: its headers, its revision, the form of the
/// request, the method, or its params are wrong.
const CODES_OF_MODERN: [i64; 6] = [-32020, -32021, -32022, -32600, -32601, -32602];

/// What a handshake starts from.
#[derive(Debug)]
pub struct Handshake<'a> {
    /// What to connect to, for the log.
    pub id: &'a UpstreamId,
    /// How to connect.
    pub server: &'a Server,
    /// What the server may ask its client.
    pub client: ClientCapabilities,
    /// Where the link will be.
    pub vacancy: Vacancy,
    /// [`Inbound::pooled`]
    pub pooled: bool,
    /// [`Inbound::owner`]
    pub owner: Option<Owner>,
    /// What is known of the server's tools, which the session adds to.
    pub tools: Arc<KnownTools>,
    /// How much may wait for readers.
    pub capacity: &'a Arc<Capacity>,
    /// Where to report.
    pub observer: &'a Arc<Observer>,
}

/// What was agreed with a server.
#[derive(Debug)]
pub struct Agreed {
    /// The session.
    pub session: UpstreamSession,
    /// The server's answer to `initialize`.
    pub answer: Message,
    /// The revision.
    pub version: Version,
    /// Whether the server answered with a stream.
    pub streams: bool,
}

/// Why nothing was agreed.
#[derive(Debug)]
pub enum NotAgreed {
    /// Too many requests are in flight.
    TooMany(TooMany),
    /// The server answered with an error.
    Refused {
        /// The response, under the id of the request.
        answer: Parts,
        /// Whether a server without sessions may refuse so.
        may_be_modern: bool,
    },
    /// The server gave no answer that can be used.
    Failed(Failure),
}

impl Handshake<'_> {
    /// Returns what the link needs.
    pub(super) fn inbound(&self) -> Inbound {
        let inbound = Inbound::new(self.id, self.client, self.capacity, self.observer);
        Inbound { pooled: self.pooled, owner: self.owner.clone(), tools: Arc::clone(&self.tools), ..inbound }
    }

    /// Connects, and sends the `initialize` in `request` with `version` until the server agrees on a revision that
    /// taskgate speaks.
    ///
    /// # Errors
    /// [`NotAgreed`]
    pub async fn agree(self, request: &Message, version: Version, headers: &HeaderMap) -> Result<Agreed, NotAgreed> {
        let inbound = self.inbound();
        let link = self.server.connect(inbound.clone(), self.vacancy).await.map_err(NotAgreed::Failed)?;
        let guard = LinkGuard { link, headers, agreed: false };
        let accepted = guard.offer(request, version, &inbound).await?;
        Ok(guard.accept(accepted, inbound))
    }
}

/// A server's answer that accepts the handshake.
pub(super) struct Accepted {
    answer: Message,
    /// The revision that the server speaks.
    version: Version,
    /// Whether the server answered with a stream.
    streams: bool,
}

/// Closes the link of a handshake that fails, or whose client leaves.
pub(super) struct LinkGuard<'a> {
    pub(super) link: Arc<dyn Link>,
    pub(super) headers: &'a HeaderMap,
    pub(super) agreed: bool,
}

impl LinkGuard<'_> {
    /// Returns the session that the server has accepted.
    pub(super) fn accept(mut self, accepted: Accepted, inbound: Inbound) -> Agreed {
        let Accepted { answer, version, streams } = accepted;
        self.link.agreed(version);
        self.agreed = true;
        Agreed { session: UpstreamSession::new(inbound, Arc::clone(&self.link)), answer, version, streams }
    }

    /// Offers `version`, and lower ones while the server refuses.
    pub(super) async fn offer(
        &self,
        request: &Message,
        version: Version,
        inbound: &Inbound,
    ) -> Result<Accepted, NotAgreed> {
        let mut offer = version;
        loop {
            let mut exchange = inbound.exchanges.begin(None, Purpose::Foreground).map_err(NotAgreed::TooMany)?;
            let message = offering(request, exchange.number, offer);
            let (number, headers) = (exchange.number, self.headers.clone());
            let outgoing = Outgoing { number, message, headers, max_answer: MAX_MESSAGE, relay: false };
            exchange.carry(self.link.request(outgoing));
            let answering = ending(&mut exchange, inbound, &self.link, self.headers);
            let answer = match tokio::time::timeout(INITIALIZE_TIMEOUT, answering).await {
                Ok(ending) => ending.map_err(NotAgreed::Failed)?,
                Err(_) => return Err(NotAgreed::Failed(Failure::TimedOut(INITIALIZE_TIMEOUT))),
            };
            match answer.outcome() {
                Some((Outcome::Result, result)) => {
                    let version = spoken(result).map_err(|why| NotAgreed::Failed(Failure::BadAnswer(why)))?;
                    return Ok(Accepted { answer, version, streams: exchange.streams() });
                }
                Some((Outcome::Error, error)) => {
                    let Some(lower) = Version::supported_below(error, offer) else {
                        let may_be_modern = error_code(error).is_some_and(|code| CODES_OF_MODERN.contains(&code));
                        let answer = with_id(&answer, request.id_to_answer());
                        return Err(NotAgreed::Refused { answer, may_be_modern });
                    };
                    offer = lower;
                }
                None => return Err(NotAgreed::Failed(Failure::BadAnswer("it is no response".to_owned()))),
            }
        }
    }
}

impl Drop for LinkGuard<'_> {
    fn drop(&mut self) {
        if !self.agreed {
            self.link.close(self.headers.clone());
        }
    }
}

/// Reads the revision in the result of `initialize`, and refuses capabilities that cannot be read: a useless answer
/// is no agreement.
fn spoken(result: &str) -> Result<Version, String> {
    let result = Members::parse(result).ok();
    let theirs = result.as_ref().and_then(|result| result.text("protocolVersion")).unwrap_or_default();
    let version = Version::parse(&theirs)
        .ok_or_else(|| format!("it speaks revision {:?}, taskgate speaks {}", excerpt(&theirs), Version::list()))?;
    if let Some(result) = &result {
        result.nested("capabilities")?;
    }
    Ok(version)
}

/// Returns the client's `initialize` under taskgate's number, offering `version`.
fn offering(request: &Message, number: u64, version: Version) -> Bytes {
    let mut edits = Edits::of(request.bytes());
    if let Some(id) = request.id_span() {
        edits.replace(id, number.to_string());
    }
    if let Some(params) = request.params().and_then(|params| Members::parse(params).ok()) {
        edits.set(&params, "protocolVersion", &quote(version.as_str()));
    }
    edits.apply().into_bytes()
}

/// Waits for the response. What the server sends before it is kept for the GET stream, or answered where no client can
/// answer it.
pub(super) async fn ending(
    exchange: &mut Exchange,
    inbound: &Inbound,
    link: &Arc<dyn Link>,
    headers: &HeaderMap,
) -> Result<Message, Failure> {
    let turns = Arc::new(Semaphore::new(MAX_REPLIES));
    loop {
        match exchange.next().await {
            Some(Item::Message(message)) => {
                let Some(reply) = inbound.queue(message) else { continue };
                // A server that takes no answers gets none, and is still read.
                let Ok(turn) = Arc::clone(&turns).try_acquire_owned() else { continue };
                let (link, headers) = (Arc::clone(link), headers.clone());
                // In a task of its own: the server may answer the request before it takes this.
                tokio::spawn(async move {
                    let _ = link.send(reply, headers).await;
                    drop(turn);
                });
            }
            Some(Item::Silence | Item::Pause(_)) => {}
            Some(Item::End(ending)) => return ending?.whole().await,
            None => return Err(Failure::Abandoned),
        }
    }
}
