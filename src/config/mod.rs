//! What the operator wrote: types with working defaults, and checks that report every mistake at once.
//!
//! [`load`] and [`parse`] read a file and let flags win over it. One file reads one section:
//! `server`, `auth`, `tasks` (with the limits of tools) and `upstream`; `reader` walks the TOML and
//! knows where each value stands, and `values` turns single values into typed ones.

mod auth;
mod mistakes;
mod policy;
mod process;
mod reader;
mod server;
mod tasks;
mod upstream;
mod values;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use mistakes::{Mistake, Mistakes};
pub use policy::Policy;
pub use server::{allowed_host, allowed_origin};
pub use upstream::target_from_url;

use mistakes::Report;
use reader::Section;
use toml::de::DeTable;

/// Everything that taskgate needs to know to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where to listen, whom to let in, and the limits of sessions and bodies.
    pub server: Server,
    /// How the owner of a request is found.
    pub auth: Auth,
    /// Limits that hold for the whole process.
    pub tasks: Tasks,
    /// The servers behind, each on its own path. Never empty.
    pub upstreams: Vec<Upstream>,
}

/// The `[server]` section.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Address for MCP clients; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Address for health checks and metrics; without it there is no such port.
    pub admin: Option<SocketAddr>,
    /// `Host` values accepted besides localhost names and the listen address: `host` or `host:port`, in lower case.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values accepted besides same-host ones, as browsers write them: lower case, without a default port.
    pub allowed_origins: Vec<String>,
    /// Largest request body, in bytes.
    pub max_body: usize,
    /// Most bytes that wait for one reader: a GET stream, or the stream that answers a request.
    pub max_outbox: usize,
    /// Most sessions alive at once.
    pub max_sessions: usize,
    /// A session that is silent for so long ends.
    pub session_idle: Duration,
}

/// The `[auth]` section: how the owner of a request is found.
#[derive(Clone, Debug, PartialEq)]
pub enum Auth {
    /// Nobody is known; a task belongs to its session.
    None,
    /// A proxy in front has authenticated the user and names them in a header.
    Header {
        /// The header whose value is the owner.
        name: http::HeaderName,
        /// Peers whose header is believed. Never empty.
        trusted_peers: Vec<ipnet::IpNet>,
    },
}

/// The process-wide part of the `[tasks]` section; the rest of it is in each upstream's [`Policy`].
#[derive(Clone, Debug, PartialEq)]
pub struct Tasks {
    /// Most tasks of one owner, running and kept.
    pub max_tasks_per_owner: usize,
    /// Most tasks of the process, running and kept.
    pub max_tasks: usize,
    /// Most requests that wait for one task's result at once.
    pub max_waiters: usize,
}

/// What follows an upstream's [`sse_path`](Upstream::sse_path) in the path for that stream's messages.
pub const SSE_MESSAGES: &str = "/messages";

/// One `[[upstream]]` block: a server behind, and the path that leads to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Path of the endpoint, such as `/mcp`; unique among the upstreams.
    pub path: String,
    /// Path of the stream for clients of the 2024-11-05 HTTP+SSE transport; their messages go to `messages` below it.
    pub sse_path: Option<String>,
    /// The server itself.
    pub target: Target,
    /// How the server is spoken to; only a [`Target::Url`] leaves a choice.
    pub transport: Transport,
    /// How the server's processes are started; means nothing for an HTTP server.
    pub process: Process,
    /// What happens to tasks that the server offers itself.
    pub native: Native,
    /// Whether clients are sent `notifications/tasks/status`.
    pub status_notifications: bool,
    /// What holds for each of its tools.
    pub policy: Policy,
}

/// Where an upstream's messages go.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// The endpoint of an HTTP server; scheme http or https, with a host.
    Url(http::Uri),
    /// A stdio server.
    Command {
        /// The program, looked up in `PATH` unless it is a path.
        program: String,
        /// Its arguments.
        args: Vec<String>,
    },
}

/// The transport that is spoken over HTTP with an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Found out at `initialize` (revision 2025-11-25, "Transports", "Backwards Compatibility").
    Auto,
    /// Streamable HTTP.
    StreamableHttp,
    /// HTTP+SSE, the transport of revision 2024-11-05.
    Sse,
}

/// How the processes of a stdio server are started.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Variables that a process gets besides taskgate's own environment.
    pub env: Vec<(String, String)>,
    /// The directory that it starts in; taskgate's own if there is none.
    pub cwd: Option<PathBuf>,
    /// Whether all sessions use one process; otherwise each has its own.
    pub shared: bool,
    /// Most processes at once, those that are about to end included.
    pub max_children: usize,
}

/// What happens to tasks that an upstream offers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// They are left to the upstream; taskgate adds none there.
    Keep,
    /// They are hidden; taskgate offers its own.
    Replace,
}

/// What holds for the calls of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// The pattern that these settings come from, `*` for those of `[tasks]`. For messages only:
    /// the limits hold for each tool by its own name.
    pub key: Arc<str>,
    /// Whether a call may, must or must not be a task.
    pub support: Support,
    /// How long a task is kept from its creation when the client asks for nothing.
    pub ttl: Duration,
    /// The longest ttl that a client gets by asking. At least `ttl`.
    pub max_ttl: Duration,
    /// How often clients are told to poll.
    pub poll_interval: Duration,
    /// How long one call may run.
    pub timeout: Duration,
    /// How long a question of the server to the client may stay without an answer.
    pub input_timeout: Duration,
    /// Most calls of one tool that run as tasks at once.
    pub max_running: usize,
    /// Most calls of one tool that wait for their turn; 0 refuses instead of queueing.
    pub max_queued: usize,
    /// Largest result that is kept, in bytes.
    pub max_result: usize,
    /// Text that the model gets at once, while the task runs.
    pub immediate_response: Option<String>,
}

/// Whether calls of a tool are run as tasks; the values of `execution.taskSupport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Never.
    Forbidden,
    /// When the client asks for it.
    Optional,
    /// Always; a call without a task is refused.
    Required,
}

/// Settings from flags and the environment, which win over the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Replaces `server.listen`.
    pub listen: Option<SocketAddr>,
    /// Replaces `server.admin`.
    pub admin: Option<SocketAddr>,
    /// Replaces `server.allowed_hosts`; see [`allowed_host`].
    pub allowed_hosts: Option<Vec<String>>,
    /// Replaces `server.allowed_origins`; see [`allowed_origin`].
    pub allowed_origins: Option<Vec<String>>,
    /// Replaces the target of the only upstream, or is the target where the file has no upstream.
    pub target: Option<Target>,
}

impl Config {
    /// The defaults, with one upstream at `/mcp`.
    #[must_use]
    pub fn for_upstream(target: Target) -> Self {
        let upstream = Upstream::new(target, Native::Keep, Policy::default());
        Self { server: Server::default(), auth: Auth::None, tasks: Tasks::default(), upstreams: vec![upstream] }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8808)),
            admin: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body: 4 << 20,
            max_outbox: 1 << 20,
            max_sessions: 10_000,
            session_idle: Duration::from_mins(30),
        }
    }
}

impl Default for Process {
    fn default() -> Self {
        Self { env: Vec::new(), cwd: None, shared: false, max_children: 100 }
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self { max_tasks_per_owner: 1000, max_tasks: 100_000, max_waiters: 256 }
    }
}

impl Default for Tool {
    fn default() -> Self {
        Self {
            key: "*".into(),
            support: Support::Optional,
            ttl: Duration::from_mins(15),
            max_ttl: Duration::from_hours(24),
            poll_interval: Duration::from_secs(2),
            timeout: Duration::from_hours(1),
            input_timeout: Duration::from_hours(1),
            max_running: 32,
            max_queued: 256,
            max_result: 16 << 20,
            immediate_response: None,
        }
    }
}

impl Support {
    /// The value as `execution.taskSupport` has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

/// Reads and checks the file at `path`.
///
/// # Errors
/// Every mistake in it, or the one reason why it cannot be read.
pub fn load(path: &Path, overrides: Overrides) -> Result<Config, Mistakes> {
    let name = path.display().to_string();
    match std::fs::read(path) {
        Ok(bytes) => match std::str::from_utf8(&bytes) {
            Ok(text) => parse(&name, text, overrides),
            Err(error) => Err(Mistakes::not_utf8(&name, &bytes, error)),
        },
        Err(error) => Err(Mistakes::unreadable(&name, &error)),
    }
}

/// Checks the text of a configuration file; `file_name` is only for messages.
///
/// # Errors
/// Every mistake in it, in the order of the text.
pub fn parse(file_name: &str, text: &str, overrides: Overrides) -> Result<Config, Mistakes> {
    let (tree, syntax) = DeTable::parse_recoverable(text);
    let report = Report::new(file_name, text, &syntax);
    let mut root = Section::root(&report, tree.get_ref());
    let server = server::read(root.table("server"));
    let auth = auth::read(root.table("auth"));
    let tasks = tasks::read(root.table("tasks"));
    let upstreams = upstream::read(&mut root, &tasks, overrides.target);
    root.finish();
    report.into_result()?;
    let server = Server {
        listen: overrides.listen.unwrap_or(server.listen),
        admin: overrides.admin.or(server.admin),
        allowed_hosts: overrides.allowed_hosts.unwrap_or(server.allowed_hosts),
        allowed_origins: overrides.allowed_origins.unwrap_or(server.allowed_origins),
        ..server
    };
    Ok(Config { server, auth, tasks: tasks.limits, upstreams })
}
