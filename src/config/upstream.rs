//! The `[[upstream]]` blocks.

use std::collections::{HashMap, hash_map};

use http::Uri;

use super::reader::{Entry, Section};
use super::tasks::{self, Defaults};
use super::url::{not_own, url};
use super::values::{flag, one_of, text_as, text_without_nul};
use super::{Auth, Forward, Native, Policy, Process, Server, forward, process};

const SESSIONS: [(&str, Sessions); 2] = [("owner", Sessions::Owner), ("request", Sessions::Request)];
const DEFAULT_PATH: &str = "/mcp";
const TRANSPORTS: [(&str, Transport); 3] =
    [("auto", Transport::Auto), ("streamable-http", Transport::StreamableHttp), ("sse", Transport::Sse)];

/// What follows an upstream's [`sse_path`](Upstream::sse_path) in the path for that stream's messages.
pub const SSE_MESSAGES: &str = "/messages";

const SHARED_KEEPS: &str = "shared = true beside native = \"keep\": a shared server's own tasks would be those of every \
     client; set native = \"replace\", or shared = false";

const NO_JUDGE: &str =
    "auth.mode \"bearer\" has the server judge the tokens of clients, and a process gets none; use another mode";

/// What messages call the command line of a server.
const COMMAND_BEHIND: &str = "the command behind --";

/// One `[[upstream]]` block: a server behind taskgate, and the path that leads to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Path of the endpoint, such as `/mcp`; unique among the upstreams.
    pub path: String,
    /// Path of the stream for clients of the 2024-11-05 HTTP+SSE transport; their messages go to `messages` below it.
    pub sse_path: Option<String>,
    /// The server itself.
    pub target: Target,
    /// The transport towards the server; only a [`Target::Url`] leaves a choice.
    pub transport: Transport,
    /// How taskgate starts the server's processes; means nothing for an HTTP server.
    pub process: Process,
    /// What goes on to an HTTP server besides the messages; means nothing for a process.
    pub forward: Forward,
    /// What happens to the server's own tasks.
    pub native: Native,
    /// Whether taskgate sends clients `notifications/tasks/status`.
    pub status_notifications: bool,
    /// Whether clients of revision 2026-07-28 are served.
    pub modern: bool,
    /// Whose calls share a session with the server where clients have none.
    pub sessions: Sessions,
    /// What holds for each of its tools.
    pub policy: Policy,
}

/// Whose calls share a session with the server, of those whose clients have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    /// Those of one owner.
    Owner,
    /// None: each call has one for itself.
    Request,
}

/// Where an upstream's messages go.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// The endpoint of an HTTP server; scheme http or https, with a host.
    Url(Uri),
    /// A stdio server.
    Command {
        /// The program, looked up in `PATH` unless it is a path.
        program: String,
        /// Its arguments.
        args: Vec<String>,
    },
}

/// The transport towards an HTTP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// taskgate finds it out at `initialize` (revision 2025-11-25, "Transports", "Backwards Compatibility").
    Auto,
    /// Streamable HTTP.
    StreamableHttp,
    /// HTTP+SSE, the transport of revision 2024-11-05.
    Sse,
}

impl Upstream {
    pub(super) fn new(target: Target, auth: &Auth, native: Native, policy: Policy) -> Self {
        let (path, transport, process) = (DEFAULT_PATH.to_owned(), Transport::Auto, Process::default());
        let forward = Forward::new(auth);
        Self {
            path,
            sse_path: None,
            target,
            transport,
            process,
            forward,
            native,
            status_notifications: true,
            modern: true,
            sessions: Sessions::Owner,
            policy,
        }
    }
}

/// Reads every block. `target` comes from the command line and replaces that of the only block; `here` says where
/// taskgate listens, if it does.
pub(super) fn read(
    root: &mut Section<'_>,
    defaults: &Defaults,
    auth: &Auth,
    here: Option<&Server>,
    mut target: Option<Target>,
) -> Vec<Upstream> {
    if let (Some(Target::Url(url)), Some(here)) = (&target, here)
        && let Err(why) = not_own(url, here)
    {
        root.fail_override("--upstream (TASKGATE_UPSTREAM)", why);
    }
    let mut blocks = Vec::new();
    if let Some(entry) = root.entry("upstream") {
        match entry.items("blocks headed [[upstream]]") {
            Some(items) => blocks = items,
            None => return Vec::new(),
        }
    }
    if blocks.is_empty() {
        if target.is_none() {
            root.missing("upstream", "missing; write an [[upstream]] block with a url or a command, or start taskgate with --upstream URL or -- COMMAND");
        }
        if matches!((auth, &target), (Auth::Bearer(_), Some(Target::Command { .. }))) {
            root.fail_override(COMMAND_BEHIND, NO_JUDGE);
        }
        let policy = Policy::new(defaults.tool.clone(), Vec::new());
        return target.map(|target| Upstream::new(target, auth, defaults.native, policy)).into_iter().collect();
    }
    if let (Some(second), Some(target)) = (blocks.get(1), &target) {
        let (given, undo) = match target {
            Target::Url(_) => ("--upstream (TASKGATE_UPSTREAM)", "leave it out, or unset the variable"),
            Target::Command { .. } => (COMMAND_BEHIND, "leave it out"),
        };
        second.fail(format!(
            "{given} replaces the server of the only [[upstream]], but the file has several; {undo}, or leave one block"
        ));
    }
    let mut upstreams = Vec::new();
    let mut paths = HashMap::new();
    for (i, block) in blocks.into_iter().enumerate() {
        let Some(section) = block.section() else { continue };
        let context = BlockContext { defaults, auth, here };
        upstreams.extend(read_block(section, context, target.take(), &mut paths, i));
    }
    upstreams
}

/// What reading any block needs to know.
struct BlockContext<'a> {
    defaults: &'a Defaults,
    auth: &'a Auth,
    /// Where taskgate listens, if it does.
    here: Option<&'a Server>,
}

/// Reads the block at `index`. `replacement` is the target that wins over its own; `paths` has those of the blocks
/// before it.
fn read_block(
    mut section: Section<'_>,
    BlockContext { defaults, auth, here }: BlockContext<'_>,
    replacement: Option<Target>,
    paths: &mut HashMap<String, usize>,
    index: usize,
) -> Option<Upstream> {
    let path_entry = section.entry("path");
    let sse_path_entry = section.entry("sse_path");
    let url = section.entry("url");
    let command = section.entry("command");
    let transport_entry = section.entry("transport");
    let http = command.is_none() && !matches!(replacement, Some(Target::Command { .. }));
    let process = process::read(&mut section, http && (url.is_some() || replacement.is_some()));
    let stdio = matches!(replacement, Some(Target::Command { .. })) || (command.is_some() && url.is_none());
    let forward = forward::read(&mut section, auth, stdio);
    let mut native = tasks::native(&mut section, defaults.native);
    if process.shared {
        if native == Native::Keep {
            section.fail(SHARED_KEEPS);
        }
        // The server sees one client, so that every client would own the server's own tasks.
        native = Native::Replace;
    }
    let status_notifications = section.get("status_notifications", flag).unwrap_or(true);
    let modern = section.get("modern", flag).unwrap_or(true);
    let sessions = section.get("sessions", one_of(&SESSIONS)).unwrap_or(Sessions::Owner);
    let tools = section.table("tools");
    let policy = tasks::policy(&tools, &defaults.tool);

    let path = match &path_entry {
        Some(entry) => entry.convert(text_as(path)),
        None => Some(DEFAULT_PATH.to_owned()),
    };
    let sse_path = sse_path_entry.as_ref().map(|entry| entry.convert(text_as(self::path)));
    let messages = sse_path.iter().flatten().map(|path| (format!("{path}{SSE_MESSAGES}"), &sse_path_entry));
    let own = path.clone().map(|path| (path, &path_entry));
    let old = sse_path.clone().flatten().map(|path| (path, &sse_path_entry));
    for (path, entry) in own.into_iter().chain(old).chain(messages) {
        match paths.entry(path) {
            hash_map::Entry::Vacant(vacant) => drop(vacant.insert(index)),
            hash_map::Entry::Occupied(first) => {
                let message = format!("{:?} is a path of upstream[{}] too", first.key(), first.get());
                match entry {
                    Some(entry) => entry.fail(message),
                    None => section.fail(format!("{message}; set another one")),
                }
            }
        }
    }

    if let (Some(_), Some(command)) = (&url, &command) {
        command.fail("set besides url; an upstream has one of them");
    }
    if matches!(auth, Auth::Bearer(_)) {
        // Without it every token, and none, would do.
        match (&replacement, &command) {
            (Some(Target::Command { .. }), _) => section.fail_override(COMMAND_BEHIND, NO_JUDGE),
            (None, Some(command)) if url.is_none() => command.fail(NO_JUDGE),
            _ => {}
        }
    }
    let transport = match &transport_entry {
        Some(entry) => entry.convert(one_of(&TRANSPORTS)),
        None => Some(Transport::Auto),
    };
    if let (Some(entry), None, Some(_)) = (&transport_entry, &url, &command) {
        entry.fail("set beside command; it is about a url");
    }
    let target = match (url, command) {
        (Some(entry), _) => entry.convert(text_as(|text| {
            let target = target_from_url(text)?;
            match (&target, here) {
                (Target::Url(url), Some(here)) => not_own(url, here).map(|()| target),
                _ => Ok(target),
            }
        })),
        (None, Some(command)) => target_from_command(&command, process.cwd.is_some()),
        (None, None) => {
            if replacement.is_none() {
                section.missing("url", "missing; an upstream needs a url or a command");
            }
            None
        }
    };
    section.finish();
    let target = replacement.or(target)?;
    let sse_path = sse_path.flatten();
    Some(Upstream {
        path: path?,
        sse_path,
        target,
        transport: transport?,
        process,
        forward,
        native,
        status_notifications,
        modern,
        sessions,
        policy,
    })
}

fn path(text: &str) -> Result<String, String> {
    let problem = if !text.starts_with('/') {
        "does not start with \"/\""
    } else if text.contains(['?', '#']) {
        "has a query or a fragment"
    } else if text.len() > 1 && text.ends_with('/') {
        "ends in \"/\""
    } else if text.starts_with("/.well-known/") {
        // It could take the place of the metadata of another upstream.
        "is below \"/.well-known/\", where metadata is"
    } else if !text.bytes().all(stands_in_path) {
        "has characters that clients send percent-encoded; write it as they send it, such as \"/%C3%A4\" for \"/ä\""
    } else {
        return Ok(text.to_owned());
    };
    Err(format!("expected a path such as \"/mcp\", but {text:?} {problem}"))
}

/// Returns whether a byte stands in a path as it is (RFC 3986, section 3.3), or begins one that is percent-encoded.
/// Paths are compared as they come.
fn stands_in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/%-._~!$&'()*+,;=:@".contains(&byte)
}

/// Checks the address of an HTTP server.
///
/// # Errors
/// Says what is wrong with it.
pub fn target_from_url(text: &str) -> Result<Target, String> {
    url(text, "http://127.0.0.1:3000/mcp").map(Target::Url)
}

/// Reads a command. A program that is a relative path is relative to the folder of the file, unless the block names a
/// folder for it to start in: then it is relative to that one.
fn target_from_command(entry: &Entry<'_>, has_folder: bool) -> Option<Target> {
    const EXPECTED: &str = "an array of the program and its arguments, such as [\"npx\", \"-y\", \"some-server\"]";
    let items = entry.items(EXPECTED)?;
    if items.is_empty() {
        entry.fail(format!("expected {EXPECTED}, found an empty one"));
    }
    let words: Vec<_> = items.iter().map(|item| item.convert(text_without_nul)).collect();
    if let (Some(item), Some(Some(program))) = (items.first(), words.first())
        && program.is_empty()
    {
        item.fail("the program is an empty string");
    }
    let mut words = words.into_iter().collect::<Option<Vec<_>>>()?.into_iter();
    let mut program = words.next()?;
    if program.contains('/') && !has_folder {
        let Some(path) = entry.path(&program).to_str().map(str::to_owned) else {
            entry.fail("the program is a relative path, and the folder of this file has no name in UTF-8");
            return None;
        };
        program = path;
    }
    Some(Target::Command { program, args: words.collect() })
}
