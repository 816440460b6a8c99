//! A client's `initialize` (revision 2025-11-25, "Lifecycle"): agrees on a revision with the client and one with the
//! server.

use std::sync::{Arc, atomic::AtomicBool};

use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::RwLock;
use uuid::Uuid;

use super::{Caller, Session, Streams, Tasks};
use crate::{
    config::Native,
    disk::{Disk, SessionWrites},
    flow::{ByteRoom, Capacity},
    identity::Owner,
    limit::Accounts,
    observe::Observer,
    upstream::{Agreed, Failure, Handshake, NotAgreed, Upstream, Vacancy},
    wire::{
        ClientCapabilities, Edits, Message, Params, Parts, RpcError, Version, excerpt,
        legacy::{SERVER_CAPABILITY, declares_tool_tasks},
        modern::VERSION as MODERN,
        object::{Members, quote},
        response::error_response,
    },
};

/// What a session starts from.
#[derive(Debug)]
pub struct SessionOpening<'a> {
    /// What to connect to.
    pub upstream: &'a Arc<Upstream>,
    /// The principal, if there is one.
    pub principal: Option<Arc<str>>,
    /// The owner of an earlier session of the same client, if it has no principal.
    pub previous: Option<Owner>,
    /// Where the link will be.
    pub vacancy: Vacancy,
    /// How much may wait for readers.
    pub capacity: &'a Arc<Capacity>,
    /// How many streams of the session may answer requests at once.
    pub max_streams: usize,
    /// What each owner has left of its rates.
    pub accounts: &'a Accounts,
    /// Where the session is kept for a later process, if it is.
    pub disk: Option<Disk>,
    /// Where to report.
    pub observer: &'a Arc<Observer>,
}

/// A session that was opened, and what to answer.
#[derive(Debug)]
pub struct OpenedSession {
    /// The new session.
    pub session: Arc<Session>,
    /// The answer to `initialize`.
    pub answer: Parts,
    /// Whether the upstream answered with a stream.
    pub streams: bool,
}

/// Why no session was opened.
#[derive(Debug)]
pub enum SessionNotOpened {
    /// The request was wrong.
    Invalid(RpcError),
    /// The upstream answered with an error, which is the client's answer, under its id.
    Upstream(Parts),
    /// The upstream gave no answer.
    Failed(Failure),
}

impl SessionOpening<'_> {
    /// Opens a session with the server by the client's own `initialize`, and one for the client.
    ///
    /// # Errors
    /// [`SessionNotOpened`]
    pub async fn open(self, request: &Message, headers: HeaderMap) -> Result<OpenedSession, SessionNotOpened> {
        let Offer { version: requested, client, declares_tasks } = offer(request).map_err(SessionNotOpened::Invalid)?;
        // Section "Version Negotiation": the version asked for if taskgate speaks it, else the latest.
        let version = Version::parse(&requested).unwrap_or(Version::LATEST);
        let Self { upstream, principal, previous, vacancy, capacity, max_streams, accounts, disk, observer } = self;
        let (id, server) = (&upstream.id, &upstream.server);
        let session_id = Uuid::new_v4();
        let who = observer.who(principal.as_deref(), session_id, &upstream.id);
        let owner = match principal {
            Some(name) => Owner::principal(upstream.id.clone(), name),
            None => previous.unwrap_or(Owner::session(session_id)),
        };
        let (tools, known) = (Arc::default(), Some(owner.clone()));
        let handshake =
            Handshake { id, server, client, vacancy, pooled: false, owner: known, tools, capacity, observer };
        let agreed = match handshake.agree(request, version, &headers).await {
            Err(NotAgreed::Refused { may_be_modern: true, .. })
                if upstream.pool.turns_out_modern(server, &headers).await =>
            {
                upstream.hints.note_no_sessions(id, observer);
                return Err(SessionNotOpened::Upstream(no_sessions(request, &requested)));
            }
            agreed => agreed?,
        };
        let Agreed { session, answer, version: theirs, streams } = agreed;
        let edited = edit(&answer, request, Revisions { ours: version, theirs }, upstream.native);
        let Edited { answer, tasks, lists } = edited.map_err(|why| {
            session.close(headers);
            SessionNotOpened::Failed(Failure::BadAnswer(why))
        })?;
        if tasks != Tasks::Served {
            session.native().show(lists);
        }
        let account = accounts.of(&owner);
        let caller = Caller { owner, who, account, upstream: Arc::clone(upstream), client, session: Some(session_id) };
        let session = Session {
            id: session_id,
            caller: Arc::new(caller),
            upstream_session: Arc::new(session),
            version,
            tasks,
            declares_tasks,
            late: ByteRoom::new(super::MAX_LATE),
            streams: Streams::new(capacity, max_streams, version.interrupts_streams()),
            ended: AtomicBool::new(false),
            admits_tasks: Arc::new(RwLock::new(true)),
            disk,
            written: Mutex::default(),
            writes: SessionWrites::default(),
            observer: Arc::clone(observer),
        };
        Ok(OpenedSession { session: Arc::new(session), answer, streams })
    }
}

/// Returns the error for a client with sessions in front of a server without any.
fn no_sessions(request: &Message, requested: &str) -> Parts {
    let message = format!(
        "Unsupported protocol version: the server behind taskgate speaks revision {MODERN} only, which has no initialize; use a \
         client of that revision"
    );
    let data = json!({ "supported": [MODERN], "requested": excerpt(requested) });
    let error = json!({ "code": -32022, "message": message, "data": data }).to_string();
    error_response(request.id_to_answer(), &error).into()
}

impl From<NotAgreed> for SessionNotOpened {
    fn from(why: NotAgreed) -> Self {
        match why {
            NotAgreed::TooMany(too_many) => Self::Invalid(RpcError::internal(too_many.to_string())),
            NotAgreed::Refused { answer, .. } => Self::Upstream(answer),
            NotAgreed::Failed(failure) => Self::Failed(failure),
        }
    }
}

/// The revisions that were agreed: with the client, and with the server.
#[derive(Clone, Copy)]
struct Revisions {
    ours: Version,
    theirs: Version,
}

/// The answer to `initialize`, and what it says of tasks.
struct Edited {
    answer: Parts,
    tasks: Tasks,
    /// Whether the server lists its own tasks.
    lists: bool,
}

/// Puts the client's id and revision into the server's answer and, where taskgate serves tasks, the capability.
fn edit(answer: &Message, request: &Message, agreed: Revisions, native: Native) -> Result<Edited, String> {
    let Some((_, raw)) = answer.outcome() else { return Err("it is no response".to_owned()) };
    let result = Members::parse(raw)?;
    let capabilities = result.nested("capabilities")?;
    // A server of an older revision cannot have tasks, whatever it declares.
    let has_tasks = agreed.theirs.has_tasks() && capabilities.as_ref().is_some_and(declares_tool_tasks);
    let tasks = match (agreed.ours.has_tasks(), native) {
        (false, _) => Tasks::Off,
        (true, Native::Keep) if has_tasks => Tasks::Native,
        (true, Native::Auto) if has_tasks => Tasks::Both,
        (true, _) => Tasks::Served,
    };
    let mut edits = Edits::of(answer.bytes());
    if let (Some(span), Some(id)) = (answer.id_span(), request.id()) {
        edits.replace(span, id);
    }
    edits.set(&result, "protocolVersion", &quote(agreed.ours.as_str()));
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
    Ok(Edited { answer: edits.apply(), tasks, lists })
}

/// What a client says of itself.
struct Offer {
    /// The revision that it asks for.
    version: String,
    client: ClientCapabilities,
    /// Whether it declares tasks of its own.
    declares_tasks: bool,
}

/// Reads what a client says of itself.
fn offer(request: &Message) -> Result<Offer, RpcError> {
    let params = request.params().map(Params::parse).transpose()?;
    let version = params.as_ref().and_then(|params| params.members.text("protocolVersion"));
    let (Some(params), Some(version)) = (&params, version) else {
        let why = "initialize needs params.protocolVersion, a string";
        return Err(RpcError::bad_params(why));
    };
    let client = ClientCapabilities::of(&params.members);
    let client = client.map_err(RpcError::bad_params)?;
    let capabilities = params.members.object("capabilities");
    let declares_tasks = capabilities.is_some_and(|capabilities| capabilities.get("tasks").is_some());
    Ok(Offer { version: version.into_owned(), client, declares_tasks })
}
