//! The servers under measurement. Each is a process of its own, which ends when its [`Server`] is dropped.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use http::HeaderValue;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::NamedTempFile;

use crate::Result;

/// Limits wide enough that no scenario meets one. The ttl outlasts the run, so that tasks are kept to its end.
const TASKS: &str = r#"
[tasks]
ttl = "6h"
max_ttl = "6h"
timeout = "10m"
max_queued = 1000000
max_queued_per_owner = 1000000
max_queued_total = 1000000
max_running_per_owner = 1000000
max_running_total = 1000000
max_waiters_per_owner = 1000000
max_waiters_total = 1000000
max_result_bytes = "1TiB"
max_result_bytes_per_owner = "1TiB"
max_tasks = 1000000
max_tasks_per_owner = 1000000
max_running = 64

[rate]
task_methods = "1000000/s"
creations = "1000000/s"
"#;

/// How many calls run at once where a scenario does not measure that.
pub const MAX_RUNNING: usize = 64;

pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// What clients send as `Authorization`, if anything.
    pub authorization: Option<HeaderValue>,
    /// Deleted when the server ends.
    _config: Option<NamedTempFile>,
}

impl Server {
    pub fn forwarder(upstream: &Server) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--role", "forwarder", "--upstream", &upstream.address.to_string()]);
        Self::spawn(command, None)
    }

    pub fn journal(upstream: &Server, path: &Path) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--role", "journal", "--upstream", &upstream.address.to_string(), "--journal"]).arg(path);
        Self::spawn(command, None)
    }

    pub fn fixed(body: &str) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--role", "fixed", "--body", body]);
        Self::spawn(command, None)
    }

    pub fn upstream() -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--role", "upstream"]);
        Self::spawn(command, None)
    }

    pub fn taskgate(upstream: &Server) -> Result<Self> {
        Self::taskgate_with(upstream, "", "")
    }

    /// Starts a taskgate that runs so many calls at once.
    pub fn taskgate_running(upstream: &Server, calls: usize) -> Result<Self> {
        Self::taskgate_with(upstream, "", &format!("[upstream.tools.\"*\"]\nmax_running = {calls}\n"))
    }

    /// Starts a taskgate with further configuration before and after the upstream's section.
    pub fn taskgate_with(upstream: &Server, before: &str, behind: &str) -> Result<Self> {
        let mut config = tempfile::Builder::new().suffix(".toml").tempfile()?;
        let url = format!("http://{}/mcp", upstream.address);
        writeln!(config, "[server]\nlisten = \"127.0.0.1:0\"\nmax_streams = 1000000\n{TASKS}\n{before}")?;
        write!(config, "[[upstream]]\nurl = \"{url}\"\n{behind}")?;
        let binary = env::var_os("TASKGATE_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_taskgate").into());
        let mut command = Command::new(binary);
        command.args(["serve", "--config"]).arg(config.path());
        Self::spawn(command, Some(config))
    }

    /// Starts the process and waits until it says where it listens.
    fn spawn(mut command: Command, config: Option<NamedTempFile>) -> Result<Self> {
        // No variable that happens to be set in this shell may change what is measured.
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let stderr = child.stderr.take();
        let mut server = Self { child, address: ([127, 0, 0, 1], 0).into(), authorization: None, _config: config };
        let (found, address) = mpsc::channel();
        thread::spawn(move || read_stderr(stderr, &found));
        server.address = address
            .recv_timeout(Duration::from_secs(10))
            .map_err(|_| format!("{command:?} did not say where it listens"))?;
        Ok(server)
    }

    /// Returns the resident memory in bytes.
    pub fn rss(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// Returns the resident memory that holds no part of a file, in bytes.
    pub fn own_rss(&self) -> Result<u64> {
        self.memory("RssAnon:")
    }

    /// Returns the most resident memory so far, in bytes.
    pub fn peak_rss(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("the process has ended")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }

    /// Returns the processor time used so far.
    pub fn cpu(&self) -> Result<Duration> {
        cpu_of(&self.child.id().to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for a process that has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets this process, and those that it starts, have as many connections as the system allows. Returns how many.
pub fn raise_connections() -> Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(limit.maximum.and_then(|most| most.try_into().ok()).unwrap_or(usize::MAX))
}

/// Returns the processor time that the load generator has used so far.
pub fn own_cpu() -> Result<Duration> {
    cpu_of("self")
}

/// Returns the processor time that all processes of this machine have used so far, and that its host took from it.
pub fn all_cpu() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let ticks = stat.lines().next().ok_or("empty /proc/stat")?.split_whitespace().skip(1).map(str::parse::<u64>);
    let ticks: Vec<u64> = ticks.collect::<std::result::Result<_, _>>()?;
    // user, nice, system, then idle and waiting for disks, then irq, softirq, steal; what follows is in these already.
    let busy: u64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|&field| ticks.get(field)).sum();
    // The kernel reports in hundredths of a second to every program.
    Ok(Duration::from_millis(busy * 10))
}

/// Sums the nanoseconds of the threads: the ticks in /proc/PID/stat are too coarse for a round.
fn cpu_of(process: &str) -> Result<Duration> {
    let mut total = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end between the listing and the reading.
        let Ok(stat) = fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        total += stat.split(' ').next().ok_or("empty schedstat")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(total))
}

/// Finds the address, then reads on so that the process never blocks on a full pipe. Shows lines that look like
/// trouble.
fn read_stderr(stderr: Option<ChildStderr>, found: &mpsc::Sender<SocketAddr>) {
    let mut listening = false;
    for line in stderr.into_iter().flat_map(|pipe| BufReader::new(pipe).lines()).map_while(std::io::Result::ok) {
        if !listening && let Some(address) = listen_address(&line) {
            listening = true;
            // The receiver is gone if it has given up waiting.
            let _ = found.send(address);
        } else if !listening || ["WARN", "ERROR", "panicked"].iter().any(|word| line.contains(word)) {
            eprintln!("server: {line}");
        }
    }
}

fn listen_address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening on http://")?;
    rest.split('/').next()?.parse().ok()
}
