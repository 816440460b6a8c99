//! How a taskgate that stops lets its tasks come to their end, and their owners collect the results.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};

use crate::kit::{Children, Client, Gate, Script, Stream, Upstream, eventually, soon, status_of};

const DONE: &str = r#"{"content":[]}"#;
/// Longer than every test that must not reach it.
const LONG: &str = "[server]\ndrain_timeout = \"1h\"\n";
/// Over before a test has sent a request.
const SHORT: &str = "[server]\ndrain_timeout = \"1ms\"\n";
/// How long clients may ask for tasks that `drain_timeout` has failed.
const LAST_CHANCE: Duration = Duration::from_secs(3);
const HEADER: &str = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";

/// A taskgate that is stopping.
struct Stopping {
    url: String,
    stopping: JoinHandle<()>,
}

impl Stopping {
    /// Begins to stop `gate`; it drains when this returns.
    async fn begin(gate: Gate) -> Self {
        let url = gate.url.clone();
        let stopping = tokio::spawn(gate.stop());
        let other = Client::new(&url).with("x-user", "bob");
        eventually(async || {
            let answer = other.ask_to_initialize("2025-11-25", json!({})).await;
            answer.text().contains("taskgate is stopping").then_some(())
        })
        .await;
        Self { url, stopping }
    }

    /// Returns the same client on connections of its own.
    fn on_new_connections(&self, client: &Client) -> Client {
        let mut copy = Client::new(&self.url);
        copy.headers = client.headers.clone();
        copy
    }

    fn goes_on(&self) -> bool {
        !self.stopping.is_finished()
    }

    async fn ends(self) {
        soon(self.stopping).await.unwrap();
    }
}

/// Starts a server, taskgate that drains for as long as it takes, and a client in a session.
async fn house(upstream: Upstream) -> (Upstream, Gate, Client) {
    let gate = Gate::with(&upstream, LONG).await;
    let able = json!({ "elicitation": {} });
    let client = Client::connect_as(&gate.url, "2025-11-25", able).await;
    (upstream, gate, client)
}

/// Opens a stream that waits for the result of a task.
async fn waiting(client: &Client, id: &str) -> Stream {
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    waiting
}

/// Returns how long the client is told to stay away, at the end of its GET stream.
async fn sent_away(listening: &mut Stream) -> Option<u64> {
    let mut retry = None;
    while let Some(event) = listening.next_of_any_kind().await {
        retry = event.retry;
    }
    retry
}

#[tokio::test]
async fn a_running_task_runs_to_its_end_and_its_waiter_gets_the_result() {
    let (upstream, gate, client) = house(Upstream::json().await).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let mut waiter = waiting(&client, &id).await;
    let stopping = Stopping::begin(gate).await;
    assert!(slow.is_open());
    slow.result(DONE);
    assert_eq!(waiter.message().await["result"]["content"], json!([]));
    stopping.ends().await;
}

#[tokio::test]
async fn a_queued_task_still_gets_its_turn() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &format!("{LONG}[tasks]\nmax_running = 1\n")).await;
    let client = Client::connect(&gate.url).await;
    let (first, second) = (client.create_id("slow").await, client.create_id("slow").await);
    let slow = upstream.held("slow").await;
    let stopping = Stopping::begin(gate).await;
    slow.result(DONE);
    assert!(client.collect(&first).await["result"].is_object());
    upstream.held("slow").await.result(DONE);
    assert!(client.collect(&second).await["result"].is_object());
    stopping.ends().await;
}

#[tokio::test]
async fn a_result_waits_for_a_client_that_polls_on_new_connections() {
    let (upstream, gate, client) = house(Upstream::json().await).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let stopping = Stopping::begin(gate).await;
    slow.result(DONE);
    stopping.on_new_connections(&client).until(&id, "completed").await;
    // A client that knows of the result does not have it yet.
    assert!(stopping.on_new_connections(&client).list().await.contains(&id));
    assert!(stopping.goes_on());
    assert_eq!(stopping.on_new_connections(&client).collect(&id).await["result"]["content"], json!([]));
    stopping.ends().await;
}

#[tokio::test]
async fn draining_does_not_wait_for_clients_of_failed_or_cancelled_tasks() {
    let (upstream, gate, client) = house(Upstream::json().await).await;
    let (failing, cancelled) = (client.create_id("slow").await, client.create_id("other").await);
    let slow = upstream.held("slow").await;
    let stopping = Stopping::begin(gate).await;
    assert_eq!(status_of(&client.cancel(&cancelled).await), "cancelled");
    slow.error(r#"{"code":-1,"message":"no disk"}"#);
    client.until(&failing, "failed").await;
    stopping.ends().await;
}

#[tokio::test]
async fn draining_does_not_wait_for_results_that_no_client_can_reach() {
    let upstream = Upstream::json().await;
    for (auth, session) in [("", "anonymous"), (HEADER, "ann")] {
        let gate = Gate::with(&upstream, &format!("{LONG}{auth}")).await;
        let client = Client::new(&gate.url).with("x-user", session).initialize("2025-11-25", json!({})).await;
        let _other = Client::new(&gate.url).with("x-user", "bob").initialize("2025-11-25", json!({})).await;
        let id = client.create_id("slow").await;
        let slow = upstream.held("slow").await;
        let stopping = Stopping::begin(gate).await;
        slow.result(DONE);
        client.until(&id, "completed").await;
        assert_eq!(client.delete().await.status, 200);
        stopping.ends().await;
    }
}

#[tokio::test]
async fn a_task_of_a_user_without_a_session_still_runs_to_its_end() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &format!("{LONG}{HEADER}")).await;
    let client = Client::new(&gate.url).with("x-user", "ann").initialize("2025-11-25", json!({})).await;
    client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    assert_eq!(client.delete().await.status, 200);
    let stopping = Stopping::begin(gate).await;
    assert!(slow.is_open() && stopping.goes_on());
    slow.result(DONE);
    stopping.ends().await;
}

#[tokio::test]
async fn new_sessions_and_new_tasks_are_refused_while_open_sessions_are_served() {
    let upstream = Upstream::json().await;
    let toml = format!("{LONG}[[upstream]]\nsse_path = \"/sse\"\n");
    let gate = Gate::with(&upstream, &toml).await;
    let client = Client::connect(&gate.url).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let stopping = Stopping::begin(gate).await;
    let refused = Client::new(&stopping.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!(refused, (200, -32603, "taskgate is stopping; try again when it is back".to_owned()));
    let old = Client::new(&stopping.url.replace("/mcp", "/sse"));
    let refused = old.send(Method::GET, "").await.refusal();
    assert_eq!(refused, (503, -32603, "taskgate is stopping; try again when it is back".to_owned()));
    let (code, why) = client.error("tools/call", json!({ "name": "echo", "task": {} })).await;
    assert_eq!(code, -32603);
    assert_eq!(why, "taskgate is stopping and takes no new tasks; try again when it is back");
    let echoed =
        stopping.on_new_connections(&client).ask("tools/call", json!({ "name": "echo", "arguments": {} })).await;
    assert!(echoed["content"].is_array());
    assert!(client.list().await.contains(&id));
    slow.result(DONE);
    client.collect(&id).await;
    stopping.ends().await;
}

#[tokio::test]
async fn a_handshake_in_flight_is_given_up() {
    let (upstream, gate, client) = house(Upstream::json().await).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    upstream.hold("initialize");
    let late = Client::new(&gate.url);
    let asking = tokio::spawn(async move { late.ask_to_initialize("2025-11-25", json!({})).await });
    let initialize = upstream.held("initialize").await;
    let stopping = tokio::spawn(gate.stop());
    assert_eq!(soon(asking).await.unwrap().refusal().2, "taskgate is stopping; try again when it is back");
    initialize.abandoned().await;
    slow.result(DONE);
    client.collect(&id).await;
    soon(stopping).await.unwrap();
}

async fn asks(server: &kit::Sse, question: &str) {
    let params = json!({ "message": question, "requestedSchema": { "type": "object", "properties": {} } });
    let request = json!({ "jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params });
    server.event(&request.to_string()).await;
}

async fn answers(client: &Client, question: &Value) {
    assert_eq!(client.respond(&question["id"], json!({ "action": "accept", "content": {} })).await, 202);
}

async fn question_on(stream: &mut Stream) -> Value {
    loop {
        let message = stream.message().await;
        if message["method"] == "elicitation/create" {
            return message;
        }
    }
}

#[tokio::test]
async fn questions_of_running_tasks_are_still_asked_and_answered() {
    let (upstream, gate, client) = house(Upstream::sse().await).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    let mut listening = client.get_stream().await;
    asks(&slow, "before").await;
    let before = question_on(&mut listening).await;
    let stopping = Stopping::begin(gate).await;
    answers(&client, &before).await;
    upstream.wait_for(|seen| seen.json()["id"] == "before" && seen.rpc().is_empty()).await;
    // The stream of a client that may be asked something has stayed.
    asks(&slow, "meanwhile").await;
    let meanwhile = question_on(&mut listening).await;
    answers(&stopping.on_new_connections(&client), &meanwhile).await;
    upstream.wait_for(|seen| seen.json()["id"] == "meanwhile" && seen.rpc().is_empty()).await;
    slow.result(DONE).await;
    assert!(client.collect(&id).await["result"].is_object());
    // It ends with the session.
    assert_eq!(sent_away(&mut listening).await, Some(5000));
    stopping.ends().await;
}

#[tokio::test]
async fn a_get_stream_that_no_task_needs_ends_and_says_when_to_reconnect() {
    let (upstream, gate, client) = house(Upstream::sse().await).await;
    let bystander = Client::connect(&gate.url).await;
    let mut listening = bystander.get_stream().await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    let stopping = Stopping::begin(gate).await;
    assert_eq!(sent_away(&mut listening).await, Some(5000));
    assert!(stopping.goes_on());
    // A client that comes back during the drain is served.
    let mut again = stopping.on_new_connections(&bystander).get_stream().await;
    slow.result(DONE).await;
    client.collect(&id).await;
    assert_eq!(sent_away(&mut again).await, Some(5000));
    stopping.ends().await;
}

#[tokio::test]
async fn the_get_stream_of_a_revision_without_polling_stays_until_its_session_ends() {
    let (upstream, gate, client) = house(Upstream::sse().await).await;
    let old = Client::connect_as(&gate.url, "2025-06-18", json!({})).await;
    let mut listening = old.get_stream().await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    let stopping = Stopping::begin(gate).await;
    for server in [upstream.get_stream().await, upstream.get_stream().await] {
        server.notify("notifications/tools/list_changed", json!({})).await;
    }
    assert_eq!(listening.message().await["method"], "notifications/tools/list_changed");
    slow.result(DONE).await;
    client.collect(&id).await;
    assert_eq!(sent_away(&mut listening).await, None);
    stopping.ends().await;
}

#[tokio::test]
async fn after_drain_timeout_the_remaining_tasks_fail_and_waiters_and_pollers_learn_why() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &format!("{SHORT}[tasks]\nmax_running = 1\n")).await;
    let client = Client::connect(&gate.url).await;
    let (awaited, polled, queued) =
        (client.create_id("slow").await, client.create_id("other").await, client.create_id("other").await);
    let (slow, other) = (upstream.held("slow").await, upstream.held("other").await);
    let mut waiter = waiting(&client, &awaited).await;
    let since = Instant::now();
    let stopping = Stopping::begin(gate).await;
    let why = "server.drain_timeout = 1ms is over: taskgate is stopping and has ended the call";
    assert_eq!(waiter.message().await["error"]["message"], why);
    for id in [&polled, &queued] {
        assert_eq!(stopping.on_new_connections(&client).until(id, "failed").await["statusMessage"], why);
    }
    slow.abandoned().await;
    other.abandoned().await;
    assert_eq!(upstream.count("other"), 1);
    stopping.ends().await;
    assert!(since.elapsed() < LAST_CHANCE, "{:?}", since.elapsed());
}

#[tokio::test]
async fn the_time_to_collect_a_failure_ends_even_if_no_client_collects_it() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, SHORT).await;
    let client = Client::connect(&gate.url).await;
    client.create_id("slow").await;
    let since = Instant::now();
    gate.stop().await;
    assert!(since.elapsed() >= LAST_CHANCE, "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_child_whose_call_hits_drain_timeout_ends_with_taskgate() {
    let children = Children::new(Script::default());
    let gate = children.gate(SHORT).await;
    let client = Client::connect(&gate.url).await;
    let child = children.only().await;
    let id = client.create_id("hold").await;
    child.line(r#""hold""#).await;
    let stopping = Stopping::begin(gate).await;
    client.until(&id, "failed").await;
    stopping.ends().await;
    assert!(!child.is_alive());
}

#[tokio::test]
async fn without_a_running_task_taskgate_ends_at_once() {
    let (upstream, gate, client) = house(Upstream::json().await).await;
    // Kept results and a plain call in flight make no difference.
    let id = client.create_id("echo").await;
    client.until(&id, "completed").await;
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.error("tools/call", json!({ "name": "plain" })).await });
    let _plain = upstream.held("plain").await;
    gate.stop().await;
    assert!(calling.await.unwrap().1.contains("session has ended"));
}

#[tokio::test]
async fn a_request_with_an_incomplete_head_does_not_delay_the_end() {
    let (_upstream, gate, client) = house(Upstream::json().await).await;
    let head = format!("POST /mcp HTTP/1.1\r\nhost: {}\r\n", gate.authority());
    let whole = format!("DELETE /mcp HTTP/1.1\r\nhost: {}\r\n\r\n", gate.authority());
    let mut connections = Vec::new();
    // The first head of a connection, and a later one.
    for text in [head.clone(), format!("{whole}{head}")] {
        let mut connection = TcpStream::connect(gate.authority()).await.unwrap();
        connection.write_all(text.as_bytes()).await.unwrap();
        connections.push(connection);
    }
    client.ask("ping", json!({})).await;
    let since = Instant::now();
    gate.stop().await;
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_request_whose_head_has_come_is_answered_where_its_body_comes_while_taskgate_ends() {
    let (_upstream, gate, _client) = house(Upstream::json().await).await;
    let address = gate.authority().to_owned();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"
    );
    let mut connection = TcpStream::connect(&address).await.unwrap();
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut came = [0; 25];
    soon(connection.read_exact(&mut came)).await.unwrap();
    assert!(came.starts_with(b"HTTP/1.1 100 Continue"));
    let since = Instant::now();
    let stopping = tokio::spawn(gate.stop());
    eventually(async || TcpStream::connect(&address).await.is_err().then_some(())).await;
    connection.write_all(b"{}").await.unwrap();
    let mut answer = String::new();
    soon(connection.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("-32600"), "{answer}");
    soon(stopping).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}
