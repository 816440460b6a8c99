//! Clients of revision 2026-07-28 in front of legacy servers: each request says all that is needed to answer it, tasks are
//! an extension that the server's side decides about, and questions are parts of answers.

mod discover;
mod error;
mod headers;
mod input;
mod listen;
mod meta;
mod parked;
mod pieces;
mod questions;
mod request_state;
mod run;
mod subscriptions;
mod tasks;
mod tools;
mod translate;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use moka::{policy::EvictionPolicy, sync::Cache};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use error::Refused;
pub use headers::{METHOD, NAME};
pub use pieces::{Answer, Piece, Pieces};

use self::{
    meta::RequestMeta,
    parked::Parking,
    request_state::{Bound, Seals},
    subscriptions::Subscriptions,
};
use crate::{
    identity::Owner,
    limit::{Accounts, Rated},
    observe::{Observer, Who},
    session::Caller,
    task::{Engine, TaskWriter},
    upstream::{Failure, Lease, NoSession, NotAgreed, Upstream},
    wire::{Kind, Message, Method, Parts, RpcError},
};

/// The revision.
pub const VERSION: &str = "2026-07-28";
/// The tasks extension.
const TASKS: &str = "io.modelcontextprotocol/tasks";
/// What the reserved keys of `_meta` begin with.
const PREFIX: &str = "io.modelcontextprotocol/";
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Answers clients of this generation from the engine, and from sessions with their servers.
#[derive(Debug)]
pub struct Modern {
    engine: Arc<Engine>,
    observer: Arc<Observer>,
    seals: Seals,
    parking: Arc<Parking>,
    subscriptions: Arc<Subscriptions>,
    /// How audit lines name the owners that were heard last.
    names: Cache<Owner, Arc<Who>>,
    /// The process stops: subscriptions end.
    stopping: CancellationToken,
}

/// Who sends a request, before it has been read.
#[derive(Debug)]
pub struct Sender<'a> {
    /// The upstream of the endpoint.
    pub upstream: &'a Arc<Upstream>,
    /// The principal, if there is one.
    pub principal: Option<Arc<str>>,
    /// What each owner has left of its rates.
    pub accounts: &'a Accounts,
}

/// A request that has been read.
#[derive(Clone, Debug)]
struct ClientRequest {
    message: Message,
    /// The raw id.
    id: Box<str>,
    method: Method,
    meta: RequestMeta,
    caller: Arc<Caller>,
    /// What goes on to the server.
    headers: HeaderMap,
}

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came<'a> {
    /// By HTTP, with these headers, which mirror the body.
    Http(&'a HeaderMap),
    /// On a channel without headers.
    Channel,
}

impl Modern {
    /// Returns a dialect in front of `engine`, whose states hold under `key`.
    ///
    /// # Errors
    /// A sentence, where the key cannot be used.
    pub fn new(engine: Arc<Engine>, key: &[u8; 32], observer: Arc<Observer>) -> Result<Arc<Self>, String> {
        let seals = Seals::new(key).map_err(|_| "the key of requestState cannot be used")?;
        let (parking, subscriptions) = (Parking::new(&observer), Subscriptions::new(&observer));
        let stopping = CancellationToken::new();
        let names = Cache::builder().max_capacity(MAX_NAMES).eviction_policy(EvictionPolicy::lru()).build();
        Ok(Arc::new(Self { engine, observer, seals, parking, subscriptions, names, stopping }))
    }

    /// Ends every subscription, when the process stops.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Answers one request; `onward` are the headers that go on to the server.
    ///
    /// # Errors
    /// [`Refused`]
    pub async fn answer(
        self: &Arc<Self>,
        sender: Sender<'_>,
        message: Message,
        came: Came<'_>,
        onward: HeaderMap,
    ) -> Result<Answer, Refused> {
        if message.kind() != Kind::Request {
            return Err(Refused::invalid_request("a body is one request; responses go into inputResponses"));
        }
        if let Came::Http(headers) = came {
            headers::check_version(headers, &message)?;
        }
        let meta = RequestMeta::read(&message)?;
        if let Came::Http(headers) = came {
            headers::check(headers, &message)?;
        }
        let request = self.read(sender, message, meta, onward);
        match request.method {
            Method::Discover => self.discover(request).await,
            Method::ToolsCall => self.call_tool(request).await,
            Method::ToolsList | Method::OtherList | Method::Complete => self.pass(request).await,
            Method::PromptsGet | Method::ResourcesRead => self.pass_or_resume(request).await,
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
                if !request.meta.tasks {
                    return Err(Refused::tasks_extension("task methods need the tasks extension"));
                }
                let counted = request.caller.account.count(Rated::TaskMethod);
                counted.map_err(|often| Refused::too_often(&often))?;
                match request.method {
                    Method::TasksGet => self.get(&request).await,
                    Method::TasksUpdate => self.update(&request).await,
                    _ => self.cancel(&request).await,
                }
            }
            Method::Listen => self.listen(request).await,
            _ => Err(Refused::method_not_found(&format!(
                "revision {VERSION} has no method {:?}",
                crate::wire::excerpt(&request.message.method_name())
            ))),
        }
    }

    fn read(&self, sender: Sender<'_>, message: Message, meta: RequestMeta, headers: HeaderMap) -> ClientRequest {
        let Sender { upstream, principal, accounts } = sender;
        let owner = match &principal {
            Some(name) => Owner::Principal { upstream: upstream.id.clone(), name: Arc::clone(name) },
            None => Owner::Anyone { upstream: upstream.id.clone() },
        };
        // The requests of one owner have one name in the audit log, as those of a session have.
        let named = || self.observer.who(principal.as_deref(), Uuid::new_v4(), &upstream.id);
        let (who, account) = (self.names.get_with_by_ref(&owner, named), accounts.of(&owner));
        let caller = Caller { owner, who, account, upstream: Arc::clone(upstream), client: meta.client, session: None };
        let (id, method) = (message.id_to_answer().into(), message.method());
        ClientRequest { message, id, method, meta, caller: Arc::new(caller), headers }
    }

    /// Returns a session with the server for a request, which may be asked something in the course of it where `asks`.
    async fn lease(&self, request: &ClientRequest, asks: bool) -> Result<Lease, Refused> {
        let caller = &request.caller;
        let leased = caller.upstream.lease(&caller.owner, caller.client, &request.headers, asks).await;
        leased.map_err(|why| match why {
            NoSession::NotAgreed(NotAgreed::Failed(failure)) => self.failed(request, &failure),
            why => RpcError::internal(why.to_string()).into(),
        })
    }

    /// Notes that a request failed upstream, and returns what its client is told.
    fn failed(&self, request: &ClientRequest, failure: &Failure) -> Refused {
        let who = &request.caller.who;
        let (upstream, cause) = (who.upstream(), failure.cause());
        self.observer.emit(crate::observe::events::ExchangeFailed { upstream, who: Some(who), task: None, cause });
        RpcError::from(failure).into()
    }
}

impl ClientRequest {
    /// Returns what a `requestState` for this request is good for.
    fn bound(&self) -> Bound {
        let credential = self.headers.get(header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
        Bound::of(&self.caller.owner, credential, &self.message)
    }

    /// Returns an answer with that raw `result`.
    fn result(&self, result: &str) -> Answer {
        Answer::Whole(StatusCode::OK, crate::wire::response::result_response(&self.id, result).into())
    }
}

impl From<Parts> for Answer {
    fn from(document: Parts) -> Self {
        Self::Whole(StatusCode::OK, document)
    }
}

/// Returns what writes for the streams of this generation.
#[must_use]
pub fn writer() -> &'static dyn TaskWriter {
    &Polled
}

/// Writes for streams of this generation, which get nothing of tasks: their clients poll.
#[derive(Debug)]
pub(super) struct Polled;

impl TaskWriter for Polled {
    fn name(&self) -> &'static str {
        "modern"
    }

    fn status(&self, _: &crate::task::Task) -> Option<Message> {
        None
    }

    fn tied(&self, _: Uuid, _: &Message) -> Option<Message> {
        None
    }

    fn is_progress(&self, _: Uuid, _: &Message) -> bool {
        false
    }

    /// A question is read where it stands, at the task.
    fn question(&self, _: Uuid, _: Uuid, request: &Message) -> Option<Message> {
        Some(request.clone())
    }

    fn withdrawal(&self, _: Uuid, _: Uuid) -> Option<Message> {
        None
    }

    fn question_of(&self, _: &Message) -> Option<Uuid> {
        None
    }
}

/// The response to a server's question, under its raw id.
fn reply(theirs: &str, result: &str) -> Bytes {
    crate::wire::response::result_response(theirs, result)
}

/// How many owners have a name that is remembered for the audit log.
const MAX_NAMES: u64 = 50_000;
/// How long a call that has asked waits for further questions, so that the client gets them together.
const GATHERS: Duration = Duration::from_millis(25);
