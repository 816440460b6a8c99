//! Stdio servers of a few lines of shell, each with a behaviour that a test needs.

use std::{
    fs::{self, File},
    future::ready,
    io::{ErrorKind, Read},
    path::PathBuf,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::unix::pipe::OpenOptions;

use super::{Client, Gate, eventually};

/// The server. Every process that inherits descriptor 9 keeps the pipe open; once the log exists, the pipe does.
const SERVER: &str = r#"
dir=$1
mkfifo "$dir/$$.alive"
exec 9<>"$dir/$$.alive"
: >"$dir/$$.log"
note() { printf '%s\n' "$1" >>"$dir/$$.log"; }
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
text() { reply "$1" "{\"content\":[{\"type\":\"text\",\"text\":\"$2\"}]}"; }
SETUP
while IFS= read -r line; do
    note "$line"
    id=${line#*'"id":'}
    id=${id%%[,\}]*}
    case $line in
    TOOLS
    *'"method":"initialize"'*)
        reply "$id" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"name":"pid"'*) text "$id" $$ ;;
    *'"name":"hold"'*) held=$id ;;
    *'"name":"release"'*) text "$held" released; text "$id" done ;;
    *'"name":"die"'*) echo 'the disk is on fire' >&2; exit 3 ;;
    *'"method":"notifications/'*) ;;
    *'"method"'*) reply "$id" '{}' ;;
    esac
done
AFTER
"#;

/// How a server differs from the plain one, as shell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Script {
    /// Runs before the first line is read.
    pub(crate) setup: &'static str,
    /// More cases of a line, each ended by `;;`; tried before those of every server.
    pub(crate) tools: &'static str,
    /// Runs after stdin has ended.
    pub(crate) after: &'static str,
}

/// The children of one taskgate.
pub(crate) struct Children {
    dir: TempDir,
    script: String,
}

/// A child and everything that it has started.
pub(crate) struct Process {
    pub(crate) pid: String,
    log: PathBuf,
    alive: File,
}

impl Children {
    /// Prepares children that run `script`.
    pub(crate) fn new(script: Script) -> Self {
        let text = SERVER.replace("SETUP", script.setup).replace("TOOLS", script.tools).replace("AFTER", script.after);
        Self { dir: TempDir::new().unwrap(), script: text }
    }

    /// Returns the command that starts one.
    pub(crate) fn command(&self) -> [&str; 5] {
        ["sh", "-c", &self.script, "child", self.dir.path().to_str().unwrap()]
    }

    /// Starts a taskgate that starts them, configured by `toml`.
    pub(crate) async fn gate(&self, toml: &str) -> Gate {
        let [program, args @ ..] = self.command();
        Gate::with_command(program, &args, toml).await
    }

    /// Starts a taskgate with its defaults, a client in a session, and the session's child.
    pub(crate) async fn session(&self) -> (Gate, Client, Process) {
        let gate = self.gate("").await;
        let client = Client::connect(&gate.url).await;
        (gate, client, self.only().await)
    }

    /// Returns those that were started so far.
    pub(crate) fn started(&self) -> Vec<Process> {
        let entries = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let logs = entries.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.map(|log| {
            let alive = OpenOptions::new().open_receiver(log.with_extension("alive")).unwrap();
            let alive = File::from(alive.into_nonblocking_fd().unwrap());
            Process { pid: log.file_stem().unwrap().to_str().unwrap().to_owned(), log, alive }
        })
        .collect()
    }

    /// Makes a file in their folder, for which a script may wait.
    pub(crate) fn touch(&self, name: &str) {
        File::create(self.dir.path().join(name)).unwrap();
    }

    /// Returns the only one, which was started or is about to be.
    #[track_caller]
    pub(crate) fn only(&self) -> impl Future<Output = Process> {
        eventually(async || {
            let mut started = self.started();
            assert!(started.len() < 2, "{} children", started.len());
            started.pop()
        })
    }
}

impl Process {
    /// Returns the lines that it has read or noted.
    pub(crate) fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.log).unwrap().lines().map(str::to_owned).collect()
    }

    /// Returns the first line that it has read, or will read, with `part` in it.
    #[track_caller]
    pub(crate) fn line(&self, part: &str) -> impl Future<Output = String> {
        eventually(move || ready(self.lines().into_iter().find(|line| line.contains(part))))
    }

    /// Returns the same line, parsed.
    pub(crate) async fn message(&self, part: &str) -> Value {
        serde_json::from_str(&self.line(part).await).unwrap()
    }

    /// Resolves when it has ended, and all that it has started.
    #[track_caller]
    pub(crate) fn gone(&self) -> impl Future<Output = ()> {
        eventually(move || ready((!self.is_alive()).then_some(())))
    }

    /// Returns whether any of it still runs. No process writes to the pipe, so it is empty or at its end.
    pub(crate) fn is_alive(&self) -> bool {
        (&self.alive).read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// Calls a tool plainly, and returns the text of the result.
pub(crate) async fn text_of(client: &Client, tool: &str) -> String {
    text_in(&client.ask("tools/call", json!({ "name": tool, "arguments": {} })).await)
}

/// Returns the text in the result of a call.
pub(crate) fn text_in(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}")).to_owned()
}
