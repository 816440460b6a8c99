//! A long run with faults on both sides, and of the disk, after which everything is as before: memory, files, sessions,
//! tasks, children, and the size of the store.
//! `scripts/soak` runs it for ten minutes, the suite for a few seconds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs,
    ops::Add as _,
    sync::Arc,
    time::{Duration, Instant},
};

use http::Method;
use kit::{
    BadUpstream, Binary, Children, Client, Script, Stalled, TINY,
    bad::{DONE, PROGRESS, Step, event, stream},
    shim::{CHANGES, Fault, GROW, READ, Shim},
};
use serde_json::json;
use tokio::task::JoinSet;

/// How long it runs as a part of the suite.
const SHARE: Duration = Duration::from_secs(6);
/// Where it listens, and errors.
const LOG: &str = "taskgate=info,taskgate::observe=error,taskgate::upstream=error,taskgate::gate=error";
/// How many clients there are at once.
const CLIENTS: usize = 24;
/// How many kinds of visits there are.
const KINDS: usize = 9;
/// How long it may take until every time limit has passed and jemalloc has given memory back.
const PAUSE: Duration = Duration::from_secs(40);
/// By what factor memory at the end may exceed memory after the warm-up.
const MORE: f64 = 1.3;
/// The most bytes of a store with nothing in it, in MiB: a log that is kept, and free pages that are not worth giving
/// back.
const EMPTY_STORE: f64 = 32.0;
/// How long it may take until a store has given its space back: the rest after a step that failed, 10 MiB a second, and
/// the minute until a batch begins the log anew.
const GIVES_BACK: Duration = Duration::from_secs(100);

/// Everything that a visit needs.
struct World {
    taskgate: Binary,
    /// The disk, where the store is on one.
    disk: Option<Shim>,
    good: kit::Upstream,
    bad: BadUpstream,
    _children: Children,
    _config: tempfile::NamedTempFile,
    base: String,
    admin: String,
}

impl World {
    async fn start(disk: Option<Shim>) -> Self {
        let (good, bad) = (kit::Upstream::sse().await, BadUpstream::start().await);
        let children = Children::new(Script::default());
        let progress = PROGRESS.replace("$N", &format!("$N,\"message\":\"{}\"", "x".repeat(4000)));
        bad.on_call(
            "flood",
            vec![stream(), Step::Times(600, format!("data: {progress}\n\n")), event(DONE), Step::Close],
        );
        bad.on_call("cut", vec![stream(), event(PROGRESS), Step::Reset]);
        bad.on_call("junk", vec![stream(), event("[1,{]"), event("null"), Step::Raw("zz\r\n".into()), Step::Close]);
        bad.on_call("never", vec![stream(), Step::Gone]);
        let large = DONE.replace("done", &"x".repeat(2_000_000));
        bad.on_call("large", vec![stream(), event(&large), Step::Close]);
        let config = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        let mut text =
            String::from("[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nsession_idle = \"2s\"\n");
        text.push_str("head_timeout = \"1s\"\nbody_timeout = \"1s\"\n[tasks]\ntimeout = \"2s\"\nttl = \"3s\"\npoll_interval = \"50ms\"\n");
        write!(text, "[[upstream]]\npath = \"/good\"\nurl = \"{}\"\n", good.url()).unwrap();
        write!(text, "[[upstream]]\npath = \"/bad\"\nurl = \"{}\"\n", bad.url()).unwrap();
        let command = children.command().map(|word| json!(word).to_string()).join(", ");
        write!(text, "[[upstream]]\npath = \"/child\"\ncommand = [{command}]\n").unwrap();
        fs::write(config.path(), text).unwrap();
        let mut args = vec!["serve", "--log", LOG, "--config", config.path().to_str().unwrap()];
        let store = disk.as_ref().map(|disk| disk.store().to_str().unwrap().to_owned());
        args.extend(store.iter().flat_map(|store| ["--store", store]));
        let variables = disk.as_ref().map(|disk| disk.variables(false)).unwrap_or_default();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let taskgate = Binary::start(&args, &variables);
        let url = taskgate.url().await;
        let base = url.rsplit_once('/').unwrap().0.to_owned();
        let admin = taskgate.admin().await;
        Self { taskgate, disk, good, bad, _children: children, _config: config, base, admin }
    }

    async fn client(&self, path: &str) -> Client {
        Client::connect(&format!("{}/{path}", self.base)).await
    }

    /// Makes one visit of a client, of the kind with that number. It may fail at any point, which is its purpose.
    async fn visit(&self, kind: usize) {
        match kind {
            // A client that behaves.
            0 | 1 => {
                let client = self.client("good").await;
                let _stream = client.get_stream().await;
                for _ in 0..5 {
                    client.ask("tools/call", json!({ "name": "echo", "arguments": {} })).await;
                }
                let id = client.create_id("echo").await;
                client.until(&id, "completed").await;
                client.collect(&id).await;
                client.delete().await;
            }
            // Clients that do not read, and vanish.
            2 => {
                let client = self.client("bad").await;
                let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                    "params": { "name": "flood", "_meta": { "progressToken": 1 } } });
                let _stalled = Stalled::open(&client, Method::POST, &body.to_string(), TINY).await;
                let _listener = Stalled::open(&client, Method::GET, "", TINY).await;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            // A server that cuts, writes junk, and never answers.
            3 => {
                let client = self.client("bad").await;
                for tool in ["cut", "junk", "cut"] {
                    client.answer("tools/call", json!({ "name": tool, "arguments": {} })).await;
                    client.create_id(tool).await;
                }
                let id = client.create_id("never").await;
                client.cancel(&id).await;
                // Tasks that time out, and expire.
                client.create_id("never").await;
                client.delete().await;
            }
            // Large results, collected and not.
            4 => {
                let client = self.client("bad").await;
                for _ in 0..3 {
                    let id = client.create_id("large").await;
                    client.until(&id, "completed").await;
                    client.collect(&id).await;
                }
            }
            // A child that dies, and one that is killed.
            5 => {
                let client = self.client("child").await;
                let pid = kit::text_of(&client, "pid").await;
                client.create_id("hold").await;
                if pid.ends_with(['0', '2', '4', '6', '8']) {
                    client.answer("tools/call", json!({ "name": "die", "arguments": {} })).await;
                } else {
                    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
                client.answer("ping", json!({})).await;
            }
            // Invalid messages, and unknown paths, sessions and tasks.
            6 => {
                let client = self.client("good").await;
                for body in
                    ["", "{", "[]", "{\"jsonrpc\":\"2.0\",\"id\":1}", "nul", "{\"jsonrpc\":\"2.0\",\"method\":1}"]
                {
                    client.post(body).await;
                }
                client.with("mcp-session-id", "x").post("{}").await;
                client.with("x", &"y".repeat(40_000)).post("{}").await;
                client.answer("tasks/get", json!({ "taskId": "x" })).await;
                client.with("last-event-id", "00000000-1-1").open(Method::GET, "").await;
            }
            // A disk that fails once, is full, does not read or is slow for a while.
            7 => {
                let Some(disk) = &self.disk else { return };
                match rand(5) {
                    0 => disk.fail(CHANGES, 1, 1, Fault::Broken),
                    1 => disk.fail_all(GROW, Fault::Full),
                    2 => disk.fail_all(CHANGES, Fault::Broken),
                    3 => disk.fail(READ, 1, 3, Fault::Broken),
                    _ => disk.delay(20, 1),
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                disk.heal();
                disk.delay(0, 0);
            }
            // HTTP/2, and half a request.
            _ => {
                let client = self.client("good").await;
                let over = Client::http2(client.url()).with("mcp-session-id", client.session());
                over.ask("tools/call", json!({ "name": "echo", "arguments": {} })).await;
                let _id = over.create_id("echo").await;
                let authority = self.base.trim_start_matches("http://");
                let mut half = tokio::net::TcpStream::connect(authority).await.unwrap();
                let head = "POST /good HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{";
                tokio::io::AsyncWriteExt::write_all(&mut half, head.as_bytes()).await.unwrap();
            }
        }
    }

    /// Sends clients for so long; returns how many there were, and how many of them met with an error.
    async fn crowd(self: &Arc<Self>, time: Duration) -> (usize, usize) {
        let (until, mut visits, mut number, mut failed) = (Instant::now() + time, JoinSet::new(), 0, 0);
        while Instant::now() < until {
            while visits.len() < CLIENTS {
                let (world, kind) = (Arc::clone(self), number % KINDS);
                visits.spawn(async move { world.visit(kind).await });
                number += 1;
            }
            failed += usize::from(visits.join_next().await.is_some_and(|visit| visit.is_err()));
            if number % 500 == 0 {
                self.good.forget();
                self.bad.forget();
            }
        }
        while let Some(visit) = visits.join_next().await {
            failed += usize::from(visit.is_err());
        }
        (number, failed)
    }

    async fn metrics(&self) -> HashMap<String, f64> {
        let answer = Client::new(&format!("{}/metrics", self.admin)).send(Method::GET, "").await;
        let samples = answer.text().lines().filter(|line| !line.starts_with('#'));
        let samples = samples.filter_map(|line| line.rsplit_once(' '));
        samples.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }

    /// Waits until nothing is left of the clients and memory goes down no further; returns how much there is then, and
    /// how many files are open.
    async fn rest(&self) -> (usize, usize) {
        let begun = Instant::now();
        let counts = ["sessions", "tasks_live", "tasks_queued", "tasks_kept", "result_bytes", "children"];
        loop {
            let metrics = self.metrics().await;
            let left: Vec<_> = counts.into_iter().filter(|name| metrics[&format!("taskgate_{name}")] > 0.0).collect();
            if left.is_empty() && metrics["taskgate_connections"] <= 1.0 {
                break;
            }
            assert!(begun.elapsed() < 2 * PAUSE, "left: {left:?}, {} connections", metrics["taskgate_connections"]);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // jemalloc gives pages back over ten seconds, and servers' connections are kept for four.
        let (begun, mut least) = (Instant::now(), (self.taskgate.memory(), self.taskgate.descriptors()));
        while begun.elapsed() < Duration::from_secs(12) {
            tokio::time::sleep(Duration::from_millis(200)).await;
            least = (least.0.min(self.taskgate.memory()), least.1.min(self.taskgate.descriptors()));
        }
        while self.stored() > EMPTY_STORE && begun.elapsed() < GIVES_BACK {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        least
    }

    /// Returns the size of the store's files in MiB.
    fn stored(&self) -> f64 {
        let folder = self.disk.as_ref().map(|disk| disk.store().parent().unwrap().to_owned());
        let files = folder.into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        files.map(|file| mib(usize::try_from(file.unwrap().metadata().unwrap().len()).unwrap())).fold(0.0, f64::add)
    }
}

/// Returns a number below `end` that no one can foresee.
fn rand(end: u32) -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_micros() % end
}

fn mib(bytes: usize) -> f64 {
    f64::from(u32::try_from(bytes / 1024).unwrap()) / 1024.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_long_run_with_faults_on_both_sides_nothing_has_leaked() {
    soak(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_long_run_with_faults_of_the_disk_too_nothing_has_leaked() {
    soak(Some(Shim::new())).await;
}

async fn soak(disk: Option<Shim>) {
    let seconds = std::env::var("TASKGATE_SOAK").ok().map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    let time = seconds.unwrap_or(SHARE);
    let world = Arc::new(World::start(disk).await);
    // Visits that fail are counted, and do not fail the test.
    let said = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (warm, _) = world.crowd((time / 4).min(Duration::from_mins(1))).await;
    let (before, files) = world.rest().await;
    let stored = world.stored();
    let (visits, failed) = world.crowd(time).await;
    let (after, files_after) = world.rest().await;
    std::panic::set_hook(said);
    let stored_after = world.stored();
    let summary = format!(
        "{visits} visits after {warm}, {failed} of them with an error: {:.1} MiB before, {:.1} MiB after, {files} and \
         {files_after} files, {stored:.1} and {stored_after:.1} MiB stored",
        mib(before),
        mib(after)
    );
    eprintln!("{summary}");
    assert!(mib(after) <= mib(before) * MORE, "{summary}");
    assert!(files_after <= files + 2, "{summary}");
    assert!(stored_after <= EMPTY_STORE, "{summary}");
}
