//! taskgate with its store on disk, as a process that is killed and started again, in front of one workshop.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    kit::{Binary, Finished, shim::Shim},
    workshop::Workshop,
};

/// Where it listens, and what went wrong for good.
const LOG: &str =
    "taskgate=info,taskgate::observe=error,taskgate::upstream=error,taskgate::gate=error,taskgate::task=error";

/// Few calls at once, so that some always wait; limits that no test meets otherwise.
const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
[auth]
mode = "header"
header = "x-user"
trusted_peers = ["127.0.0.1"]
[tasks]
ttl = "TTL"
timeout = "TIMEOUT"
task_after = "0s"
poll_interval = "50ms"
max_running = 6
max_queued = 10000
max_queued_per_owner = 10000
max_queued_total = 10000
max_running_per_owner = 1000
max_running_total = 1000
max_tasks = 1000000
max_tasks_per_owner = 1000000
max_result_bytes = "4GiB"
max_result_bytes_per_owner = "4GiB"
[rate]
task_methods = "1000000/s"
creations = "1000000/s"
"#;

/// Everything but the process.
pub(crate) struct House {
    pub(crate) workshop: Workshop,
    dir: TempDir,
    store: PathBuf,
    variables: Vec<(&'static str, String)>,
}

/// A process that serves.
pub(crate) struct Serving {
    pub(crate) binary: Binary,
    /// The scheme, host and port of its endpoints.
    pub(crate) base: String,
}

impl House {
    /// Prepares a house whose store no shim watches.
    pub(crate) async fn plain() -> Self {
        Self::with_ttl("1h", "1h").await
    }

    /// Prepares the same with another ttl of tasks, and another timeout of their calls.
    pub(crate) async fn with_ttl(ttl: &str, timeout: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let store = dir.path().join("store/tasks.db");
        fs::create_dir(dir.path().join("store")).unwrap();
        Self::at(dir, store, Vec::new(), [ttl, timeout]).await
    }

    /// Prepares a house whose store `shim` watches.
    pub(crate) async fn watched(shim: &Shim, recorded: bool) -> Self {
        Self::at(TempDir::new().unwrap(), shim.store(), shim.variables(recorded), ["1h", "1h"]).await
    }

    async fn at(dir: TempDir, store: PathBuf, variables: Vec<(&'static str, String)>, times: [&str; 2]) -> Self {
        let [ttl, timeout] = times;
        let workshop = Workshop::start().await;
        let endpoints =
            ["json", "sse"].map(|path| format!("[[upstream]]\npath = \"/{path}\"\nurl = \"{}\"\n", workshop.url(path)));
        fs::write(
            dir.path().join("config.toml"),
            format!("{}{}", CONFIG.replace("TTL", ttl).replace("TIMEOUT", timeout), endpoints.concat()),
        )
        .unwrap();
        Self { workshop, dir, store, variables }
    }

    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// Starts a process on the store of this house.
    pub(crate) fn start(&self) -> Binary {
        let variables: Vec<_> = self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.start_by(&[], &self.store, &variables)
    }

    /// Starts a process on another store by a command that runs the one behind it.
    pub(crate) fn start_by(&self, runner: &[&str], store: &Path, variables: &[(&str, &str)]) -> Binary {
        let config = self.dir.path().join("config.toml");
        let words = ["serve", "--log", LOG, "--config", config.to_str().unwrap(), "--store", store.to_str().unwrap()];
        Binary::start_by(runner, &words, variables)
    }

    /// Starts a process, and waits until it serves.
    pub(crate) async fn serve(&self) -> Serving {
        Serving::of(self.start()).await
    }

    /// Starts a process on another store, and waits until it serves or ends.
    pub(crate) async fn try_on(&self, store: &Path) -> Result<Serving, Finished> {
        match self.start_by(&[], store, &[]).listens_or_ends().await {
            Ok((binary, url)) => Ok(Serving::at(binary, &url)),
            Err(ended) => Err(ended),
        }
    }
}

impl Serving {
    /// Waits until a process serves.
    pub(crate) async fn of(binary: Binary) -> Self {
        match binary.listens_or_ends().await {
            Ok((binary, url)) => Self::at(binary, &url),
            Err(ended) => panic!("it ended with {:?}: {}", ended.code, ended.stderr),
        }
    }

    pub(crate) fn at(binary: Binary, url: &str) -> Self {
        Self { binary, base: url.rsplit_once('/').unwrap().0.to_owned() }
    }

    /// Kills the process as `kill -9` does, and returns what it wrote.
    pub(crate) async fn kill(self) -> Finished {
        kill(self.binary).await
    }
}

/// Kills a process as `kill -9` does. It must not have ended before, nor have panicked.
pub(crate) async fn kill(binary: Binary) -> Finished {
    binary.signal(rustix::process::Signal::KILL);
    let ended = binary.end().await;
    assert!(ended.code.is_none(), "it ended by itself: {ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    ended
}

/// Copies the files of a store to a folder. What processes share is memory, and does not outlive the machine.
pub(crate) fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
        if !name.to_str().unwrap().ends_with("-shm") {
            fs::copy(path, to.join(name)).unwrap();
        }
    }
}
