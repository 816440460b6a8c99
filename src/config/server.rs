//! The `[server]` section.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::uri::Authority;
use toml::de::DeValue;

use super::reader::{Entry, Section};
use super::values::{address, count, duration, size, text_as};
use super::{Overrides, Tls, tls};

/// The least that `max_head` can be. A request with a session and a token takes a good part of it.
const MIN_HEAD: usize = 1 << 10;
/// The most that `max_head` can be, far beyond any need.
const MAX_HEAD: usize = 1 << 20;

/// The `[server]` section.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Address for MCP clients; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Address for health checks and metrics; if unset, there is no such port.
    pub admin: Option<SocketAddr>,
    /// `Host` values accepted besides localhost names and the listen address: `host` or `host:port`, in lower case.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values accepted besides that of the request's own host and port, as browsers write them: lower case,
    /// without a default port.
    pub allowed_origins: Vec<String>,
    /// TLS towards clients; if unset, taskgate serves them in plain text.
    pub tls: Option<Tls>,
    /// Most connections from clients at once.
    pub max_connections: usize,
    /// How long the head of a request may take to arrive; for the first one the time counts from the connection's
    /// start.
    pub head_timeout: Duration,
    /// Largest head of a request, in bytes.
    pub max_head: usize,
    /// How long the body of a request may take to arrive.
    pub body_timeout: Duration,
    /// Largest request body, in bytes.
    pub max_body: usize,
    /// Most bytes of request bodies that are still arriving.
    pub max_body_total: usize,
    /// Most bytes that wait for one reader: a GET stream, or the stream that answers a request.
    pub max_outbox: usize,
    /// Most bytes that wait for all readers together.
    pub max_outbox_total: usize,
    /// Most sessions alive at once.
    pub max_sessions: usize,
    /// Most sessions of one principal alive at once.
    pub max_sessions_per_owner: usize,
    /// Most streams of one session that answer requests at once.
    pub max_streams: usize,
    /// How long a session may be silent before it ends.
    pub session_idle: Duration,
    /// How long running tasks may go on after the process was told to stop.
    pub drain_timeout: Duration,
}

impl Server {
    /// Returns the scheme of the endpoints' URLs.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8808)),
            admin: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            tls: None,
            max_connections: 20_000,
            head_timeout: Duration::from_secs(10),
            max_head: 64 << 10,
            body_timeout: Duration::from_mins(1),
            max_body: 4 << 20,
            max_body_total: 128 << 20,
            max_outbox: 1 << 20,
            max_outbox_total: 128 << 20,
            max_sessions: 10_000,
            max_sessions_per_owner: 1000,
            max_streams: 256,
            session_idle: Duration::from_mins(30),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// Reads the section, with the overrides that win over it. Also returns whether every client needs a certificate.
pub(super) fn read(mut section: Section<'_>, overrides: Overrides) -> (Server, bool) {
    let default = Server::default();
    let mut certificates = false;
    let listen = section.get("listen", address);
    let admin_entry = section.entry("admin");
    let admin = admin_entry.as_ref().and_then(|entry| entry.convert(address));
    let allowed_hosts = section.list("allowed_hosts", text_as(allowed_host));
    let allowed_origins = section.list("allowed_origins", text_as(allowed_origin));
    let server = Server {
        listen: overrides.listen.or(listen).unwrap_or(default.listen),
        admin: overrides.admin.or(admin),
        allowed_hosts: overrides.allowed_hosts.or(allowed_hosts).unwrap_or_default(),
        allowed_origins: overrides.allowed_origins.or(allowed_origins).unwrap_or_default(),
        // Stdin has no TLS: its files may belong to a `serve` that runs as another user.
        tls: section.entry("tls").filter(|_| !overrides.stdio).and_then(Entry::section).and_then(|section| {
            let (tls, needed) = tls::read(section);
            certificates = needed;
            tls
        }),
        max_connections: section.get("max_connections", count(1)).unwrap_or(default.max_connections),
        head_timeout: section.get("head_timeout", duration).unwrap_or(default.head_timeout),
        max_head: section.get("max_head", head).unwrap_or(default.max_head),
        body_timeout: section.get("body_timeout", duration).unwrap_or(default.body_timeout),
        max_body: section.get("max_body", size).unwrap_or(default.max_body),
        max_body_total: section.get("max_body_total", size).unwrap_or(default.max_body_total),
        max_outbox: section.get("max_outbox", size).unwrap_or(default.max_outbox),
        max_outbox_total: section.get("max_outbox_total", size).unwrap_or(default.max_outbox_total),
        max_sessions: section.get("max_sessions", count(1)).unwrap_or(default.max_sessions),
        max_sessions_per_owner: section
            .get("max_sessions_per_owner", count(1))
            .unwrap_or(default.max_sessions_per_owner),
        max_streams: section.get("max_streams", count(1)).unwrap_or(default.max_streams),
        session_idle: section.get("session_idle", duration).unwrap_or(default.session_idle),
        drain_timeout: section.get("drain_timeout", duration).unwrap_or(default.drain_timeout),
    };
    if let Some(admin) = server.admin.filter(|admin| !overrides.stdio && is_taken(*admin, server.listen)) {
        let message = format!("{admin} is the address for MCP clients too ({}); set another port", server.listen);
        match admin_entry {
            Some(entry) if overrides.admin.is_none() => entry.fail(message),
            _ => section.fail_override("--admin (TASKGATE_ADMIN)", message),
        }
    }
    section.finish();
    (server, certificates)
}

/// Returns whether taskgate cannot listen on an address because it listens on the other one.
fn is_taken(address: SocketAddr, other: SocketAddr) -> bool {
    let same_ip = address.ip() == other.ip() || address.ip().is_unspecified() || other.ip().is_unspecified();
    address.port() == other.port() && address.port() != 0 && same_ip
}

/// Reads a size that the heads of usual clients fit into, and that HTTP/2 can announce.
fn head(value: &DeValue<'_>) -> Result<usize, String> {
    let bytes = size(value)?;
    if (MIN_HEAD..=MAX_HEAD).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("expected a size from {MIN_HEAD} to {MAX_HEAD} bytes, found {bytes}"))
}

/// Checks an entry of `allowed_hosts`, and returns it in lower case.
///
/// # Errors
/// Says what is wrong with it.
pub fn allowed_host(text: &str) -> Result<String, String> {
    if text.contains('*') {
        return Err(format!(
            "{text:?} has a wildcard, which would weaken the protection against DNS rebinding; list each host"
        ));
    }
    port(text).map(|_| text.to_ascii_lowercase()).ok_or_else(|| {
        format!("expected a host such as \"mcp.example.com\" or \"mcp.example.com:8443\", found {text:?}")
    })
}

/// Checks an entry of `allowed_origins`, and returns it as browsers send it: lower case, no default port.
///
/// # Errors
/// Says what is wrong with it.
pub fn allowed_origin(text: &str) -> Result<String, String> {
    if text.contains('*') {
        return Err(format!("{text:?} has a wildcard, which would let any web page call the tools; list each origin"));
    }
    let wrong = || format!("expected an origin such as \"https://app.example.com\", with no path, found {text:?}");
    let lower = text.to_ascii_lowercase();
    let (scheme, rest) = lower.split_once("://").ok_or_else(wrong)?;
    if scheme.is_empty() || !scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) {
        return Err(wrong());
    }
    let host = match (scheme, port(rest).ok_or_else(wrong)?) {
        ("http", port @ ":80") | ("https", port @ ":443") => rest.strip_suffix(port).unwrap_or(rest),
        _ => rest,
    };
    Ok(format!("{scheme}://{host}"))
}

/// Returns what follows the host in `host` or `host:port`: nothing, or a colon and the port. `None` if the text is
/// neither.
fn port(text: &str) -> Option<&str> {
    let authority = text.parse::<Authority>().ok()?;
    let port = text.strip_prefix(authority.host()).filter(|_| !authority.host().is_empty())?;
    (port.is_empty() || authority.port_u16().is_some()).then_some(port)
}
