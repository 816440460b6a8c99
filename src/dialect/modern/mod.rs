//! Clients of revision 2026-07-28: each request says all that is needed to answer it, tasks are
//! an extension that the server's side decides about, and questions are parts of answers.

mod adoptable;
mod again;
mod becoming_task;
mod discover;
mod error;
mod for_legacy;
mod headers;
mod hosts;
mod input;
mod jobs;
mod lacks;
mod last_caller;
mod leases;
mod listen;
mod listen_through;
mod listen_to_tasks;
mod meaning;
mod meta;
mod onward;
mod param_headers;
mod parked;
mod passing;
mod pieces;
mod questions;
mod remembered;
mod request_state;
mod run;
mod said;
mod send;
mod subscriptions;
mod tasks;
mod tools;
mod translate;
mod watched;
mod writer;

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use error::Refused;
pub use headers::MIRRORED;
pub use last_caller::LastCaller;
pub use onward::answers_alone;
pub use pieces::{Answer, Pieces};
pub use writer::writer;

use self::{
    for_legacy::ForLegacy,
    headers::Mirrors,
    input::RetryMembers,
    meta::RequestMeta,
    onward::Whose,
    parked::Parking,
    request_state::{Bound, Seals},
    subscriptions::Subscriptions,
    writer::Polled,
};
use crate::{
    config::RequiredTools,
    dialect::tools::JobTools,
    flow::Capacity,
    identity::Owner,
    limit::{Accounts, FlightGuard, InFlight, Rated},
    observe::Observer,
    session::Caller,
    task::Engine,
    upstream::{Failure, Generation, Lease, Upstream, refusal_with_id},
    wire::{
        Kind, Message, Method, Parts, headers_cost,
        modern::{CLIENT_CAPABILITIES, PROTOCOL_VERSION, SERVER_INFO, SUBSCRIPTION_ID, TASKS, VERSION},
        object::Members,
    },
};

/// What the reserved keys of `_meta` begin with.
const PREFIX: &str = "io.modelcontextprotocol/";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Answers clients of this generation from the engine, and from sessions with their servers.
#[derive(Debug)]
pub struct Modern {
    engine: Arc<Engine>,
    /// Helps hosts that do not declare the extension.
    tools: Arc<JobTools>,
    observer: Arc<Observer>,
    seals: Seals,
    in_flight: Arc<InFlight>,
    parking: Arc<Parking>,
    subscriptions: Arc<Subscriptions>,
    /// How much may wait for readers.
    capacity: Arc<Capacity>,
    /// Cancelled when the process begins to stop: subscriptions of which no task runs end.
    stopping: CancellationToken,
    /// Cancelled when the process waits for tasks no longer: all other subscriptions end.
    drained: CancellationToken,
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
    /// Who has sent the last request on the connection.
    pub last: &'a LastCaller,
}

/// A request that has been read.
#[derive(Debug)]
struct ClientRequest {
    message: Message,
    /// When it came: its client's patience counts from then.
    came: Instant,
    method: Method,
    meta: RequestMeta,
    caller: Arc<Caller>,
    /// What goes on to the server.
    headers: HeaderMap,
    /// Whether headers mirror it.
    is_mirrored: bool,
    /// What it is about: the name of a tool or a prompt, a resource, a task.
    subject: Option<Arc<str>>,
    /// Which members of a retry its `params` have.
    retry: RetryMembers,
    /// What makes it a request for a legacy server.
    for_legacy: ForLegacy,
    /// Counts it among the requests in flight from [`Modern::begin`] on.
    in_flight: Option<FlightGuard>,
    /// What was opened to find out the generation of the server, for this request.
    opened: Option<Arc<Lease>>,
    /// Whether it was counted as a look-up of an unknown id, before its server was asked.
    looked_up: bool,
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
    #[must_use]
    pub fn new(engine: Arc<Engine>, key: &[u8; 32], capacity: Arc<Capacity>, observer: Arc<Observer>) -> Arc<Self> {
        let seals = Seals::new(key);
        let (parking, subscriptions) = (Parking::new(&observer), Subscriptions::new(&observer));
        let in_flight = InFlight::new(&observer);
        let (stopping, drained) = (CancellationToken::new(), CancellationToken::new());
        let tools = JobTools::new(Arc::clone(&engine), Arc::clone(&observer));
        Arc::new(Self {
            engine,
            tools,
            observer,
            seals,
            in_flight,
            parking,
            subscriptions,
            capacity,
            stopping,
            drained,
        })
    }

    /// Ends the subscriptions of which no task runs, and lets no more of them in: the process stops, and waits for tasks.
    pub fn drain(&self) {
        self.stopping.cancel();
    }

    /// Ends every subscription: the process stops, and waits for tasks no longer.
    pub fn stop(&self) {
        self.stopping.cancel();
        self.drained.cancel();
    }

    /// Answers one request; `onward` are the headers that go on to the server, if it does ([`answers_alone`]).
    ///
    /// # Errors
    /// [`Refused`]
    pub async fn answer(
        self: &Arc<Self>,
        sender: Sender<'_>,
        message: Message,
        came: Came<'_>,
        onward: Option<HeaderMap>,
    ) -> Result<Answer, Refused> {
        if message.kind() != Kind::Request {
            return Err(Refused::invalid_request("a body is one request; responses go into inputResponses"));
        }
        let answers_alone = onward.is_none();
        let mut request = self.read(sender, message, came, onward)?;
        if let Method::TasksGet | Method::TasksUpdate | Method::TasksCancel = request.method {
            if !request.meta.tasks {
                return Err(Refused::tasks_extension("task methods need the tasks extension"));
            }
            // Rare paths are boxed here and below, so that the future of a call stays small.
            return if !answers_alone && Box::pin(self.is_of_server(&mut request)).await? {
                Box::pin(self.pass(request)).await
            } else {
                self.task(&request).await
            };
        }
        if REMOVED.contains(&request.method) {
            return Err(no_method(&request));
        }
        if request.method == Method::Listen && !request.retry.state && self.listens_to_own_tasks(&request).await {
            return Box::pin(self.listen(request)).await;
        }
        let generation = match self.generation(&mut request).await {
            Ok(generation) => generation,
            Err(refused) => return Box::pin(self.job_without_server(request, refused)).await,
        };
        match request.method {
            _ if generation.is_modern() => Box::pin(self.pass_up(request, generation)).await,
            // None of these was ever answered with a state.
            Method::Discover | Method::ToolsList | Method::OtherList | Method::Complete | Method::Listen
                if request.retry.state =>
            {
                Err(self.refuse_state(&request.caller))
            }
            Method::Discover => Box::pin(self.discover(request)).await,
            Method::ToolsCall => self.call_tool(request).await,
            Method::ToolsList | Method::OtherList | Method::Complete => self.pass(request).await,
            Method::PromptsGet | Method::ResourcesRead => self.pass_or_resume(request).await,
            Method::Listen => Box::pin(self.listen(request)).await,
            _ => Err(no_method(&request)),
        }
    }

    /// Answers a method about a task of taskgate.
    async fn task(self: &Arc<Self>, request: &ClientRequest) -> Result<Answer, Refused> {
        let counted = request.caller.account.count(Rated::TaskMethod);
        counted.map_err(|often| Refused::too_often(&often))?;
        match request.method {
            Method::TasksGet => self.get(request).await,
            Method::TasksUpdate => Box::pin(self.update(request)).await,
            _ => Box::pin(self.cancel(request)).await,
        }
    }

    /// Checks a request, and returns what it says.
    fn read(
        &self,
        sender: Sender<'_>,
        message: Message,
        came: Came<'_>,
        onward: Option<HeaderMap>,
    ) -> Result<Box<ClientRequest>, Refused> {
        let Sender { upstream, principal, accounts, last } = sender;
        let params = RequestMeta::params(&message)?;
        let mirrors = match came {
            Came::Http(headers) => Some(Mirrors::of(headers)),
            Came::Channel => None,
        };
        let meta = read_meta(&params, mirrors, upstream)?;
        let subject = headers::subject(message.method(), &params);
        mirrors.map_or(Ok(()), |mirrors| mirrors.check(&message, subject.as_deref()))?;
        let retry = RetryMembers::of(&params);
        // One that goes no further stays as it is.
        let for_legacy = onward.as_ref().map(|_| ForLegacy::of(&message, &params, meta.for_legacy.as_deref()));
        drop(params);
        let came = Instant::now();
        let caller = last.recognise(upstream, principal.as_deref(), meta.client, came, || {
            let owner = match &principal {
                Some(name) => Owner::principal(upstream.id.clone(), Arc::clone(name)),
                None => Owner::anyone(upstream.id.clone()),
            };
            let account = accounts.of(&owner);
            let who = account.who(|| self.observer.who(principal.as_deref(), Uuid::new_v4(), &upstream.id));
            Caller { owner, who, account, upstream: Arc::clone(upstream), client: meta.client, session: None }
        });
        let method = message.method();
        Ok(Box::new(ClientRequest {
            message,
            came,
            method,
            meta,
            caller,
            headers: onward.unwrap_or_default(),
            is_mirrored: mirrors.is_some(),
            subject,
            retry,
            for_legacy: for_legacy.unwrap_or_default(),
            in_flight: None,
            opened: None,
            looked_up: false,
        }))
    }

    /// Counts a request as in flight until it ends or is a task. One that counts already keeps its place.
    fn begin(&self, request: &mut ClientRequest) -> Result<(), Refused> {
        if request.in_flight.is_none() {
            let begun = self.in_flight.begin(&request.caller.account, request.bytes());
            request.in_flight = Some(begun.map_err(|why| Refused::limit("sessionless_requests", &why))?);
        }
        Ok(())
    }

    /// Notes that a request failed upstream, and returns what its client is told.
    fn failed(&self, request: &ClientRequest, failure: &Failure) -> Refused {
        let who = &request.caller.who;
        let (upstream, cause) = (who.upstream(), failure.cause());
        self.observer.emit(crate::observe::events::ExchangeFailed { upstream, who: Some(who), task: None, cause });
        let mut refused = Refused::from(failure);
        refused.unauthorized = refused.unauthorized.map(|refusal| refusal_with_id(refusal, request.id()));
        refused
    }
}

/// The methods of older revisions that this one has no more, whatever server is behind.
const REMOVED: [Method; 7] = [
    Method::Initialize,
    Method::Ping,
    Method::SetLevel,
    Method::Subscribe,
    Method::Unsubscribe,
    Method::TasksList,
    Method::TasksResult,
];

/// Reads the `_meta` in `params`, and checks the revision that it names.
fn read_meta(params: &Members<'_>, mirrors: Option<Mirrors<'_>>, upstream: &Upstream) -> Result<RequestMeta, Refused> {
    let raw = params.get("_meta").unwrap_or_default();
    if let Some(meta) = remembered::recall(raw) {
        mirrors.map_or(Ok(()), |mirrors| mirrors.check_version(VERSION))?;
        return Ok(meta);
    }
    let declared = RequestMeta::members(params)?;
    if let (Some(mirrors), Some(version)) = (mirrors, declared.text(PROTOCOL_VERSION)) {
        mirrors.check_version(&version)?;
    }
    // A server that is not known yet may speak no older one.
    let unknown = || upstream.pool.generation().is_none().then(|| [VERSION.to_owned()].into());
    let meta = RequestMeta::read(&declared, upstream.pool.versions().or_else(unknown).as_deref())?;
    remembered::remember(raw, &meta);
    Ok(meta)
}

/// Returns whether a server may ask in the course of such a request ("Multi Round-Trip Requests").
const fn may_be_asked_about(method: Method) -> bool {
    matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
}

fn no_method(request: &ClientRequest) -> Refused {
    let name = request.message.method_name();
    Refused::method_not_found(&format!("revision {VERSION} has no method {:?}", crate::wire::excerpt(&name)))
}

impl ClientRequest {
    /// Returns the raw id.
    fn id(&self) -> &str {
        self.message.id_to_answer()
    }

    /// Returns how many bytes are kept of it.
    fn bytes(&self) -> usize {
        let subject = self.subject.as_deref().map_or(0, str::len);
        self.message.bytes().len() + self.for_legacy.bytes() + headers_cost(&self.headers) + subject
    }

    /// Returns whether a call may become a job: the request declares no tasks, and such requests get jobs.
    fn gets_jobs(&self, generation: Generation) -> bool {
        !self.meta.tasks && self.hosts_get_jobs(generation)
    }

    /// Returns whether requests that declare no tasks get jobs: a server of that generation does not keep tasks to
    /// itself.
    fn hosts_get_jobs(&self, generation: Generation) -> bool {
        self.caller.upstream.policy.has_jobs(RequiredTools::Refused) && self.whose(generation) != Whose::Theirs
    }

    /// Returns what a `requestState` for this request is good for.
    fn bound(&self) -> Bound {
        Bound::of(&self.caller.owner, &self.headers, &self.message)
    }

    /// Returns an answer with that raw `result`.
    fn result(&self, result: &str) -> Answer {
        Answer::Whole(StatusCode::OK, crate::wire::response::result_response(self.id(), result).into())
    }
}

impl From<Parts> for Answer {
    fn from(document: Parts) -> Self {
        Self::Whole(StatusCode::OK, document)
    }
}
