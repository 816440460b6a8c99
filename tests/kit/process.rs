//! The taskgate binary as a process of its own.

use std::{future::ready, process::Stdio, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    task::JoinHandle,
};

use super::{eventually, soon, within};

/// How long it may take to end: stopping alone may take ten seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running taskgate; killed if the test ends before it.
pub(crate) struct Binary {
    child: Child,
    stdout: Output,
    stderr: Output,
}

/// What it left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The exit code; `None` after a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The output of one of its streams so far.
struct Output {
    text: Arc<Mutex<String>>,
    reading: JoinHandle<()>,
}

impl Output {
    fn of(mut end: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let text = Arc::<Mutex<String>>::default();
        let into = Arc::clone(&text);
        let reading = tokio::spawn(async move {
            let mut bytes = Vec::new();
            while end.read_buf(&mut bytes).await.unwrap() > 0 {
                *into.lock() = String::from_utf8_lossy(&bytes).into_owned();
            }
        });
        Self { text, reading }
    }

    async fn whole(self) -> String {
        soon(self.reading).await.unwrap();
        self.text.lock().clone()
    }
}

impl Binary {
    /// Starts it with these arguments and no other `TASKGATE_` variables than these.
    pub(crate) fn start(args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_by(&[], args, env)
    }

    /// Starts it by a command that runs the one behind it.
    pub(crate) fn start_by(runner: &[&str], args: &[&str], env: &[(&str, &str)]) -> Self {
        let words = [runner, &[env!("CARGO_BIN_EXE_taskgate")], args].concat();
        let mut command = Command::new(words[0]);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TASKGATE_")) {
            command.env_remove(name);
        }
        command.args(&words[1..]).envs(env.iter().copied()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        Self { child, stdout: Output::of(stdout), stderr: Output::of(stderr) }
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn run(args: &[&str], env: &[(&str, &str)]) -> impl Future<Output = Finished> {
        Self::start(args, env).end()
    }

    /// Returns the URL of its endpoint, once it listens.
    #[track_caller]
    pub(crate) fn url(&self) -> impl Future<Output = String> {
        self.logged_after("listening on ")
    }

    /// Waits until it listens, and returns the URL of its endpoint, or until it has ended.
    pub(crate) async fn listens_or_ends(mut self) -> Result<(Self, String), Finished> {
        let begun = std::time::Instant::now();
        loop {
            if let Some(url) = self.logged("listening on ") {
                return Ok((self, url));
            }
            if self.child.try_wait().unwrap().is_some() {
                return Err(self.end().await);
            }
            assert!(begun.elapsed() < PATIENCE, "it neither listens nor ends: {}", self.stderr.text.lock());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Returns the URL of its admin port, once it has one.
    #[track_caller]
    pub(crate) fn admin(&self) -> impl Future<Output = String> {
        self.logged_after("admin on ")
    }

    /// Returns the rest of the first line of the log with `words` in it.
    #[track_caller]
    pub(crate) fn logged_after(&self, words: &str) -> impl Future<Output = String> {
        eventually(move || ready(self.logged(words)))
    }

    fn logged(&self, words: &str) -> Option<String> {
        let log = self.stderr.text.lock();
        let (_, rest) = log.split_once(words)?;
        rest.split_once('\n').map(|(rest, _)| rest.to_owned())
    }

    /// Returns the most memory that it has had so far, in bytes.
    pub(crate) fn peak_memory(&self) -> usize {
        self.status("VmHWM:")
    }

    /// Returns the memory that it has now, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.status("VmRSS:")
    }

    fn status(&self, name: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        value.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// Returns how much processor time it has taken so far.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id().unwrap())).unwrap();
        // Behind the name in parentheses; in ticks of a hundredth of a second.
        let numbers = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
        Duration::from_millis(numbers.map(|ticks| 10 * ticks.parse::<u64>().unwrap()).sum())
    }

    /// Returns how many files it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id().unwrap())).unwrap().count()
    }

    /// Sets how many files it may open from now on.
    pub(crate) fn allow_files(&self, most: u64) {
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap());
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        prlimit(pid, Resource::Nofile, limit).unwrap();
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> impl Future<Output = Finished> {
        let ending = within(PATIENCE, async move {
            let status = self.child.wait().await.unwrap();
            (status, self)
        });
        async {
            let (status, ended) = ending.await;
            Finished { code: status.code(), stdout: ended.stdout.whole().await, stderr: ended.stderr.whole().await }
        }
    }
}
