//! What the operator wrote: types with working defaults, and checks that report every mistake at once.
//!
//! [`load`] and [`parse`] read a file and let flags win over it. Each section has a module of its name that reads it,
//! such as `server` and `tasks`. `tool` reads the settings of tools, which `[tasks]` and each pattern have. `reader`
//! walks the TOML and knows where each value stands, and `values` turns single values into typed ones.

mod audit;
mod auth;
mod forward;
mod mistakes;
mod nearest;
mod policy;
mod process;
mod rate;
mod reader;
mod secret;
mod server;
mod store;
mod tasks;
mod template;
mod tls;
mod tool;
mod upstream;
mod upstream_id;
mod url;
mod values;
mod warnings;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use audit::{Audit, AuditOwner, AuditTo};
pub use auth::{Auth, Introspect, Jwt, KeySource, ProtectedResource, TokenRules};
pub use forward::{Forward, header_value, is_own_header};
pub use mistakes::{Mistake, Mistakes};
pub use nearest::nearest;
pub use policy::Policy;
pub use process::Process;
pub use rate::{Rate, Rates};
pub use secret::Secret;
pub use server::{Server, allowed_host, allowed_origin};
pub use store::{Store, StoreFile};
pub use tasks::{Native, Tasks};
pub use template::Template;
pub use tls::Tls;
pub use tool::{PollInterval, RequiredTools, Support, Tool};
pub use upstream::{SSE_MESSAGES, Sessions, Target, Transport, Upstream, target_from_url};
pub use upstream_id::UpstreamId;
pub use url::{text_without_secrets, without_secrets};
pub use values::listen_address;

use mistakes::Report;
use reader::Section;
use toml::de::DeTable;

/// Everything that taskgate needs to know to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where to listen, whom to let in, and the limits of sessions and bodies.
    pub server: Server,
    /// How taskgate finds the principal of a request.
    pub auth: Auth,
    /// Where the lines about who does what go, and how they name a principal.
    pub audit: Audit,
    /// How often one owner may do what.
    pub rate: Rates,
    /// Where tasks are kept.
    pub store: Store,
    /// Limits that hold for the whole process.
    pub tasks: Tasks,
    /// The servers behind, each on its own path. Never empty.
    pub upstreams: Vec<Upstream>,
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
    /// Replaces `store.path`, and makes the store a file.
    pub store: Option<PathBuf>,
    /// Whether the one client is on stdin and stdout. taskgate then listens on no address, so that the upstream may
    /// have any URL.
    pub stdio: bool,
}

impl Config {
    /// Returns the defaults, with one upstream at `/mcp`.
    #[must_use]
    pub fn for_upstream(target: Target) -> Self {
        let upstream = Upstream::new(target, &Auth::None, Native::Auto, Policy::default());
        Self {
            server: Server::default(),
            auth: Auth::None,
            audit: Audit::default(),
            rate: Rates::default(),
            store: Store::default(),
            tasks: Tasks::default(),
            upstreams: vec![upstream],
        }
    }
}

/// Reads and checks the file at `path`. Relative paths in it are relative to its folder.
///
/// # Errors
/// Every mistake in it, or the one reason why it cannot be read.
pub fn load(path: &Path, overrides: Overrides) -> Result<Config, Mistakes> {
    let name = path.display().to_string();
    match std::fs::read(path) {
        Ok(bytes) => match std::str::from_utf8(&bytes) {
            Ok(text) => parse_in(path.parent().unwrap_or(Path::new("")), &name, text, overrides),
            Err(error) => Err(Mistakes::not_utf8(&name, &bytes, error)),
        },
        Err(error) => Err(Mistakes::unreadable(&name, &error)),
    }
}

/// Checks the text of a configuration file; `file_name` is only for messages. Relative paths in it are relative to the
/// working directory.
///
/// # Errors
/// Every mistake in it, in the order of the text.
pub fn parse(file_name: &str, text: &str, overrides: Overrides) -> Result<Config, Mistakes> {
    parse_in(Path::new(""), file_name, text, overrides)
}

fn parse_in(folder: &Path, file_name: &str, text: &str, mut overrides: Overrides) -> Result<Config, Mistakes> {
    let (tree, syntax) = DeTable::parse_recoverable(text);
    let report = Report::new(file_name, text, folder, &syntax);
    let mut root = Section::root(&report, tree.get_ref());
    let target = overrides.target.take();
    let (listens, file) = (!overrides.stdio, overrides.store.take());
    let (server, certificates) = server::read(root.table("server"), overrides);
    let auth = root.table("auth");
    // The one client of stdin has started taskgate.
    let auth = if listens { auth::read(auth, certificates) } else { Auth::None };
    let audit = root.table("audit");
    let rate = rate::read(root.table("rate"));
    let store = store::read(root.table("store"), file);
    let audit = audit::read(audit, &store);
    let tasks = tasks::read(root.table("tasks"));
    let upstreams = upstream::read(&mut root, &tasks, &auth, Some(&server).filter(|_| listens), target);
    root.finish();
    report.into_result()?;
    Ok(Config { server, auth, audit, rate, store, tasks: tasks.limits, upstreams })
}
