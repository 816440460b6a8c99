//! The handshake on both sides (revision 2025-11-25, "Lifecycle"): each side agrees on a revision of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
    time::Duration,
};

use http::HeaderMap;
use tokio::{
    sync::{RwLock, Semaphore},
    time::Instant,
};
use uuid::Uuid;

use super::{Session, Streams, Tasks, inbound};
use crate::{
    config::Native,
    flow::{Capacity, Item},
    identity::Owner,
    limit::Accounts,
    observe::Observer,
    upstream::{Exchange, Failure, Inbound, Link, MAX_MESSAGE, Outgoing, Purpose, Upstream, Vacancy},
    wire::{
        ClientCapabilities, Edits, Message, Params, Parts, RpcError, Version, excerpt,
        legacy::{SERVER_CAPABILITY, declares_tool_tasks},
        message::Outcome,
        object::{Members, quote},
    },
};

/// How long an upstream may take to answer `initialize`.
const INITIALIZE_TIMEOUT: Duration = Duration::from_mins(1);

/// What a handshake starts from.
#[derive(Debug)]
pub struct Opening<'a> {
    /// What to connect to.
    pub upstream: &'a Arc<Upstream>,
    /// The principal, if there is one.
    pub principal: Option<Arc<str>>,
    /// Without one: to whom an earlier session of the same client belonged.
    pub previous: Option<Owner>,
    /// Where the link will be.
    pub vacancy: Vacancy,
    /// What may wait for readers.
    pub outbox: &'a Arc<Capacity>,
    /// How many streams of the session may answer requests at once.
    pub max_streams: usize,
    /// What each owner has left of its rates.
    pub accounts: &'a Accounts,
    /// Where to report.
    pub observer: &'a Arc<Observer>,
}

/// A session, and what to answer.
#[derive(Debug)]
pub struct Opened {
    /// The new session.
    pub session: Arc<Session>,
    /// The answer to `initialize`.
    pub answer: Parts,
    /// Whether the upstream answered with a stream.
    pub streams: bool,
}

/// No session came about.
#[derive(Debug)]
pub enum NotOpened {
    /// The request was wrong.
    Invalid(RpcError),
    /// The upstream answered with an error, which is the client's answer, under its id.
    Upstream(Parts),
    /// The upstream gave no answer.
    Failed(Failure),
}

impl Opening<'_> {
    /// Initialises a session upstream with the client's own `initialize`.
    ///
    /// # Errors
    /// [`NotOpened`]
    pub async fn open(mut self, request: &Message, headers: HeaderMap) -> Result<Opened, NotOpened> {
        let Offer { version: requested, client } = offer(request).map_err(NotOpened::Invalid)?;
        // Section "Version Negotiation": the version asked for if it is spoken, else the latest.
        let version = Version::parse(&requested).unwrap_or(Version::LATEST);
        let inbound = inbound(&self.upstream.id, client, self.outbox, self.observer);
        let vacancy = std::mem::take(&mut self.vacancy);
        let link = self.upstream.server.connect(inbound.clone(), vacancy).await.map_err(NotOpened::Failed)?;
        let mut handshake = Handshake { link: Arc::clone(&link), headers: headers.clone(), finished: false };
        let done = self.handshake(request, version, &inbound, &link, &headers).await;
        let (answer, upstream_version, streams) = done?;
        let id = Uuid::new_v4();
        let edited = self.edit(&answer, request, (version, upstream_version));
        let (answer, tasks, lists) = edited.map_err(|why| NotOpened::Failed(Failure::BadAnswer(why)))?;
        link.agreed(upstream_version);
        handshake.finished = true;
        if tasks != Tasks::Served {
            inbound.native.show(lists);
        }
        let who = self.observer.who(self.principal.as_deref(), id, &self.upstream.id);
        let owner = match self.principal {
            Some(name) => Owner::Principal { upstream: self.upstream.id.clone(), name },
            None => self.previous.unwrap_or(Owner::Session(id)),
        };
        let session = Session {
            id,
            account: self.accounts.of(&owner),
            who,
            owner,
            upstream: Arc::clone(self.upstream),
            version,
            tasks,
            late: Arc::new(Semaphore::new(super::MAX_LATE)),
            inbound,
            link,
            streams: Streams::new(self.outbox, self.max_streams, version.interrupts_streams()),
            opened: Instant::now(),
            last_used: AtomicU64::new(0),
            uses: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            lets_tasks_in: Arc::new(RwLock::new(true)),
        };
        Ok(Opened { session: Arc::new(session), answer, streams })
    }

    /// Sends `initialize` until the upstream agrees on a revision that is spoken here.
    async fn handshake(
        &self,
        request: &Message,
        version: Version,
        inbound: &Inbound,
        link: &Arc<dyn Link>,
        headers: &HeaderMap,
    ) -> Result<(Message, Version, bool), NotOpened> {
        let mut offer = version;
        loop {
            let too_many = |error: crate::upstream::TooMany| NotOpened::Invalid(RpcError::internal(error.to_string()));
            let mut exchange = inbound.exchanges.begin(None, Purpose::Foreground).map_err(too_many)?;
            let message = offering(request, exchange.number, offer);
            let (number, headers) = (exchange.number, headers.clone());
            let outgoing = Outgoing { number, message, headers, max_answer: MAX_MESSAGE, relay: false };
            exchange.carry(link.request(outgoing));
            let answer = match tokio::time::timeout(INITIALIZE_TIMEOUT, ending(&mut exchange, inbound)).await {
                Ok(ending) => ending.map_err(NotOpened::Failed)?,
                Err(_) => return Err(NotOpened::Failed(Failure::TimedOut(INITIALIZE_TIMEOUT))),
            };
            match answer.outcome() {
                Some((Outcome::Result, result)) => {
                    let theirs = Members::parse(result).ok().and_then(|result| result.text("protocolVersion"));
                    let theirs = theirs.unwrap_or_default().into_owned();
                    let spoken = Version::parse(&theirs).ok_or_else(|| {
                        let why =
                            format!("it speaks revision {:?}, taskgate speaks {}", excerpt(&theirs), Version::list());
                        NotOpened::Failed(Failure::BadAnswer(why))
                    })?;
                    return Ok((answer, spoken, exchange.streams()));
                }
                Some((Outcome::Error, error)) => match Version::supported_below(error, offer) {
                    Some(lower) => offer = lower,
                    None => return Err(NotOpened::Upstream(under_id_of(&answer, request))),
                },
                None => return Err(NotOpened::Failed(Failure::BadAnswer("it is no response".to_owned()))),
            }
        }
    }

    /// Puts in the client's id and revision and, where taskgate serves tasks, the capability. Returns besides who serves tasks,
    /// and whether the server lists its own.
    fn edit(
        &self,
        answer: &Message,
        request: &Message,
        (version, theirs): (Version, Version),
    ) -> Result<(Parts, Tasks, bool), String> {
        let Some((_, raw)) = answer.outcome() else { return Err("it is no response".to_owned()) };
        let result = Members::parse(raw)?;
        let capabilities = result.nested("capabilities")?;
        // A server of an older revision cannot have tasks, whatever it declares.
        let native = theirs.has_tasks() && capabilities.as_ref().is_some_and(declares_tool_tasks);
        let tasks = match (version.has_tasks(), self.upstream.native) {
            (false, _) => Tasks::Off,
            (true, Native::Keep) if native => Tasks::Native,
            (true, Native::Auto) if native => Tasks::Both,
            (true, _) => Tasks::Served,
        };
        let mut edits = Edits::of(answer.bytes());
        if let (Some(span), Some(id)) = (answer.id_span(), request.id()) {
            edits.replace(span, id);
        }
        edits.set(&result, "protocolVersion", &quote(version.as_str()));
        let own = capabilities.as_ref().and_then(|capabilities| capabilities.object("tasks"));
        let lists = own.as_ref().is_some_and(|own| own.get("list").is_some());
        match (tasks, &capabilities, own) {
            (Tasks::Off | Tasks::Native, ..) => {}
            (Tasks::Both, _, Some(own)) => {
                for method in ["list", "cancel"].into_iter().filter(|method| own.get(method).is_none()) {
                    edits.set(&own, method, "{}");
                }
            }
            (_, Some(capabilities), _) => edits.set(capabilities, "tasks", SERVER_CAPABILITY),
            (_, None, _) => {
                edits.set(&result, "capabilities", &format!(r#"{{"tasks":{SERVER_CAPABILITY}}}"#));
            }
        }
        Ok((edits.apply(), tasks, lists))
    }
}

/// Closes the link of a handshake that fails, or whose client leaves.
struct Handshake {
    link: Arc<dyn Link>,
    headers: HeaderMap,
    finished: bool,
}

impl Drop for Handshake {
    fn drop(&mut self) {
        if !self.finished {
            self.link.close(std::mem::take(&mut self.headers));
        }
    }
}

/// What a client says of itself.
struct Offer {
    /// The revision that it asks for.
    version: String,
    client: ClientCapabilities,
}

fn offer(request: &Message) -> Result<Offer, RpcError> {
    let params = request.params().map(Params::parse).transpose()?;
    let version = params.as_ref().and_then(|params| params.members.text("protocolVersion"));
    let (Some(params), Some(version)) = (&params, version) else {
        let why = "Invalid params: initialize needs params.protocolVersion, a string";
        return Err(RpcError::invalid_params(why));
    };
    let client = ClientCapabilities::of(&params.members);
    let client = client.map_err(|why| RpcError::invalid_params(format!("Invalid params: {why}")))?;
    Ok(Offer { version: version.into_owned(), client })
}

/// The client's `initialize` under our number, offering `version`.
fn offering(request: &Message, number: u64, version: Version) -> bytes::Bytes {
    let mut edits = Edits::of(request.bytes());
    if let Some(id) = request.id_span() {
        edits.replace(id, number.to_string());
    }
    if let Some(params) = request.params().and_then(|params| Members::parse(params).ok()) {
        edits.set(&params, "protocolVersion", &quote(version.as_str()));
    }
    edits.apply().into_bytes()
}

/// Waits for the response; what the upstream sends before it is kept for the GET stream.
async fn ending(exchange: &mut Exchange, inbound: &Inbound) -> Result<Message, Failure> {
    loop {
        match exchange.next().await {
            Some(Item::Message(message)) => drop(inbound.queue(message)),
            Some(Item::Silence | Item::Pause(_)) => {}
            Some(Item::End(ending)) => return ending?.whole().await,
            None => return Err(Failure::Abandoned),
        }
    }
}

fn under_id_of(answer: &Message, request: &Message) -> Parts {
    super::translate::with_id(answer, request.id_to_answer())
}
