//! How `taskgate stdio` ends, and what its exit code says.

use rustix::process::Signal;
use serde_json::json;

use crate::kit::{Binary, Children, Script, Upstream, Wrapped, eventually};

fn args(children: &Children) -> Vec<&str> {
    [&["--"], &children.command()[..]].concat()
}

#[tokio::test]
async fn the_end_of_stdin_ends_the_server_and_then_taskgate_with_the_servers_exit_code() {
    for (after, code) in [("", 0), ("exit 7", 7)] {
        let children = Children::new(Script { after, ..Script::default() });
        let mut client = Wrapped::connect(&args(&children)).await;
        let child = children.only().await;
        client.close();
        let (ended, log) = client.end().await;
        assert_eq!(ended, Some(code), "{log}");
        child.gone().await;
    }
}

#[tokio::test]
async fn requests_before_the_end_of_stdin_are_still_answered() {
    let children = Children::new(Script::default());
    let mut client = Wrapped::start(&args(&children));
    client.ask("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {} })).await;
    client.write(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    let id = client.ask("tools/call", json!({ "name": "pid" })).await;
    client.close();
    client.until(|message| message["id"] == id && message["result"].is_object()).await;
    assert_eq!(client.end().await.0, Some(0));
}

#[tokio::test]
async fn the_death_of_the_server_reaches_the_client_and_the_exit_code() {
    let children = Children::new(Script::default());
    let mut client = Wrapped::connect(&args(&children)).await;
    let id = client.ask("tools/call", json!({ "name": "die" })).await;
    let answer = client.until(|message| message["id"] == id).await;
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.contains("the disk is on fire"), "{why}");
    let (code, log) = client.end().await;
    assert_eq!(code, Some(3), "{log}");
}

#[tokio::test]
async fn results_outlive_the_server_until_the_client_closes_stdin() {
    let children = Children::new(Script::default());
    let mut client = Wrapped::connect(&args(&children)).await;
    let created = client.request("tools/call", json!({ "name": "pid", "task": {} })).await;
    let task = json!({ "taskId": created["result"]["task"]["taskId"] });
    client.until(|message| message["params"]["status"] == "completed").await;
    client.request("tools/call", json!({ "name": "die" })).await;
    children.only().await.gone().await;
    let collected = client.request("tasks/result", task).await;
    assert!(collected["result"]["content"].is_array(), "{collected}");
    let refused = client.request("tools/list", json!({})).await;
    assert!(refused["error"]["message"].is_string(), "{refused}");
    client.close();
    assert_eq!(client.end().await.0, Some(3));
}

#[tokio::test]
async fn sigterm_answers_every_waiter_and_ends_the_server() {
    let children = Children::new(Script::default());
    let mut client = Wrapped::connect(&args(&children)).await;
    let created = client.request("tools/call", json!({ "name": "hold", "task": {} })).await;
    let waiting = client.ask("tasks/result", json!({ "taskId": created["result"]["task"]["taskId"] })).await;
    let child = children.only().await;
    child.line(r#""hold""#).await;
    // A later answer shows that the request before it has been read.
    client.request("ping", json!({})).await;
    client.signal(Signal::TERM);
    let answer = client.until(|message| message["id"] == waiting).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("taskgate is stopping"), "{answer}");
    let (code, log) = client.end().await;
    assert_eq!(code, Some(0), "{log}");
    child.gone().await;
}

#[tokio::test]
async fn a_client_that_stops_reading_ends_the_session() {
    let upstream = Upstream::sse().await;
    let client = Wrapped::connect(&["--upstream", &upstream.url()]).await;
    drop(client);
    // Killed with it, so that only a session that was left behind could still be told.
    let mut client = Wrapped::connect(&["--upstream", &upstream.url()]).await;
    client.close();
    assert_eq!(client.end().await.0, Some(0));
    let ended = upstream.wait_for(|seen| seen.method == "DELETE").await;
    assert_eq!(ended.header("mcp-session-id"), "upstream-2");
}

#[tokio::test]
async fn a_command_that_cannot_start_is_an_error_for_the_client_and_in_the_exit_code() {
    let mut client = Wrapped::start(&["--", "no-such-program"]);
    let answer = client.initialize().await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("no-such-program"), "{answer}");
    client.close();
    assert_eq!(client.end().await.0, Some(1));
}

#[tokio::test]
async fn several_upstreams_cannot_be_wrapped_and_their_store_is_left_alone() {
    let dir = tempfile::TempDir::new().unwrap();
    let (config, store) = (dir.path().join("config.toml"), dir.path().join("store.db"));
    let text = "[store]\nkind = \"file\"\npath = \"store.db\"\n\
                [[upstream]]\npath = \"/a\"\nurl = \"http://h/\"\n[[upstream]]\npath = \"/b\"\nurl = \"http://h/\"";
    std::fs::write(&config, text).unwrap();
    let ended = Binary::run(&["stdio", "--config", config.to_str().unwrap()], &[]).await;
    assert!(!store.exists());
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("stdio serves one upstream, but the configuration has 2"), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

#[tokio::test]
async fn a_client_that_no_longer_reads_does_not_keep_taskgate_from_ending() {
    for end in [Wrapped::close, |client: &mut Wrapped| client.signal(Signal::TERM)] {
        let children = Children::new(Script::default());
        let mut client = Wrapped::connect(&args(&children)).await;
        // More than a pipe holds.
        let id = "x".repeat(200_000);
        client.write(&json!({ "jsonrpc": "2.0", "id": id, "method": "tasks/list" }).to_string()).await;
        end(&mut client);
        let (code, log) = client.end().await;
        assert_eq!(code, Some(0), "{log}");
    }
}

#[tokio::test]
async fn taskgate_ends_with_exit_code_0_at_every_log_level() {
    for level in ["warn", "error", "off"] {
        let children = Children::new(Script::default());
        let mut client = Wrapped::connect(&[&["--log", level], &args(&children)[..]].concat()).await;
        client.close();
        assert_eq!(client.end().await.0, Some(0), "{level}");
    }
}

#[tokio::test]
async fn a_server_that_dies_before_it_has_answered_initialize_ends_taskgate_with_its_exit_code() {
    let words = "read -r line; echo 'Error: no licence' >&2; echo '+----+' >&2; exit 5";
    let mut client = Wrapped::start(&["--", "sh", "-c", words]);
    let answer = client.initialize_alone().await;
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.ends_with("exit status: 5; its last words: Error: no licence"), "{why}");
    // Its stdin is still open.
    let (code, log) = client.end().await;
    assert_eq!(code, Some(5), "{log}");
    assert!(log.contains("the server ended before it had answered initialize") && log.contains("no licence"), "{log}");
}

#[tokio::test]
async fn a_server_has_time_to_save_after_the_end_of_stdin_before_it_gets_sigterm() {
    let script =
        Script { setup: "trap 'note SIGTERM; exit 9' TERM", tools: "", after: "sleep 0.8; note saved; exit 7" };
    let children = Children::new(script);
    let mut client = Wrapped::connect(&args(&children)).await;
    let child = children.only().await;
    client.close();
    assert_eq!(client.end().await.0, Some(7));
    assert_eq!(child.lines().last().unwrap(), "saved");
}

#[tokio::test]
async fn a_sigterm_after_the_end_of_stdin_takes_no_time_from_a_server_that_saves() {
    let script = Script {
        setup: "trap 'note SIGTERM; sleep 0.3; note saved; exit 7' TERM",
        tools: "",
        after: "note 'end of stdin'; while :; do sleep 0.1; done",
    };
    let children = Children::new(script);
    let mut client = Wrapped::connect(&args(&children)).await;
    let child = children.only().await;
    client.close();
    child.line("end of stdin").await;
    client.signal(Signal::TERM);
    assert_eq!(client.end().await.0, Some(0), "taskgate had to end it by a signal");
    assert_eq!(child.lines().split_off(child.lines().len() - 2), ["SIGTERM", "saved"]);
}

#[tokio::test]
async fn at_the_end_of_stdin_taskgate_does_not_wait_for_a_cancelled_call() {
    let quickly = async || {
        let children = Children::new(Script { after: "note 'end of stdin'", ..Script::default() });
        let mut client = Wrapped::connect(&args(&children)).await;
        let id = client.ask("tools/call", json!({ "name": "hold" })).await;
        let child = children.only().await;
        child.line(r#""hold""#).await;
        let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
        client.write(&cancelled.to_string()).await;
        child.line("notifications/cancelled").await;
        let since = std::time::Instant::now();
        client.close();
        child.line("end of stdin").await;
        // taskgate waits half a second for a call that was not cancelled. A busy machine may take as long for less.
        let took = since.elapsed();
        assert_eq!(client.end().await.0, Some(0));
        (took < std::time::Duration::from_millis(450)).then_some(())
    };
    eventually(quickly).await;
}
