//! The admin port: its answers about life and readiness, and what it counts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use http::Method;
use kit::{Answer, Answers, Children, Client, Gate, Options, Script, Upstream, eventually, soon, status_of, text_of};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const ADMIN: &str = "[server]\nadmin = \"127.0.0.1:0\"\n";

async fn observed(toml: &str) -> (Upstream, Gate) {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &format!("{ADMIN}{toml}")).await;
    (upstream, gate)
}

async fn fetch(gate: &Gate, path: &str) -> Answer {
    Client::new(&format!("{}{path}", gate.admin.as_ref().unwrap())).send(Method::GET, "").await
}

/// Returns every sample by its name and labels.
async fn metrics(gate: &Gate) -> HashMap<String, f64> {
    let answer = fetch(gate, "/metrics").await;
    let samples = answer.text().lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// Waits until the samples have these values.
async fn counts(gate: &Gate, expected: &[(&str, f64)]) {
    let all = eventually(async || {
        let metrics = metrics(gate).await;
        expected.iter().all(|(name, value)| metrics.get(*name) == Some(value)).then_some(())
    });
    if tokio::time::timeout(Duration::from_secs(5), all).await.is_err() {
        let metrics = metrics(gate).await;
        let found: Vec<_> = expected.iter().map(|(name, _)| (*name, metrics.get(*name))).collect();
        panic!("expected {expected:?}, found {found:?}");
    }
}

#[tokio::test]
async fn without_an_admin_address_no_port_serves_the_admin_paths() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    assert_eq!(gate.admin, None);
    for path in ["/livez", "/readyz", "/metrics"] {
        let url = format!("http://{}{path}", gate.authority());
        assert_eq!(Client::new(&url).send(Method::GET, "").await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn taskgate_is_alive_and_ready_from_the_start() {
    // Even where the upstream is down: calls report that themselves.
    let (upstream, gate) = observed("").await;
    upstream.stop().await;
    for path in ["/livez", "/readyz"] {
        let answer = fetch(&gate, path).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "ok\n"), "{path}");
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    }
}

#[tokio::test]
async fn while_taskgate_stops_it_is_alive_but_not_ready() {
    let (upstream, gate) = observed("").await;
    upstream.hold("DELETE");
    let _client = Client::connect(&gate.url).await;
    let ready = Client::new(&format!("{}/readyz", gate.admin.as_ref().unwrap()));
    let live = Client::new(&format!("{}/livez", gate.admin.as_ref().unwrap()));
    let stopping = tokio::spawn(gate.stop());
    // It waits for the session to end upstream.
    let delete = upstream.held("DELETE").await;
    let answer = ready.send(Method::GET, "").await;
    assert_eq!((answer.status.as_u16(), answer.text()), (503, "stopping\n"));
    assert_eq!(live.send(Method::GET, "").await.status, 200);
    delete.status(200, &[], "");
    soon(stopping).await.unwrap();
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_with_the_known_ones() {
    let (_upstream, gate) = observed("").await;
    let unknown = fetch(&gate, "/").await;
    assert_eq!((unknown.status.as_u16(), unknown.text()), (404, "try /livez, /readyz or /metrics\n"));
    let admin = Client::new(&format!("{}/metrics", gate.admin.as_ref().unwrap()));
    let refused = admin.send(Method::POST, "{}").await;
    assert_eq!((refused.status.as_u16(), refused.header("allow")), (405, "GET, HEAD"));
    let head = admin.send(Method::HEAD, "").await;
    assert_eq!((head.status.as_u16(), head.text()), (200, ""));
    // MCP is served elsewhere.
    assert_eq!(fetch(&gate, "/mcp").await.status, 404);
}

/// Connects to the admin port, and sends this.
async fn connect(gate: &Gate, sent: &str) -> TcpStream {
    let address = gate.admin.as_ref().unwrap().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn of_the_admin_port_64_connections_are_served_at_once_and_those_without_a_request_end_after_a_second() {
    let (_upstream, gate) = observed("").await;
    let begun = Instant::now();
    let mut silent = Vec::new();
    for number in 0..64 {
        // Half of them have begun a request.
        silent.push(connect(&gate, if number % 2 == 0 { "" } else { "GET /metrics HTTP/1.1\r\n" }).await);
    }
    let mut late = connect(&gate, "GET /livez HTTP/1.1\r\nhost: taskgate\r\nconnection: close\r\n\r\n").await;
    let mut answer = String::new();
    soon(late.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(10), "{waited:?}");
    for mut stream in silent {
        let mut rest = Vec::new();
        // It may be reset.
        let _ = soon(stream.read_to_end(&mut rest)).await;
    }
}

#[tokio::test]
async fn a_connection_of_the_admin_port_has_one_request() {
    let (_upstream, gate) = observed("").await;
    let mut stream = connect(&gate, "GET /livez HTTP/1.1\r\nhost: taskgate\r\n\r\n").await;
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("connection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn metrics_are_in_the_openmetrics_format_and_each_has_a_help_text() {
    let (_upstream, gate) = observed("").await;
    let answer = fetch(&gate, "/metrics").await;
    assert_eq!(answer.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(answer.text().ends_with("# EOF\n"));
    let described = |kind: &str| -> Vec<String> {
        let lines = answer.text().lines().filter_map(|line| line.strip_prefix(kind));
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    let names = described("# TYPE ");
    assert_eq!(described("# HELP "), names);
    assert!(names.len() > 10 && names.iter().all(|name| name.starts_with("taskgate_")), "{names:?}");
}

#[tokio::test]
async fn open_sessions_and_opened_sessions_are_counted() {
    let (_upstream, gate) = observed("").await;
    counts(&gate, &[("taskgate_sessions", 0.0), ("taskgate_sessions_opened_total", 0.0)]).await;
    let (first, _second) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    counts(&gate, &[("taskgate_sessions", 2.0), ("taskgate_sessions_opened_total", 2.0)]).await;
    first.delete().await;
    first.delete().await;
    counts(&gate, &[("taskgate_sessions", 1.0), ("taskgate_sessions_opened_total", 2.0)]).await;
}

#[tokio::test]
async fn tasks_are_counted_from_creation_to_the_end_and_by_how_they_ended() {
    let (upstream, gate) = observed("[tasks]\nmax_running = 1\nmax_queued = 1\n").await;
    let client = Client::connect(&gate.url).await;
    let running = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let queued = client.create_id("slow").await;
    client.error("tools/call", json!({ "name": "slow", "task": {} })).await;
    let live = [("taskgate_tasks_live", 2.0), ("taskgate_tasks_queued", 1.0), ("taskgate_tasks_kept", 2.0)];
    counts(&gate, &live).await;
    assert_eq!(status_of(&client.cancel(&queued).await), "cancelled");
    slow.result(r#"{"content":[]}"#);
    client.until(&running, "completed").await;
    let failed = client.create_id("fail").await;
    client.until(&failed, "failed").await;
    let ended = [
        ("taskgate_tasks_live", 0.0),
        ("taskgate_tasks_queued", 0.0),
        ("taskgate_tasks_kept", 3.0),
        ("taskgate_tasks_created_total", 3.0),
        (r#"taskgate_tasks_ended_total{status="completed"}"#, 1.0),
        (r#"taskgate_tasks_ended_total{status="failed"}"#, 1.0),
        (r#"taskgate_tasks_ended_total{status="cancelled"}"#, 1.0),
        ("taskgate_task_duration_seconds_count", 3.0),
    ];
    counts(&gate, &ended).await;
    let refused: f64 = metrics(&gate)
        .await
        .iter()
        .filter(|(name, _)| name.starts_with("taskgate_tasks_refused_total{"))
        .map(|(_, value)| value)
        .sum();
    assert!((refused - 1.0).abs() < f64::EPSILON, "{refused}");
}

#[tokio::test]
async fn the_bytes_of_kept_results_are_counted() {
    let (upstream, gate) = observed("").await;
    let client = Client::connect(&gate.url).await;
    let id = client.create_id("slow").await;
    upstream.held("slow").await.result(r#"{"x":"123456"}"#);
    client.until(&id, "completed").await;
    counts(&gate, &[("taskgate_result_bytes", 14.0)]).await;
    client.delete().await;
    counts(&gate, &[("taskgate_result_bytes", 0.0)]).await;
}

#[tokio::test]
async fn tasks_of_an_ended_session_count_as_orphaned_and_no_longer_as_kept() {
    let (upstream, gate) = observed("").await;
    let client = Client::connect(&gate.url).await;
    client.create_id("slow").await;
    let done = client.create_id("echo").await;
    client.until(&done, "completed").await;
    let _slow = upstream.held("slow").await;
    client.delete().await;
    let after = [
        ("taskgate_tasks_live", 0.0),
        ("taskgate_tasks_kept", 0.0),
        (r#"taskgate_tasks_ended_total{status="orphaned"}"#, 1.0),
        (r#"taskgate_tasks_ended_total{status="completed"}"#, 1.0),
    ];
    counts(&gate, &after).await;
}

#[tokio::test]
async fn expired_tasks_no_longer_count_as_kept() {
    let short = "[tasks]\nttl = \"300ms\"\ntimeout = \"50ms\"\npoll_interval = \"5ms\"\n";
    let (_upstream, gate) = observed(short).await;
    let client = Client::connect(&gate.url).await;
    client.create_id("echo").await;
    let after = [
        ("taskgate_tasks_kept", 0.0),
        ("taskgate_tasks_live", 0.0),
        ("taskgate_tasks_created_total", 1.0),
        (r#"taskgate_tasks_ended_total{status="completed"}"#, 1.0),
    ];
    counts(&gate, &after).await;
}

#[tokio::test]
async fn refused_http_requests_are_counted_by_reason() {
    let (_upstream, gate) = observed("").await;
    // An alert on growth needs the counter before its first event.
    counts(&gate, &[(r#"taskgate_requests_refused_total{reason="malformed"}"#, 0.0)]).await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(client.post("{").await.status, 400);
    assert_eq!(client.post("{").await.status, 400);
    assert_eq!(client.with("origin", "http://elsewhere.test").post("{}").await.status, 403);
    let metrics = metrics(&gate).await;
    let mut refused: Vec<_> = metrics
        .iter()
        .filter(|(name, _)| name.starts_with("taskgate_requests_refused_total{reason="))
        .map(|(_, value)| *value)
        .filter(|value| *value > 0.0)
        .collect();
    refused.sort_by(f64::total_cmp);
    assert_eq!(refused, [1.0, 2.0], "{metrics:?}");
}

#[tokio::test]
async fn unanswered_calls_are_counted() {
    let (upstream, gate) = observed("").await;
    let client = Client::connect(&gate.url).await;
    upstream.stop().await;
    client.error("tools/call", json!({ "name": "echo" })).await;
    counts(&gate, &[("taskgate_exchange_failures_total", 1.0)]).await;
}

#[tokio::test]
async fn responses_and_progress_that_match_no_request_are_counted() {
    let upstream = Upstream::start(Options { answers: Answers::Sse, ..Options::default() }).await;
    let gate = Gate::with(&upstream, ADMIN).await;
    let client = Client::connect(&gate.url).await;
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    slow.event(r#"{"jsonrpc":"2.0","id":987654,"result":{}}"#).await;
    slow.notify("notifications/progress", json!({ "progressToken": 987_654, "progress": 1 })).await;
    slow.result(r#"{"content":[]}"#).await;
    assert!(call.message().await["result"].is_object());
    let dropped = [("taskgate_unknown_responses_total", 1.0), ("taskgate_unknown_progress_total", 1.0)];
    counts(&gate, &dropped).await;
}

#[tokio::test]
async fn unread_messages_are_bounded_and_dropped_ones_are_counted() {
    let tools = r#"*'"name":"chatter"'*)
        words=$(head -c 1000 /dev/zero | tr '\0' x)
        yes '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"'$words'"}}' \
            | head -n 5000
        text "$id" done ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate(ADMIN).await;
    let client = Client::connect(&gate.url).await;
    // A task: there is no answer that could carry them, and no GET stream is open.
    let id = client.create_id("chatter").await;
    client.until(&id, "completed").await;
    let dropped = metrics(&gate).await["taskgate_messages_dropped_total"];
    assert!((1.0..5_000.0).contains(&dropped), "{dropped}");
    assert!(!text_of(&client, "pid").await.is_empty());
}

#[tokio::test]
async fn running_children_are_counted() {
    let children = Children::new(Script::default());
    let gate = children.gate(ADMIN).await;
    counts(&gate, &[("taskgate_children", 0.0)]).await;
    let (first, second) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    counts(&gate, &[("taskgate_children", 2.0)]).await;
    first.delete().await;
    counts(&gate, &[("taskgate_children", 1.0)]).await;
    assert!(!text_of(&second, "pid").await.is_empty());
    second.error("tools/call", json!({ "name": "die" })).await;
    counts(&gate, &[("taskgate_children", 0.0)]).await;
}
