//! The one place that knows every room: puts the rooms together, opens the ports, and runs what happens by the clock.

mod audit;
mod background;
mod keys;
mod limits;
mod store;

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

use self::{
    audit::{AuditedStart, finish},
    background::{give_turns, give_way, keep, refresh, sweep, sweep_pools, tick},
    keys::{Keys, unusable},
    store::OpenStore,
};
use crate::{
    config::{self, Config, Target, UpstreamId},
    dialect::{legacy::Legacy, modern::Modern, writers},
    disk::Disk,
    gate::{
        Dispatcher, Lifecycle, Services, SessionTerms, Upstreams,
        admin::Admin,
        channel::{ChannelFront, OldStreams},
        http::{
            AccessControl, Bodies, ConnectionLimits, Endpoint, Listener, ResourceMetadata, Tls, Workers, serve,
            while_starting,
        },
    },
    identity::{Hosts, Identity},
    limit::Accounts,
    observe::Observer,
    session::Sessions,
    task::Engine,
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
    /// The file of the store, if it has one.
    disk: Option<Disk>,
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
    /// The store of tasks cannot be opened, or not all of it.
    Store(String),
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
                write!(
                    f,
                    "cannot listen on {address}: {error}; choose another address with --listen or --admin, or \
                     server.listen or server.admin in the file"
                )
            }
            Self::Audit(error) => write!(f, "the file in audit.file cannot be written: {error}"),
            Self::Tls(error) => write!(f, "server.tls cannot be used: {error}"),
            Self::Store(error) | Self::Upstream(error) | Self::Identity(error) => f.write_str(error),
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
        let core = while_starting(&listener.tcp, listener.tls.as_ref(), Core::build(config)).await?;
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
        self.core.upstreams.all().iter().map(|upstream| format!("{base}{}", upstream.id.as_str())).collect()
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
            core.services.modern.drain();
            core.services.lifecycle.drain(core.drain_timeout).await;
            core.services.modern.stop();
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
        let [_] = &*config.upstreams else { return Err(StartError::SeveralUpstreams(config.upstreams.len())) };
        let core = Core::build(config).await?;
        Ok(Self { upstream: Arc::clone(&core.upstreams.all()[0]), core, max_body })
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
        let audited = AuditedStart::new(&observer);
        if let config::Store::File(_) = config.store {
            // What a start does to a store that was there before has lines in the audit log.
            observer.audit_opened().await.map_err(StartError::Audit)?;
        }
        let ready = Arc::new(AtomicBool::new(true));
        let (kept, limits) = limits::limits(&config.server, &config.tasks);
        let OpenStore { store, clock, disk } = store::open(config.store, kept, &observer).await?;
        let admin = match config.server.admin {
            Some(address) => {
                let (observer, ready) = (Arc::clone(&observer), Arc::clone(&ready));
                let admin = Admin { observer, ready, disk: disk.clone() };
                Some((listen(address).await?, admin))
            }
            None => None,
        };
        let outbox = Arc::clone(&limits.capacity);
        let keys = Keys::of(disk.as_ref()).await?;
        let protected = config.auth.protected().is_some();
        let identity = Identity::start(config.auth, &keys.bearer_names, &observer);
        let identity = Arc::new(identity.map_err(StartError::Identity)?);
        let open = PoolLimits { per_owner: config.server.max_sessions_per_owner, all: config.server.max_sessions };
        let total = PoolsTotal::new(open);
        let pool = |id| SessionPool::new(id, &total, Arc::clone(&outbox), Arc::clone(&observer));
        let upstreams = config.upstreams.into_iter().map(|configured| upstream(configured, &identity, pool));
        let upstreams = Arc::new(Upstreams::new(upstreams.collect::<Result<_, _>>()?, protected));
        let server = config.server;
        let engine = Engine::start(store, clock, limits, Arc::clone(&observer));
        let (most, per_owner) = (server.max_sessions, server.max_sessions_per_owner);
        let sessions = Arc::new(Sessions::new(most, per_owner, Arc::clone(&observer)));
        let (accounts, max_streams) = (Accounts::new(config.rate), server.max_streams);
        let modern = Modern::new(Arc::clone(&engine), &keys.request_states, Arc::clone(&outbox), Arc::clone(&observer));
        let terms = SessionTerms { accounts, outbox, disk: disk.clone(), max_streams };
        let legacy = Legacy::new(Arc::clone(&engine), &keys.cursors);
        let lifecycle = Lifecycle::new(Arc::clone(&sessions), terms, engine, Arc::clone(&observer));
        let dispatcher = Dispatcher::new(legacy, Arc::clone(&lifecycle), Arc::clone(&observer));
        let restored = lifecycle.restore(upstreams.all(), &writers(), server.session_idle).await;
        // Without a file nothing is read that could fail.
        if let (Some(disk), Err(why)) = (&disk, restored) {
            return Err(unusable(disk, &why));
        }
        // Where the store is in memory, nothing has had lines yet: the file opened while the rest was built.
        observer.audit_opened().await.map_err(StartError::Audit)?;
        audited.succeeded();
        Ok(Self {
            upstreams,
            identity,
            sessions,
            services: Services { lifecycle, dispatcher, modern, observer },
            admin,
            disk,
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
        let old_streams = OldStreams::new(self.channels(), Arc::clone(&self.sessions), bodies.max, bodies.room.most());
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
        for upstream in self.upstreams.all().iter().filter(|upstream| upstream.server.is_process()) {
            background.spawn(give_way(Arc::clone(&self.services.lifecycle), Arc::clone(upstream)));
        }
        if let Some(disk) = &self.disk {
            background.spawn(keep(Arc::clone(&self.services.lifecycle), self.session_idle));
            background.spawn(give_turns(Arc::clone(&self.services.lifecycle), disk.clone()));
        }
        let (lifecycle, identity) = (Arc::clone(&self.services.lifecycle), Arc::clone(&self.identity));
        background.spawn(tick(lifecycle, identity, Arc::clone(&self.upstreams)));
        if tls.is_some() || self.upstreams.all().iter().any(|upstream| upstream.server.reads_files()) {
            background.spawn(refresh(Arc::clone(&self.upstreams), tls));
        }
        background
    }

    fn killer(&self) -> impl FnOnce() + Send + use<> {
        let (upstreams, observer) = (Arc::clone(&self.upstreams), Arc::clone(&self.services.observer));
        let disk = self.disk.clone();
        move || {
            upstreams.all().iter().for_each(|upstream| upstream.server.kill());
            if disk.is_some_and(|disk| !disk.close()) {
                tracing::error!("the disk takes nothing: the newest changes of tasks are lost");
            }
            finish(&observer);
        }
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
