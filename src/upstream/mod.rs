//! The servers behind taskgate: a [`Link`] for each session, an [`Exchange`] for each request in flight.

mod client_leaves;
mod configured;
mod exchange;
mod exchanges;
mod failure;
mod hints;
pub mod http;
mod inbound;
mod known_tools;
mod lease;
mod native;
mod open_exchange;
mod pending_lease;
mod points;
mod pool;
mod purpose;
mod response;
mod resumable;
mod saved;
mod session;
pub mod stdio;

use std::{future::Future, pin::Pin, process::ExitStatus, sync::Arc};

use ::http::HeaderMap;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

pub use configured::Upstream;
pub use exchange::{Carrier, Exchange};
pub use exchanges::Exchanges;
pub use failure::{Failure, HttpError};
pub use hints::Hints;
pub use inbound::Inbound;
pub use known_tools::{JobTool, JobToolNames, KnownTools, ListPage, ListRequest, may_be_job_tool};
pub use lease::Lessee;
pub use native::{MAX_WAITING, NativeTasks, NativeTools, ToolNames};
pub use open_exchange::{MAX_IN_FLIGHT, TooMany};
pub use pending_lease::PendingLease;
pub use pool::{Generation, Lease, NoSession, PoolLimits, Pooled, PoolsTotal, ServerFacts, SessionPool};
pub use purpose::Purpose;
pub use response::{ExchangeEnd, UpstreamResponse};
pub use saved::{SavedLink, SavedUpstream};
pub use session::{
    Agreed, BrokenCall, Call, CallOptions, CallOutcome, Handshake, Introduced, Kept, Next, NotAgreed, Round,
    ServerEvent, ServerQuestion, ToServer, UpstreamGuard, UpstreamSession, error_code, for_client, own_error,
    question_refusal, refusal_with_id, with_id,
};
use stdio::MAKING_ROOM;
pub use stdio::Vacancy;

use crate::wire::Version;

/// The largest message that taskgate takes from an upstream for a plain call, in bytes.
pub const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// A request on its way to an upstream.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The exchange's number, which is the id inside `message`.
    pub number: u64,
    /// The JSON-RPC request.
    pub message: Bytes,
    /// The end-to-end headers of the client's request.
    pub headers: HeaderMap,
    /// The largest answer to take, in bytes.
    pub max_answer: usize,
    /// Whether a large answer may be passed on while it arrives.
    pub relay: bool,
}

/// The answer to a request that an earlier process has sent.
#[derive(Clone, Debug)]
pub struct Resumption {
    /// The exchange's number, which is the id of the request.
    pub number: u64,
    /// The id of the event after which the answer goes on.
    pub event: Bytes,
    /// The end-to-end headers of the client's request.
    pub headers: HeaderMap,
    /// The largest answer to take, in bytes.
    pub max_answer: usize,
}

/// What [`Link::send`] returns.
pub type Sending<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// One session's connection with one upstream. It delivers what it receives to its [`Inbound`].
pub trait Link: std::fmt::Debug + Send + Sync {
    /// Prepares the exchange `outgoing.number`. Returns the work that carries it, if the caller has to do that work.
    /// The exchange ends exactly once in any case.
    fn request(&self, outgoing: Outgoing) -> Option<Carrier>;

    /// Prepares the exchange `resumption.number`, whose request an earlier process has sent, as [`Link::request`] does.
    ///
    /// # Errors
    /// The transport cannot resume an answer.
    fn resume(&self, _resumption: Resumption) -> Result<Carrier, Failure> {
        Err(Failure::SessionLost)
    }

    /// Takes back the request of exchange `number` if it still waits to be written. Returns whether the upstream never gets
    /// it: then it must not be cancelled there either.
    fn withdraw(&self, _number: u64) -> bool {
        false
    }

    /// Sends a notification, or a response to a request of the upstream.
    ///
    /// The future fails with the reason if the upstream does not accept it.
    fn send(&self, message: Bytes, headers: HeaderMap) -> Sending<'_>;

    /// Opens the stream on which the upstream sends what belongs to no request, if the upstream has one and it is not
    /// open.
    fn listen(&self, headers: HeaderMap);

    /// Notes which revision was agreed with the upstream.
    fn agreed(&self, version: Version);

    /// Notes that the server is of the modern generation: there is no session, and each request says all about itself.
    fn set_modern(&self);

    /// Returns a token that is cancelled when the upstream has ended the session, so that a client has to start anew.
    fn lost(&self) -> &CancellationToken;

    /// Ends the session with the upstream in the background; open exchanges end as abandoned.
    fn close(&self, headers: HeaderMap);

    /// Returns what a later process needs to go on with the session; `None` where the session ends with this process.
    fn saved(&self) -> Option<SavedLink> {
        None
    }

    /// Ends the link as [`Link::close`] does, but leaves a session that can be saved to a later process.
    fn leave(&self) {
        self.close(HeaderMap::new());
    }
}

/// Makes the links to one configured upstream.
#[derive(Debug)]
pub enum Server {
    /// A server that speaks HTTP.
    Http(Box<http::Server>),
    /// A command that speaks on its stdin and stdout.
    Stdio(stdio::Server),
}

impl Server {
    /// Waits until every closed link has ended upstream, children included. Called when the process stops.
    pub async fn ended(&self) {
        match self {
            Self::Http(server) => server.ended().await,
            Self::Stdio(server) => server.ended().await,
        }
    }

    /// Returns whether the headers of its requests come from files.
    #[must_use]
    pub fn reads_files(&self) -> bool {
        match self {
            Self::Http(server) => server.reads_files(),
            Self::Stdio(_) => false,
        }
    }

    /// Reads the headers that come from files again. Blocks for the file system.
    pub fn refresh(&self) {
        match self {
            Self::Http(server) => server.refresh(),
            Self::Stdio(_) => {}
        }
    }

    /// Returns whether each session has a stream of its own for what belongs to no call, as far as the transport is
    /// known.
    #[must_use]
    pub fn has_get_stream(&self) -> bool {
        match self {
            Self::Http(server) => server.has_get_stream(),
            Self::Stdio(_) => false,
        }
    }

    /// Returns whether the server says in the course of which call it asks, as far as that is known.
    #[must_use]
    pub fn attributes_questions(&self) -> bool {
        match self {
            Self::Http(server) => server.has_get_stream() && !server.asks_apart(),
            Self::Stdio(_) => false,
        }
    }

    /// Returns whether the server is a command.
    #[must_use]
    pub fn is_process(&self) -> bool {
        matches!(self, Self::Stdio(_))
    }

    /// Returns how the last child process to end has ended; `None` if none has.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        match self {
            Self::Http(_) => None,
            Self::Stdio(server) => server.exit_status(),
        }
    }

    /// Kills every child process and its descendants at once, because the process is about to end.
    pub fn kill(&self) {
        match self {
            Self::Http(_) => {}
            Self::Stdio(server) => server.kill(),
        }
    }

    /// Waits until the next link may be made, and returns its place.
    ///
    /// # Errors
    /// [`Failure`] if that is not soon.
    pub async fn vacancy(&self) -> Result<Vacancy, Failure> {
        match self {
            Self::Http(_) => Ok(Vacancy::default()),
            Self::Stdio(server) => server.vacancy().await,
        }
    }

    /// Makes a new link, which is not initialised yet.
    ///
    /// # Errors
    /// [`Failure`] if a child process cannot be started.
    pub async fn connect(&self, inbound: Inbound, vacancy: Vacancy) -> Result<Arc<dyn Link>, Failure> {
        Ok(match self {
            Self::Http(server) => server.connect(inbound),
            Self::Stdio(server) => server.connect(inbound, vacancy).await?,
        })
    }

    /// Returns whether a session was one with a server that has another URL than this one.
    #[must_use]
    pub fn is_elsewhere(&self, saved: &SavedLink) -> bool {
        matches!(self, Self::Http(server) if server.is_elsewhere(saved))
    }

    /// Makes a link that goes on with a session of an earlier process; `None` if the session is not one with this
    /// server.
    #[must_use]
    pub fn reconnect(&self, inbound: Inbound, saved: &SavedLink) -> Option<Arc<dyn Link>> {
        match self {
            Self::Http(server) => server.reconnect(inbound, saved),
            Self::Stdio(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
