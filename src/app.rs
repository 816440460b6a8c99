//! The one place that knows every room: puts the rooms together, opens the ports, and runs what happens by the clock.

use std::{
    fmt,
    future::Future,
    net::SocketAddr,
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::JoinSet,
};

use crate::{
    config::{self, Config, Target, UpstreamId},
    dialect::{legacy::Legacy, modern::Modern},
    flow::Capacity,
    gate::{
        Dispatcher, Lifecycle, Served, Services, SessionTerms, Upstreams,
        admin::Admin,
        channel::{ChannelFront, OldStreams},
        http::{AccessControl, Bodies, ConnectionLimits, Endpoint, Listener, ResourceMetadata, Tls, Workers, serve},
    },
    identity::{Hosts, Identity},
    limit::{Accounts, Totals},
    observe::Observer,
    session::Sessions,
    task::{
        Clock, Engine, Limits, MaxWaiters,
        store::{MaxKept, MemoryStore},
    },
    upstream::{Hints, PoolLimits, PoolsTotal, Server, SessionPool, Upstream, http, stdio},
};

/// taskgate in front of HTTP clients, with its ports open but not yet serving.
#[derive(Debug)]
pub struct App {
    core: Core,
    endpoint: Arc<Endpoint>,
    listener: Listener,
}

/// taskgate around one upstream for one client on stdin and stdout.
#[derive(Debug)]
pub struct Wrapper {
    core: Core,
    /// The largest message of the client, in bytes.
    max_body: usize,
    /// The only upstream.
    upstream: Arc<Upstream>,
}

/// How a [`Wrapper`] ended.
#[derive(Clone, Copy, Debug)]
pub struct WrapperEnd {
    /// How the child process ended, if there was one.
    pub child: Option<ExitStatus>,
    /// Whether the client got the session that it wanted.
    pub had_session: bool,
}

/// What both forms of taskgate have: the rooms put together, and the admin port.
#[derive(Debug)]
struct Core {
    upstreams: Arc<Upstreams>,
    identity: Arc<Identity>,
    sessions: Arc<Sessions>,
    services: Services,
    admin: Option<(TcpListener, Admin)>,
    /// Whether `/readyz` says that taskgate takes clients.
    ready: Arc<AtomicBool>,
    session_idle: Duration,
    drain_timeout: Duration,
}

/// Why taskgate cannot start.
#[derive(Debug)]
pub enum StartError {
    /// taskgate cannot listen on an address.
    Listen(SocketAddr, std::io::Error),
    /// The audit log cannot be written.
    Audit(std::io::Error),
    /// TLS towards clients cannot be set up.
    Tls(String),
    /// An upstream cannot be set up.
    Upstream(String),
    /// What `[auth]` needs cannot be set up.
    Identity(String),
    /// The configuration has this many upstreams, and taskgate can serve only one here.
    SeveralUpstreams(usize),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => {
                write!(f, "cannot listen on {address}: {error}; choose another address with --listen or --admin")
            }
            Self::Audit(error) => write!(f, "the file in audit.file cannot be written: {error}"),
            Self::Tls(error) => write!(f, "server.tls cannot be used: {error}"),
            Self::Upstream(error) | Self::Identity(error) => f.write_str(error),
            Self::SeveralUpstreams(count) => {
                write!(f, "stdio serves one upstream, but the configuration has {count}; leave one [[upstream]] block")
            }
        }
    }
}

impl std::error::Error for StartError {}

impl App {
    /// Opens the ports, whose connections `workers` will serve, and prepares the upstreams. taskgate connects to those
    /// when sessions need them.
    ///
    /// # Errors
    /// [`StartError`]
    pub async fn bind(config: Config, workers: Workers) -> Result<Self, StartError> {
        let tcp = listen(config.server.listen).await?;
        let address = tcp.local_addr().unwrap_or(config.server.listen);
        let tls = config.server.tls.clone().map(Tls::new).transpose().map_err(StartError::Tls)?;
        let config::Server { max_connections, head_timeout, max_head, .. } = config.server;
        let limits = ConnectionLimits { max_connections, head_timeout, max_head };
        let listener = Listener { tcp, tls: tls.map(Arc::new), limits, workers };
        let (server, protected) = (config.server.clone(), config.auth.protected());
        let core = Core::build(config).await?;
        let metadata = ResourceMetadata::new(server.scheme(), protected, Arc::clone(&core.upstreams));
        let hosts = Hosts::new(address, server.tls.is_some(), server.allowed_hosts, server.allowed_origins);
        let bodies = Bodies::new(server.max_body, server.body_timeout, server.max_body_total);
        let endpoint = core.endpoint(hosts, metadata, bodies);
        Ok(Self { core, endpoint, listener })
    }

    /// Returns the URLs of the endpoints, with the ports that were really opened.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        let base = url(if self.listener.tls.is_some() { "https" } else { "http" }, &self.listener.tcp);
        self.core.upstreams.now().all().iter().map(|upstream| format!("{base}{}", upstream.id.as_str())).collect()
    }

    /// Returns the URL of the admin port, if there is one.
    #[must_use]
    pub fn admin(&self) -> Option<String> {
        self.core.admin.as_ref().map(|(listener, _)| url("http", listener))
    }

    /// Returns a function that kills every child process and writes the last audit lines, for an end without waiting.
    pub fn killer(&self) -> impl FnOnce() + Send + 'static {
        self.core.killer()
    }

    /// Serves until `stop` resolves and running tasks have ended or `drain_timeout` is over. Then ends sessions and
    /// connections.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { mut core, endpoint, listener } = self;
        let _background = core.start_background(listener.tls.clone());
        let stop = async {
            stop.await;
            // Pairs with the Acquire of `/readyz`.
            core.ready.store(false, Ordering::Release);
            core.services.modern.stop();
            core.services.lifecycle.drain(core.drain_timeout).await;
        };
        serve(endpoint, listener, stop).await;
        // For the children that have not ended in time.
        core.killer()();
    }
}

impl Wrapper {
    /// Prepares the upstream. The client's `initialize` makes taskgate connect to it, or start its process.
    ///
    /// # Errors
    /// [`StartError`]
    pub async fn new(config: Config) -> Result<Self, StartError> {
        let max_body = config.server.max_body;
        let core = Core::build(config).await?;
        let served = core.upstreams.now();
        let [upstream] = served.all() else { return Err(StartError::SeveralUpstreams(served.all().len())) };
        Ok(Self { upstream: Arc::clone(upstream), core, max_body })
    }

    /// Returns a function that kills every child process and writes the last audit lines, for an end without waiting.
    pub fn killer(&self) -> impl FnOnce() + Send + 'static {
        self.core.killer()
    }

    /// Serves the client until it closes `input`, its server has ended, or `stop` resolves. Then ends its session.
    pub async fn run(
        self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Unpin,
        stop: impl Future<Output = ()>,
    ) -> WrapperEnd {
        let Self { mut core, max_body, upstream } = self;
        let _background = core.start_background(None);
        let had_session = core.channels().stdio(Arc::clone(&upstream), max_body, input, output, stop).await;
        let child = upstream.server.exit_status();
        core.killer()();
        WrapperEnd { child, had_session }
    }
}

impl Core {
    async fn build(config: Config) -> Result<Self, StartError> {
        let observer = Arc::new(Observer::new(config.audit).map_err(StartError::Audit)?);
        let ready = Arc::new(AtomicBool::new(true));
        let admin = match config.server.admin {
            Some(address) => {
                let admin = Admin { observer: Arc::clone(&observer), ready: Arc::clone(&ready) };
                Some((listen(address).await?, admin))
            }
            None => None,
        };
        let (store, limits) = limits(&config.server, &config.tasks);
        let outbox = Arc::clone(&limits.capacity);
        let clock = Clock::start();
        let store = MemoryStore::new(store, clock, Arc::clone(&observer));
        let protected = config.auth.protected().is_some();
        let identity = Arc::new(Identity::start(config.auth, &observer).map_err(StartError::Identity)?);
        let open = PoolLimits { per_owner: config.server.max_sessions_per_owner, all: config.server.max_sessions };
        let total = PoolsTotal::new(open);
        let pool = |id| SessionPool::new(id, &total, Arc::clone(&outbox), Arc::clone(&observer));
        let upstreams = config.upstreams.into_iter().map(|configured| upstream(configured, &identity, pool));
        let upstreams = Arc::new(Upstreams::new(Served::new(upstreams.collect::<Result<_, _>>()?, protected)));
        let server = config.server;
        let engine = Engine::start(Arc::new(store), clock, limits, Arc::clone(&observer));
        let (most, per_owner) = (server.max_sessions, server.max_sessions_per_owner);
        let sessions = Arc::new(Sessions::new(most, per_owner, Arc::clone(&observer)));
        let terms = SessionTerms { accounts: Accounts::new(config.rate), outbox, max_streams: server.max_streams };
        let legacy = Legacy::new(Arc::clone(&engine));
        let modern = Modern::new(Arc::clone(&engine), Arc::clone(&terms.outbox), Arc::clone(&observer));
        let lifecycle = Lifecycle::new(Arc::clone(&sessions), terms, engine, Arc::clone(&observer));
        let dispatcher = Dispatcher::new(legacy, Arc::clone(&lifecycle), Arc::clone(&observer));
        Ok(Self {
            upstreams,
            identity,
            sessions,
            services: Services { lifecycle, dispatcher, modern, observer },
            admin,
            ready,
            session_idle: server.session_idle,
            drain_timeout: server.drain_timeout,
        })
    }

    /// Builds the front for clients on one channel.
    fn channels(&self) -> ChannelFront {
        ChannelFront::new(self.services.clone())
    }

    /// Builds the front for clients over HTTP.
    fn endpoint(&self, hosts: Hosts, metadata: ResourceMetadata, bodies: Bodies) -> Arc<Endpoint> {
        let (identity, upstreams) = (Arc::clone(&self.identity), Arc::clone(&self.upstreams));
        let access = AccessControl::new(hosts, identity, upstreams, Arc::clone(&self.services.observer));
        let old_streams = OldStreams::new(self.channels(), Arc::clone(&self.sessions));
        Endpoint::new(access, metadata, bodies, old_streams, self.services.clone())
    }

    /// Starts the admin port, and the tasks that run by the clock. These end when the set that it returns is dropped.
    fn start_background(&mut self, tls: Option<Arc<Tls>>) -> JoinSet<()> {
        if let Some((listener, admin)) = self.admin.take() {
            tokio::spawn(admin.serve(listener));
        }
        let mut background = JoinSet::new();
        background.spawn(sweep(Arc::clone(&self.services.lifecycle), self.session_idle));
        background.spawn(sweep_pools(Arc::clone(&self.upstreams), self.session_idle));
        background.spawn(tick(Arc::clone(&self.services.lifecycle), Arc::clone(&self.identity)));
        if tls.is_some() || self.upstreams.now().all().iter().any(|upstream| upstream.server.reads_files()) {
            background.spawn(refresh(Arc::clone(&self.upstreams), tls));
        }
        background
    }

    fn killer(&self) -> impl FnOnce() + Send + use<> {
        let (upstreams, observer) = (Arc::clone(&self.upstreams), Arc::clone(&self.services.observer));
        move || {
            upstreams.now().all().iter().for_each(|upstream| upstream.server.kill());
            if let Err(error) = observer.finish_audit() {
                tracing::error!(%error, "the last lines of the audit log are lost");
            }
        }
    }
}

/// Returns the limits of the store and those of the engine.
fn limits(server: &config::Server, tasks: &config::Tasks) -> (MaxKept, Limits) {
    let kept = MaxKept {
        tasks_per_owner: tasks.max_tasks_per_owner,
        tasks: tasks.max_tasks,
        bytes_per_owner: tasks.max_result_bytes_per_owner,
        bytes: tasks.max_result_bytes,
    };
    let waiters =
        MaxWaiters { task: tasks.max_waiters, owner: tasks.max_waiters_per_owner, all: tasks.max_waiters_total };
    let turns = Totals {
        running_per_owner: tasks.max_running_per_owner,
        running: tasks.max_running_total,
        queued_per_owner: tasks.max_queued_per_owner,
        queued: tasks.max_queued_total,
        queued_bytes_per_owner: tasks.max_queued_bytes_per_owner,
        queued_bytes: tasks.max_queued_bytes,
    };
    (kept, Limits { waiters, turns, capacity: Capacity::new(server.max_outbox, server.max_outbox_total) })
}

/// The interval of [`tick`]. A request without an answer for one to two of them gets a stream, for its heartbeats.
const SILENCE: Duration = Duration::from_secs(5);

/// Has sessions begin heartbeats, and drop streams to which no client came back and sessions whose token was refused.
async fn tick(lifecycle: Arc<Lifecycle>, identity: Arc<Identity>) {
    loop {
        tokio::time::sleep(SILENCE).await;
        lifecycle.tick(&identity).await;
    }
}

/// Ends sessions of callers without sessions that are idle.
async fn sweep_pools(upstreams: Arc<Upstreams>, idle: Duration) {
    loop {
        tokio::time::sleep((idle / 10).max(SWEEP_AT_MOST_EVERY)).await;
        upstreams.now().all().iter().for_each(|upstream| upstream.pool.sweep(idle));
    }
}

/// How often taskgate reads again files that may have changed.
const REFRESH: Duration = Duration::from_secs(2);

/// Reads certificates and secrets again when their files have changed.
async fn refresh(upstreams: Arc<Upstreams>, tls: Option<Arc<Tls>>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let (upstreams, tls) = (Arc::clone(&upstreams), tls.clone());
        // Files may be slow.
        let reading = tokio::task::spawn_blocking(move || {
            upstreams.now().all().iter().for_each(|upstream| upstream.server.refresh());
            if let Some(tls) = tls {
                tls.refresh();
            }
        });
        let _ = reading.await;
    }
}

/// The least time between two looks for idle sessions.
const SWEEP_AT_MOST_EVERY: Duration = Duration::from_millis(20);

/// Ends sessions soon after they have become idle.
async fn sweep(lifecycle: Arc<Lifecycle>, idle: Duration) {
    loop {
        tokio::time::sleep((idle / 10).max(SWEEP_AT_MOST_EVERY)).await;
        lifecycle.end_idle(idle).await;
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::Listen(address, error))
}

fn url(scheme: &str, listener: &TcpListener) -> String {
    listener.local_addr().map_or_else(|error| error.to_string(), |address| format!("{scheme}://{address}"))
}

fn upstream(
    configured: config::Upstream,
    identity: &Identity,
    pool: impl Fn(UpstreamId) -> SessionPool,
) -> Result<Arc<Upstream>, StartError> {
    let config::Upstream { path, sse_path, target, transport, process, forward, native, .. } = configured;
    let config::Upstream { status_notifications, modern, sessions, policy, .. } = configured;
    let (id, forward_authorization) = (UpstreamId::from(&*path), forward.authorization);
    let server = match target {
        Target::Url(uri) => {
            let server = http::Server::new(id.clone(), uri, transport, forward, identity.refused_tokens(&id));
            Server::Http(Box::new(server.map_err(StartError::Upstream)?))
        }
        Target::Command { program, args } => Server::Stdio(stdio::Server::new(id.clone(), program, args, process)),
    };
    let hints = Hints::new(&policy);
    Ok(Arc::new(Upstream {
        pool: pool(id.clone()),
        id,
        sse_path,
        server,
        forward_authorization,
        native,
        status_notifications,
        modern,
        sessions,
        policy,
        hints,
    }))
}
