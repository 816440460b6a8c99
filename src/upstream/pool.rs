//! Sessions with a legacy server for callers that have none of their own: opened on demand, shared by callers of the same
//! key, ended when they are idle.

use std::{
    collections::HashMap,
    fmt,
    future::poll_fn,
    sync::{Arc, Weak},
    time::Duration,
};

use ::http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::{Agreed, Failure, Handshake, NotAgreed, Server, UpstreamGuard, UpstreamSession};
use crate::{
    config::UpstreamId,
    flow::{Capacity, Item, Outbox, Tally},
    identity::Owner,
    observe::{Observer, events},
    wire::{
        ClientCapabilities, Kind, Message, Method, RpcError, Version,
        message::Outcome,
        object::{Members, quote},
    },
};

/// How many notifications of a server a subscriber may be behind before it misses some.
const BEHIND: usize = 256;

/// Whose calls may share a session: one that is asked may see what another one asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// Who calls.
    pub owner: Owner,
    /// A digest of the credential that goes on to the server, if one does.
    pub credential: Option<[u8; 32]>,
    /// What the caller can be asked.
    pub client: ClientCapabilities,
}

/// What a server said of itself in the handshake, raw.
#[derive(Debug)]
pub struct ServerFacts {
    /// `serverInfo`
    pub server_info: String,
    /// `capabilities`
    pub capabilities: String,
    /// `instructions`, if it gave any
    pub instructions: Option<String>,
}

/// How many sessions a pool holds.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// For one owner.
    pub per_owner: usize,
    /// In all.
    pub all: usize,
}

/// The sessions of one upstream.
#[derive(Debug)]
pub struct SessionPool {
    /// The upstream, for the log.
    id: UpstreamId,
    slots: Mutex<HashMap<PoolKey, Arc<Slot>>>,
    limits: PoolLimits,
    capacity: Arc<Capacity>,
    observer: Arc<Observer>,
}

/// The sessions of one key.
#[derive(Debug, Default)]
struct Slot {
    /// The session that calls share. The lock is held during its handshake.
    shared: tokio::sync::Mutex<Option<Arc<Pooled>>>,
    /// Sessions that one call at a time has for itself.
    single: Mutex<Vec<Arc<Pooled>>>,
}

/// A session of the pool.
#[derive(Debug)]
pub struct Pooled {
    /// The session.
    pub session: Arc<UpstreamSession>,
    /// What its server said of itself.
    pub facts: ServerFacts,
    /// What the server tells that belongs to no call.
    changes: broadcast::Sender<Message>,
    /// How many subscriptions each resource has.
    subscribed: Mutex<Tally<String>>,
    /// The upstream, for the log.
    upstream: UpstreamId,
    observer: Arc<Observer>,
}

/// A session in use by one call.
#[derive(Debug)]
pub struct Lease {
    /// Keeps the session in use.
    pub guard: UpstreamGuard,
    /// The session.
    pub pooled: Arc<Pooled>,
    /// Where a session goes back to that the call has for itself.
    single: Option<Arc<Slot>>,
}

/// Why there is no session.
#[derive(Debug)]
pub enum NoSession {
    /// As many are open as may be.
    Full(String),
    /// The server did not agree.
    NotAgreed(NotAgreed),
}

impl fmt::Display for NoSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(why) => f.write_str(why),
            Self::NotAgreed(NotAgreed::TooMany(why)) => why.fmt(f),
            Self::NotAgreed(NotAgreed::Refused(_)) => f.write_str("the server refused the session"),
            Self::NotAgreed(NotAgreed::Failed(failure)) => failure.fmt(f),
        }
    }
}

impl SessionPool {
    /// An empty pool.
    #[must_use]
    pub fn new(id: UpstreamId, limits: PoolLimits, capacity: Arc<Capacity>, observer: Arc<Observer>) -> Self {
        Self { id, slots: Mutex::default(), limits, capacity, observer }
    }

    /// Returns a session of `key`: the one that calls share or, for a `single` call, one that no other call has.
    ///
    /// # Errors
    /// [`NoSession`]
    pub async fn lease(
        &self,
        server: &Server,
        key: &PoolKey,
        single: bool,
        headers: &HeaderMap,
    ) -> Result<Lease, NoSession> {
        let slot = self.slot(key)?;
        if single {
            let idle = {
                let mut idle = slot.single.lock();
                idle.retain(|pooled| !pooled.session.is_lost());
                idle.pop()
            };
            let pooled = match idle {
                Some(pooled) => pooled,
                None => self.open(server, key, headers).await?,
            };
            return Ok(Lease { guard: pooled.session.hold(), pooled, single: Some(slot) });
        }
        let mut shared = slot.shared.lock().await;
        if let Some(pooled) = shared.as_ref().filter(|pooled| !pooled.session.is_lost()) {
            return Ok(Lease { guard: pooled.session.hold(), pooled: Arc::clone(pooled), single: None });
        }
        let pooled = self.open(server, key, headers).await?;
        let guard = pooled.session.hold();
        if let Some(lost) = shared.replace(Arc::clone(&pooled)) {
            lost.session.close_when_unused(HeaderMap::new());
        }
        Ok(Lease { guard, pooled, single: None })
    }

    fn slot(&self, key: &PoolKey) -> Result<Arc<Slot>, NoSession> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(key) {
            return Ok(Arc::clone(slot));
        }
        if slots.len() >= self.limits.all {
            let max = self.limits.all;
            return Err(NoSession::Full(format!(
                "limit reached: server.max_sessions = {max} sessions with the server are open; try again later"
            )));
        }
        if slots.keys().filter(|other| other.owner == key.owner).count() >= self.limits.per_owner {
            let max = self.limits.per_owner;
            return Err(NoSession::Full(format!(
                "limit reached: server.max_sessions_per_owner = {max} sessions of yours are open; try again later"
            )));
        }
        let slot = Arc::<Slot>::default();
        slots.insert(key.clone(), Arc::clone(&slot));
        Ok(slot)
    }

    async fn open(&self, server: &Server, key: &PoolKey, headers: &HeaderMap) -> Result<Arc<Pooled>, NoSession> {
        let failed = |failure| NoSession::NotAgreed(NotAgreed::Failed(failure));
        let vacancy = server.vacancy().await.map_err(failed)?;
        let handshake = Handshake {
            id: &self.id,
            server,
            client: key.client,
            vacancy,
            capacity: &self.capacity,
            observer: &self.observer,
        };
        let request = initialize(key.client);
        let agreed = handshake.agree(&request, Version::LATEST, headers).await.map_err(NoSession::NotAgreed)?;
        let Agreed { session, answer, .. } = agreed;
        let session = Arc::new(session);
        let facts = facts(&answer).map_err(|why| failed(Failure::BadAnswer(why)))?;
        let initialized = Message::parse(INITIALIZED.into());
        let initialized = initialized.map_err(|why| failed(Failure::BadAnswer(why.to_string())))?;
        session.forward(&initialized, headers.clone()).await.map_err(failed)?;
        let (changes, _) = broadcast::channel(BEHIND);
        tokio::spawn(hear(Arc::downgrade(&session), Arc::clone(session.outbox()), changes.clone()));
        Ok(Arc::new(Pooled::new(session, facts, changes, self)))
    }

    /// Ends the sessions that have not been used for `idle`, and forgets those that are lost. To be called now and then.
    pub fn sweep(&self, idle: Duration) {
        let is_over = |pooled: &Arc<Pooled>| pooled.session.idle() >= idle || pooled.session.is_lost();
        let mut over = Vec::new();
        self.slots.lock().retain(|_, slot| {
            // A slot that a lease has, or is being made for, stays.
            if Arc::strong_count(slot) > 1 {
                return true;
            }
            let Ok(mut shared) = slot.shared.try_lock() else { return true };
            over.extend(shared.take_if(|pooled| is_over(pooled)));
            let mut single = slot.single.lock();
            over.extend(single.extract_if(.., |pooled| is_over(pooled)));
            shared.is_some() || !single.is_empty()
        });
        for pooled in over {
            pooled.end();
        }
    }

    /// Ends every session, when the process stops.
    pub fn close(&self) {
        for (_, slot) in self.slots.lock().drain() {
            if let Ok(mut shared) = slot.shared.try_lock() {
                shared.take().iter().for_each(|pooled| pooled.end());
            }
            slot.single.lock().drain(..).for_each(|pooled| pooled.end());
        }
    }

    /// Returns how many keys have sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.lock().len()
    }

    /// Returns whether no key has a session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Pooled {
    fn new(
        session: Arc<UpstreamSession>,
        facts: ServerFacts,
        changes: broadcast::Sender<Message>,
        pool: &SessionPool,
    ) -> Self {
        let (upstream, observer) = (pool.id.clone(), Arc::clone(&pool.observer));
        observer.emit(events::PooledSessionOpened { upstream: upstream.as_str() });
        Self { session, facts, changes, subscribed: Mutex::default(), upstream, observer }
    }

    /// Returns what the server tells from now on that belongs to no call.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Message> {
        self.changes.subscribe()
    }

    /// Counts a subscription of a resource that begins, or one that ends. Returns whether the server has to be told.
    pub fn counts(&self, uri: &String, begins: bool) -> bool {
        let mut subscribed = self.subscribed.lock();
        if begins {
            subscribed.add(uri, 1);
            subscribed.of(uri) == 1
        } else {
            subscribed.take(uri, 1);
            subscribed.of(uri) == 0
        }
    }

    fn end(&self) {
        self.session.outbox().end(());
        self.session.close_when_unused(HeaderMap::new());
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.observer.emit(events::PooledSessionEnded { upstream: self.upstream.as_str() });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(slot) = self.single.take() {
            slot.single.lock().push(Arc::clone(&self.pooled));
        }
    }
}

/// Reads what a server sends that belongs to no call, while its session lives: tells changes, and answers questions, which
/// no client can be asked.
async fn hear(session: Weak<UpstreamSession>, listener: Arc<Outbox<()>>, changes: broadcast::Sender<Message>) {
    let _attached = listener.attach();
    loop {
        match poll_fn(|cx| listener.poll_next(cx)).await {
            Some(Item::Message(message)) if message.kind() == Kind::Request => {
                let Some(session) = session.upgrade() else { return };
                let why = "no client can be asked outside of a call: send the request on the stream of the call";
                let refusal = RpcError::method_not_found(why).to_response(message.id());
                let reply = if message.method() == Method::Ping {
                    crate::wire::response::pong(message.id_to_answer())
                } else {
                    refusal
                };
                // A server that does not take it goes on without an answer.
                let _ = session.reply(reply, HeaderMap::new()).await;
            }
            Some(Item::Message(message)) if message.method().is_change() => drop(changes.send(message)),
            Some(Item::Message(_) | Item::Silence | Item::Pause(_)) => {}
            Some(Item::End(())) | None => return,
        }
    }
}

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The handshake of taskgate itself, for clients that can be asked what `client` says.
fn initialize(client: ClientCapabilities) -> Message {
    let version = quote(Version::LATEST.as_str());
    let info = format!(r#"{{"name":"taskgate","version":{}}}"#, quote(env!("CARGO_PKG_VERSION")));
    let params = format!(r#"{{"protocolVersion":{version},"capabilities":{},"clientInfo":{info}}}"#, client.to_raw());
    let text = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{params}}}"#);
    Message::parse(text.into()).unwrap_or_else(|why| unreachable!("it is a request: {why}"))
}

/// Reads the answer to `initialize`.
fn facts(answer: &Message) -> Result<ServerFacts, String> {
    let Some((Outcome::Result, result)) = answer.outcome() else { return Err("it is no result".to_owned()) };
    let result = Members::parse(result)?;
    let object = |key: &str| result.get(key).filter(|raw| raw.starts_with('{'));
    let server_info = object("serverInfo").ok_or("its serverInfo is no object")?.to_owned();
    let capabilities = object("capabilities").unwrap_or("{}").to_owned();
    let instructions = result.get("instructions").filter(|raw| raw.starts_with('"')).map(str::to_owned);
    Ok(ServerFacts { server_info, capabilities, instructions })
}
