//! The one place that knows every room: puts them together, opens the ports, keeps the clocks (silence, idle sessions).

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
    dialect::legacy::Legacy,
    flow::Capacity,
    gate::{self, Bodies, Channels, Gate, Served, Upstreams, admin::Admin},
    identity::{Hosts, Identity},
    limit::{Accounts, Totals},
    observe::Observer,
    session::Sessions,
    task::{
        Clock, Engine, Limits, MaxWaiters,
        store::{MaxKept, MemoryStore},
    },
    upstream::{Hints, Server, Upstream, http, stdio},
};

/// taskgate in front of HTTP clients, with its ports open, not yet serving.
#[derive(Debug)]
pub struct App {
    house: House,
    listener: gate::Listener,
}

/// taskgate around one upstream for one client on stdin and stdout.
#[derive(Debug)]
pub struct Wrapper {
    house: House,
    /// The only one.
    upstream: Arc<Upstream>,
}

/// All rooms, put together.
#[derive(Debug)]
struct House {
    gate: Arc<Gate>,
    admin: Option<(TcpListener, Admin)>,
    ready: Arc<AtomicBool>,
    session_idle: Duration,
    drain_timeout: Duration,
}

/// Why taskgate cannot start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(SocketAddr, std::io::Error),
    /// The audit log cannot be written.
    Audit(std::io::Error),
    /// TLS towards clients cannot be set up.
    Tls(String),
    /// An upstream cannot be set up.
    Upstream(String),
    /// What `[auth]` needs cannot be set up.
    Identity(String),
    /// There are several upstreams where only one can be served.
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
    /// Opens the ports and prepares the upstreams. Connections to those are made as sessions need them.
    ///
    /// # Errors
    /// [`StartError`]
    pub async fn bind(config: Config) -> Result<Self, StartError> {
        let tcp = listen(config.server.listen).await?;
        let address = tcp.local_addr().unwrap_or(config.server.listen);
        let tls = config.server.tls.clone().map(gate::Tls::new).transpose().map_err(StartError::Tls)?;
        let config::Server { max_connections, head_timeout, max_head, .. } = config.server;
        let limits = gate::Limits { max_connections, head_timeout, max_head };
        let listener = gate::Listener { tcp, tls: tls.map(Arc::new), limits };
        Ok(Self { house: House::build(config, address).await?, listener })
    }

    /// The URLs of the endpoints, with the ports that were really opened.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        let base = url(self.house.gate.scheme, &self.listener.tcp);
        self.house.gate.upstreams.now().all().iter().map(|upstream| format!("{base}{}", upstream.id.as_str())).collect()
    }

    /// The URL of the admin port.
    #[must_use]
    pub fn admin(&self) -> Option<String> {
        self.house.admin.as_ref().map(|(listener, _)| url("http", listener))
    }

    /// What kills every child process and writes the last audit lines, for an end of the process that waits for nothing.
    pub fn killer(&self) -> impl FnOnce() + Send + 'static {
        self.house.killer()
    }

    /// Serves until `stop` resolves and running tasks have ended, as long as they may take; then ends sessions and
    /// connections.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { mut house, listener } = self;
        let _keepers = house.keep(listener.tls.clone());
        let stop = async {
            stop.await;
            house.ready.store(false, Ordering::Release);
            house.gate.drain(house.drain_timeout).await;
        };
        gate::serve(Arc::clone(&house.gate), listener, stop).await;
        // Those that have not ended in time.
        house.killer()();
    }
}

impl Wrapper {
    /// Prepares the upstream. Its connection is made, or its process started, by the client's `initialize`.
    ///
    /// # Errors
    /// [`StartError`]
    pub async fn new(config: Config) -> Result<Self, StartError> {
        let address = config.server.listen;
        let house = House::build(config, address).await?;
        let served = house.gate.upstreams.now();
        let [upstream] = served.all() else { return Err(StartError::SeveralUpstreams(served.all().len())) };
        Ok(Self { upstream: Arc::clone(upstream), house })
    }

    /// What kills every child process and writes the last audit lines, for an end of the process that waits for nothing.
    pub fn killer(&self) -> impl FnOnce() + Send + 'static {
        self.house.killer()
    }

    /// Serves the client until it closes `input`, its server has ended, or `stop` resolves; then ends its session. Returns
    /// how the child process ended, if there was one, and whether the client got the session that it wanted.
    pub async fn run(
        self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Unpin,
        stop: impl Future<Output = ()>,
    ) -> (Option<ExitStatus>, bool) {
        let Self { mut house, upstream } = self;
        let _keepers = house.keep(None);
        let served = house.gate.stdio(Arc::clone(&upstream), input, output, stop).await;
        let status = upstream.server.exit_status();
        house.killer()();
        (status, served)
    }
}

impl House {
    async fn build(config: Config, address: SocketAddr) -> Result<Self, StartError> {
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
        let protected = config.auth.protected();
        let identity = Identity::start(config.auth, &observer).map_err(StartError::Identity)?;
        let upstreams = config.upstreams.into_iter().map(|configured| upstream(configured, &identity));
        let upstreams = upstreams.collect::<Result<Vec<_>, _>>()?;
        let server = config.server;
        let engine = Engine::start(Arc::new(store), clock, limits, Arc::clone(&observer));
        let gate = Gate {
            scheme: server.scheme(),
            hosts: Hosts::new(address, server.tls.is_some(), server.allowed_hosts, server.allowed_origins),
            identity,
            sessions: Sessions::new(server.max_sessions, server.max_sessions_per_owner, Arc::clone(&observer)),
            accounts: Accounts::new(config.rate),
            legacy: Legacy::new(Arc::clone(&engine)),
            engine,
            upstreams: Upstreams::new(Served::new(upstreams, protected.is_some())),
            protected,
            channels: Channels::default(),
            bodies: Bodies::new(server.max_body, server.body_timeout, server.max_body_total),
            outbox,
            max_streams: server.max_streams,
            observer,
        };
        let (session_idle, drain_timeout) = (server.session_idle, server.drain_timeout);
        Ok(Self { gate: Arc::new(gate), admin, ready, session_idle, drain_timeout })
    }

    /// Starts what runs beside the clients: the admin port, and the keepers, which end when they are dropped.
    fn keep(&mut self, tls: Option<Arc<gate::Tls>>) -> JoinSet<()> {
        if let Some((listener, admin)) = self.admin.take() {
            tokio::spawn(admin.serve(listener));
        }
        let mut keepers = JoinSet::new();
        keepers.spawn(sweep(Arc::clone(&self.gate), self.session_idle));
        keepers.spawn(tick(Arc::clone(&self.gate)));
        if tls.is_some() || self.gate.upstreams.now().all().iter().any(|upstream| upstream.server.reads_files()) {
            keepers.spawn(refresh(Arc::clone(&self.gate), tls));
        }
        keepers
    }

    fn killer(&self) -> impl FnOnce() + Send + use<> {
        let gate = Arc::clone(&self.gate);
        move || {
            gate.upstreams.now().all().iter().for_each(|upstream| upstream.server.kill());
            if let Err(error) = gate.observer.finish_audit() {
                tracing::error!(%error, "the last lines of the audit log are lost");
            }
        }
    }
}

/// What the store takes in, and what holds for every task.
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

/// A request that has waited for one to two of these intervals is answered with a stream, for its heartbeats.
const SILENCE: Duration = Duration::from_secs(5);

/// Keeps an eye on silence, and on what nobody has come back for.
async fn tick(gate: Arc<Gate>) {
    loop {
        tokio::time::sleep(SILENCE).await;
        gate.tick().await;
    }
}

/// How often files are read again that may have changed.
const REFRESH: Duration = Duration::from_secs(2);

/// Keeps what stands in files as it stands there.
async fn refresh(gate: Arc<Gate>, tls: Option<Arc<gate::Tls>>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let (gate, tls) = (Arc::clone(&gate), tls.clone());
        // Files may be slow.
        let reading = tokio::task::spawn_blocking(move || {
            gate.upstreams.now().all().iter().for_each(|upstream| upstream.server.refresh());
            if let Some(tls) = tls {
                tls.refresh();
            }
        });
        let _ = reading.await;
    }
}

/// How often idle sessions are looked for at most.
const SWEEP_AT_MOST_EVERY: Duration = Duration::from_millis(20);

/// Ends idle sessions, soon after they have become so.
async fn sweep(gate: Arc<Gate>, idle: Duration) {
    loop {
        tokio::time::sleep((idle / 10).max(SWEEP_AT_MOST_EVERY)).await;
        gate.end_idle(idle).await;
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::Listen(address, error))
}

fn url(scheme: &str, listener: &TcpListener) -> String {
    listener.local_addr().map_or_else(|error| error.to_string(), |address| format!("{scheme}://{address}"))
}

fn upstream(configured: config::Upstream, identity: &Identity) -> Result<Arc<Upstream>, StartError> {
    let config::Upstream { path, sse_path, target, transport, process, forward, native, status_notifications, policy } =
        configured;
    let (id, forward_authorization) = (UpstreamId::from(&*path), forward.authorization);
    let server = match target {
        Target::Url(uri) => {
            let server = http::Server::new(id.clone(), uri, transport, forward, identity.refused_tokens(&id));
            Server::Http(Box::new(server.map_err(StartError::Upstream)?))
        }
        Target::Command { program, args } => Server::Stdio(stdio::Server::new(id.clone(), program, args, process)),
    };
    let hints = Hints::new(&policy);
    let upstream =
        Upstream { id, sse_path, server, forward_authorization, native, status_notifications, policy, hints };
    Ok(Arc::new(upstream))
}
