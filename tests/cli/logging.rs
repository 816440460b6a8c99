//! The log: it holds nothing up, no stranger can fill it, and it says what an operator needs.

use std::process::Stdio;

use futures_util::future::join_all;
use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStderr, Command},
};

use crate::{
    USAGE,
    kit::{Binary, Children, Client, Finished, Script, Upstream, Wrapped, eventually, soon, within},
};

/// taskgate whose log is read up to the addresses in it, and by the test from there.
struct Served {
    child: Child,
    log: BufReader<ChildStderr>,
    url: String,
    admin: String,
}

impl Served {
    async fn start(level: &str, upstream: &Upstream) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_taskgate"));
        command.args(["--log", level, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.args(["--upstream", &upstream.url()]).env_remove("TASKGATE_LOG").kill_on_drop(true);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut after = async |words: &str| {
            loop {
                let mut line = String::new();
                assert_ne!(soon(log.read_line(&mut line)).await.unwrap(), 0, "no line with {words}");
                if let Some((_, rest)) = line.split_once(words) {
                    return rest.trim().to_owned();
                }
            }
        };
        let (url, admin) = (after("listening on ").await, after("admin on ").await);
        Self { child, log, url, admin }
    }

    /// Returns the value of a metric; 0 if it is not there.
    async fn metric(&self, name: &str) -> u64 {
        metric(&self.admin, name).await
    }

    /// Ends taskgate with SIGTERM; returns the exit code.
    async fn end(mut self) -> Option<i32> {
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        within(std::time::Duration::from_secs(30), self.child.wait()).await.unwrap().code()
    }
}

async fn metric(admin: &str, name: &str) -> u64 {
    let metrics = Client::new(&format!("{admin}/metrics")).send(Method::GET, "").await;
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
    line.map_or(0, |value| value.parse().unwrap())
}

const UNWRITABLE: &str = "taskgate_log_lines_lost_total{reason=\"unwritable\"}";
const FULL: &str = "taskgate_log_lines_lost_total{reason=\"full\"}";
const RATE: &str = "taskgate_log_lines_lost_total{reason=\"rate\"}";

/// Starts taskgate with an admin port in front of `upstream`.
fn serve(level: &str, upstream: &Upstream) -> Binary {
    let url = upstream.url();
    let args = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &url];
    Binary::start(&[&["--log", level], &args[..]].concat(), &[])
}

async fn end(taskgate: Binary) -> Finished {
    taskgate.signal(Signal::TERM);
    taskgate.end().await
}

#[tokio::test]
async fn a_closed_log_keeps_no_client_out_and_changes_no_exit_code() {
    let upstream = Upstream::json().await;
    let Served { child, log, url, admin } = Served::start("debug", &upstream).await;
    drop(log);
    for _ in 0..5 {
        let client = Client::connect(&url).await;
        client.ask("ping", json!({})).await;
        client.delete().await;
    }
    eventually(async || (metric(&admin, UNWRITABLE).await > 0).then_some(())).await;
    let pid = Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let mut child = child;
    assert_eq!(within(std::time::Duration::from_secs(30), child.wait()).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_stalled_reader_of_the_log_stops_nothing_and_learns_what_it_missed() {
    let upstream = Upstream::json().await;
    let mut served = Served::start("trace", &upstream).await;
    // HTTP/2 makes the most lines.
    let client = Client::http2(&served.url).initialize("2025-11-25", json!({})).await;
    let flood = || join_all((0..200).map(|_| client.answer("tasks/list", json!({}))));
    while served.metric(FULL).await == 0 {
        flood().await;
    }
    let mut line = String::new();
    while !line.contains("lines of the log were dropped: stderr did not take them") {
        line.clear();
        assert_ne!(soon(served.log.read_line(&mut line)).await.unwrap(), 0);
    }
    assert!(line.contains("WARN"), "{line}");
    // It has stalled again, for good.
    flood().await;
    assert_eq!(served.end().await, Some(0));
}

#[tokio::test]
async fn a_client_of_taskgate_stdio_need_not_read_its_stderr() {
    let children =
        Children::new(Script { setup: "yes 'this is said aloud' | head -c 1000000 >&2", ..Script::default() });
    let mut taskgate = Wrapped::connect(&[&["--log", "trace", "--"], &children.command()[..]].concat()).await;
    for _ in 0..300 {
        assert!(taskgate.request("ping", json!({})).await["result"].is_object());
    }
    taskgate.close();
    assert_eq!(taskgate.end().await.0, Some(0));
}

#[tokio::test]
async fn wrong_arguments_and_configurations_exit_64_even_if_stderr_is_closed() {
    for args in [&["check", "--config", "/no/such.toml"][..], &["serve"], &["stdio"], &["--log", "loud", "serve"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_taskgate"));
        let mut child =
            command.args(args).stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(soon(child.wait()).await.unwrap().code(), USAGE, "{args:?}");
    }
}

#[tokio::test]
async fn what_a_client_does_a_thousand_times_is_logged_a_few_times_and_summed_up() {
    let upstream = Upstream::json().await;
    let taskgate = serve("info", &upstream);
    let (client, admin) = (Client::new(&taskgate.url().await), taskgate.admin().await);
    let stranger = client.with("host", "evil.example");
    for _ in 0..1000 {
        assert_eq!(stranger.post("{}").await.status, 403);
    }
    assert_eq!(metric(&admin, "taskgate_requests_refused_total{reason=\"host\"}").await, 1000);
    let held_back = metric(&admin, RATE).await;
    assert!(held_back > 500, "{held_back}");
    let log = end(taskgate).await.stderr;
    let lines = log.lines().filter(|line| line.contains("host=\"evil.example\"")).count();
    assert_eq!(lines as u64, 1000 - held_back, "{log}");
    let sums = log.lines().filter(|line| line.contains("events that came too often were not logged"));
    let sums: Vec<_> = sums.filter(|line| line.contains("a request for a foreign host was refused")).collect();
    let of = |line: &str| line.split("held_back=").nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap();
    assert_eq!(sums.iter().map(|line| of(line)).sum::<u64>(), held_back, "{log}");
}

#[tokio::test]
async fn a_server_that_writes_a_hundred_thousand_lines_of_junk_makes_a_handful_of_lines() {
    let children = Children::new(Script { setup: "yes | head -n 100000", ..Script::default() });
    let taskgate = Binary::start(&[&["serve", "--listen", "127.0.0.1:0", "--"], &children.command()[..]].concat(), &[]);
    // It answers after all of them.
    Client::connect(&taskgate.url().await).await;
    let log = end(taskgate).await.stderr;
    assert!(log.contains("the server wrote a line that is not a message"), "{log}");
    assert!(log.lines().count() < 100, "{log}");
}

#[tokio::test]
async fn an_invalid_filter_is_an_error_that_suggests_a_valid_one() {
    for (args, env) in [(&["--log", "warning", "serve"][..], &[][..]), (&["serve"], &[("TASKGATE_LOG", "warning")])] {
        let ended = Binary::run(args, env).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (USAGE, ""));
        for part in
            ["\"warning\" is not a level; did you mean \"warn\"?", "error, warn, info, debug, trace", "TASKGATE_LOG"]
        {
            assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
        }
    }
}

#[tokio::test]
async fn a_refused_host_or_origin_is_logged_with_its_value_and_the_key_that_lets_it_in() {
    let upstream = Upstream::json().await;
    let taskgate = serve("info", &upstream);
    let client = Client::new(&taskgate.url().await);
    client.with("host", "gate.example:8808").post("{}").await;
    client.with("origin", "https://app.example").post("{}").await;
    let log = end(taskgate).await.stderr;
    for (value, key) in [
        ("host=\"gate.example:8808\"", "server.allowed_hosts"),
        ("origin=\"https://app.example\"", "server.allowed_origins"),
    ] {
        let line = log.lines().find(|line| line.contains(value)).unwrap_or_else(|| panic!("{log}"));
        assert!(line.contains(key) && line.contains("WARN"), "{line}");
    }
}

#[tokio::test]
async fn a_modern_client_that_has_to_fall_back_is_logged_and_counted() {
    let upstream = Upstream::json().await;
    let (_dir, file) = crate::file(&format!("[[upstream]]\nurl = {:?}\nmodern = false\n", upstream.url()));
    let args = ["--log", "info", "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", &file];
    let taskgate = Binary::start(&args, &[]);
    let (client, admin) = (Client::new(&taskgate.url().await), taskgate.admin().await);
    let modern = client.with("mcp-protocol-version", "2026-07-28");
    assert_eq!(modern.post(r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#).await.status, 400);
    assert_eq!(metric(&admin, "taskgate_requests_refused_total{reason=\"modern\"}").await, 1);
    let log = end(taskgate).await.stderr;
    assert!(log.contains("a request of a revision without sessions was answered with 400"), "{log}");
}

#[tokio::test]
async fn a_client_that_leaves_does_not_count_as_a_failure_of_the_server() {
    let upstream = Upstream::json().await;
    let taskgate = serve("taskgate=debug", &upstream);
    let (client, admin) = (Client::connect(&taskgate.url().await).await, taskgate.admin().await);
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.answer("tools/call", json!({ "name": "slow" })).await });
    let _held = upstream.held("slow").await;
    client.delete().await;
    soon(calling).await.unwrap();
    assert_eq!(metric(&admin, "taskgate_exchange_failures_total").await, 0);
    let log = end(taskgate).await.stderr;
    assert!(log.contains("the client left, or its session ended, before the request was answered"), "{log}");
    assert!(!log.contains("request failed upstream"), "{log}");
}

#[tokio::test]
async fn a_failure_is_logged_with_its_session_its_path_and_its_kind() {
    let upstream = Upstream::json().await;
    let taskgate = serve("info", &upstream);
    let client = Client::connect(&taskgate.url().await).await;
    upstream.hold("odd");
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.answer("odd", json!({})).await });
    upstream.held("odd").await.status(500, &[], "a body with a secret");
    soon(calling).await.unwrap();
    upstream.hold("garbled");
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.answer("garbled", json!({})).await });
    upstream.held("garbled").await.status(200, &[("content-type", "application/json")], "a secret");
    soon(calling).await.unwrap();
    let task = client.create_id("fails").await;
    upstream.held("fails").await.error(r#"{"code":-7,"message":"a message with a secret"}"#);
    client.until(&task, "failed").await;
    let log = end(taskgate).await.stderr;
    let line =
        |words: &str| log.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{words} in {log}"));
    let opened = line("session opened");
    let session = opened.split("session=").nth(1).unwrap().split(' ').next().unwrap();
    let failed = line("request failed upstream");
    for part in
        [session, "upstream=\"/mcp\"", "kind=\"http\"", "HTTP 500 Internal Server Error with a body of 20 bytes"]
    {
        assert!(failed.contains(part), "{part} in {failed}");
    }
    assert!(line("what the server sent is not a message").contains("upstream=\"/mcp\""), "{log}");
    let ended = line("task ended");
    for part in [session, "upstream=\"/mcp\"", &task, "tool=\"fails\"", "code=-7"] {
        assert!(ended.contains(part), "{part} in {ended}");
    }
    assert!(!log.contains("secret") && !log.contains(client.session()), "{log}");
}

#[tokio::test]
async fn the_end_of_a_pooled_session_is_logged_before_taskgate_ends() {
    let upstream = Upstream::json().await;
    let taskgate = serve("debug", &upstream);
    let client = Client::new(&taskgate.url().await);
    let client = client.with("mcp-protocol-version", "2026-07-28").with("mcp-method", "tools/list");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } });
    assert_eq!(client.post(request.to_string()).await.status, 200);
    let ended = end(taskgate).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("a session for callers without sessions ended"), "{}", ended.stderr);
}
