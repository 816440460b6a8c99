//! How `taskgate serve` stops.

use rustix::process::Signal;
use serde_json::json;
use tokio::net::TcpStream;

use crate::{
    file,
    kit::{Binary, Client, Upstream, Wrapped, eventually},
};

/// Starts taskgate whose tasks may go on for so long after a signal, and a client in a session.
async fn draining_for(timeout: &str, upstream: &Upstream) -> (Binary, Client) {
    let (_dir, path) = file(&format!("[server]\ndrain_timeout = {timeout:?}\n"));
    let args = ["serve", "--config", &path, "--upstream", &upstream.url(), "--listen", "127.0.0.1:0"];
    let taskgate = Binary::start(&args, &[]);
    let client = Client::connect(&taskgate.url().await).await;
    (taskgate, client)
}

async fn serving(upstream: &Upstream) -> (Binary, Client) {
    draining_for("30s", upstream).await
}

#[tokio::test]
async fn sigterm_and_sigint_end_taskgate_with_exit_code_0() {
    let upstream = Upstream::json().await;
    for signal in [Signal::TERM, Signal::INT] {
        let (taskgate, _client) = serving(&upstream).await;
        taskgate.signal(signal);
        assert_eq!(taskgate.end().await.code, Some(0), "{signal:?}");
    }
    // The sessions were ended upstream as well.
    assert_eq!(upstream.count("DELETE"), 2);
}

#[tokio::test]
async fn sigterm_right_after_the_start_ends_taskgate_with_exit_code_0() {
    // Many times, because what can go wrong here lasts only a moment.
    for _ in 0..40 {
        let taskgate = Binary::start(&["serve", "--upstream", "http://127.0.0.1:9/", "--listen", "127.0.0.1:0"], &[]);
        taskgate.url().await;
        taskgate.signal(Signal::TERM);
        assert_eq!(taskgate.end().await.code, Some(0));
    }
}

#[tokio::test]
async fn sigterm_while_the_store_is_opened_ends_taskgate_with_exit_code_0() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        let store = ["--store", store.to_str().unwrap()];
        let serve = ["serve", "--upstream", "http://127.0.0.1:9/", "--listen", "127.0.0.1:0"];
        let taskgate = Binary::start(&[&serve[..], &store].concat(), &[]);
        eventually(|| async { std::fs::read_dir(folder.path()).unwrap().next() }).await.unwrap();
        taskgate.signal(Signal::TERM);
        assert_eq!(taskgate.end().await.code, Some(0));
    }
}

#[tokio::test]
async fn after_sigterm_a_running_task_ends_before_taskgate_does() {
    let upstream = Upstream::json().await;
    let (taskgate, client) = serving(&upstream).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    taskgate.signal(Signal::TERM);
    let draining = taskgate.logged_after("draining: ").await;
    assert!(draining.contains("tasks=1 until=\"2"), "{draining}");
    slow.result(r#"{"content":[]}"#);
    assert!(client.collect(&id).await["result"].is_object());
    let ended = taskgate.end().await;
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("drained: every task has ended"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_second_signal_ends_running_tasks_at_once() {
    let upstream = Upstream::json().await;
    let (taskgate, client) = serving(&upstream).await;
    client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    taskgate.signal(Signal::TERM);
    taskgate.logged_after("draining: ").await;
    assert!(slow.is_open());
    taskgate.signal(Signal::INT);
    let ended = taskgate.end().await;
    assert_eq!(ended.code, Some(1));
    let said = ended.stderr.lines().any(|line| line.contains("WARN") && line.contains("a second signal ends taskgate"));
    assert!(said, "{}", ended.stderr);
    slow.abandoned().await;
}

#[tokio::test]
async fn after_drain_timeout_every_waiter_is_answered_and_learns_why() {
    let upstream = Upstream::json().await;
    let (taskgate, client) = draining_for("1ms", &upstream).await;
    let id = client.create_id("slow").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.error("tools/call", json!({ "name": "plain" })).await });
    let (_slow, _plain) = (upstream.held("slow").await, upstream.held("plain").await);
    let mut listening = client.get_stream().await;
    taskgate.signal(Signal::TERM);
    let waited = waiting.message().await;
    assert_eq!(waited["error"]["code"], -32603, "{waited}");
    let why = waited["error"]["message"].as_str().unwrap();
    assert_eq!(why, "server.drain_timeout = 1ms is over: taskgate is stopping and has ended the call");
    let (code, why) = calling.await.unwrap();
    assert_eq!(code, -32603);
    assert!(why.contains("session has ended"), "{why}");
    assert_eq!(listening.message().await["params"]["status"], "failed");
    assert_eq!(listening.next().await, None);
    let ended = taskgate.end().await;
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("failed=1 untold=0"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_task_that_drain_timeout_failed_does_not_go_on_upstream() {
    let upstream = Upstream::json().await;
    let (taskgate, client) = draining_for("1ms", &upstream).await;
    client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    taskgate.signal(Signal::TERM);
    slow.abandoned().await;
    assert_eq!(taskgate.end().await.code, Some(0));
    assert_eq!(upstream.count("DELETE"), 1);
}

#[tokio::test]
async fn after_sigterm_no_connection_is_accepted() {
    let upstream = Upstream::json().await;
    upstream.hold("DELETE");
    let (taskgate, _client) = serving(&upstream).await;
    let url = taskgate.url().await;
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
    taskgate.signal(Signal::TERM);
    // taskgate is still there, waiting for the end of the session upstream.
    let delete = upstream.held("DELETE").await;
    eventually(async || TcpStream::connect(address).await.err()).await;
    delete.status(200, &[], "");
    assert_eq!(taskgate.end().await.code, Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_taskgate_at_once() {
    let upstream = Upstream::json().await;
    upstream.hold("DELETE");
    for second in [Signal::TERM, Signal::INT] {
        let (taskgate, _client) = serving(&upstream).await;
        taskgate.signal(Signal::TERM);
        let delete = upstream.held("DELETE").await;
        taskgate.signal(second);
        assert_eq!(taskgate.end().await.code, Some(1), "{second:?}");
        drop(delete);
    }
}

#[tokio::test]
async fn signals_end_taskgate_even_if_the_log_level_hides_them() {
    let upstream = Upstream::json().await;
    let mut taskgate = Wrapped::start(&["--log", "error", "--upstream", &upstream.url()]);
    assert!(taskgate.initialize().await["result"].is_object());
    taskgate.signal(Signal::TERM);
    assert_eq!(taskgate.end().await.0, Some(0));
}

#[tokio::test]
async fn sigterm_while_the_server_has_not_answered_initialize_ends_taskgate_stdio_with_exit_code_0() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("touch {}; exec sleep 60", folder.path().join("started").display());
        let mut taskgate = Wrapped::start(&["--", "sh", "-c", &script]);
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
        taskgate.ask("initialize", params).await;
        eventually(|| async { std::fs::read_dir(folder.path()).unwrap().next() }).await.unwrap();
        taskgate.signal(Signal::TERM);
        let (code, errors) = taskgate.end().await;
        assert_eq!(code, Some(0), "{errors}");
    }
}

#[tokio::test]
async fn sighup_is_ignored_and_logged() {
    let upstream = Upstream::json().await;
    let (taskgate, client) = serving(&upstream).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    taskgate.signal(Signal::HUP);
    let said = taskgate.logged_after("SIGHUP is ignored: ").await;
    assert!(said.contains("restart taskgate to change it"), "{said}");
    slow.result(r#"{"content":[]}"#);
    assert!(client.collect(&id).await["result"].is_object());
    taskgate.signal(Signal::TERM);
    assert_eq!(taskgate.end().await.code, Some(0));
}
