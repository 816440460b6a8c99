//! How children are started: with what environment, how many, and how soon again.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::kit::{Binary, Children, Client, Gate, Script, eventually, text_of};

const TELLS: Script = Script {
    setup: "",
    tools: r#"*'"name":"env"'*) text "$id" "$KEY|$EMPTY|$HOME" ;; *'"name":"cwd"'*) text "$id" "$PWD" ;;"#,
    after: "",
};

#[tokio::test]
async fn a_child_gets_the_variables_of_env_besides_taskgates_own() {
    let children = Children::new(TELLS);
    let gate = children.gate("[[upstream]]\nenv = { KEY = \"a=b c\", EMPTY = \"\" }").await;
    let client = Client::connect(&gate.url).await;
    let home = std::env::var("HOME").unwrap_or_default();
    assert_eq!(text_of(&client, "env").await, format!("a=b c||{home}"));
}

#[tokio::test]
async fn a_child_starts_in_cwd_and_without_it_where_taskgate_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().display().to_string();
    let children = Children::new(TELLS);
    let gate = children.gate(&format!("[[upstream]]\ncwd = {path:?}")).await;
    assert_eq!(text_of(&Client::connect(&gate.url).await, "cwd").await, path);
    let gate = children.gate("").await;
    let here = std::env::current_dir().unwrap().canonicalize().unwrap().display().to_string();
    assert_eq!(text_of(&Client::connect(&gate.url).await, "cwd").await, here);
}

#[tokio::test]
async fn a_directory_that_was_removed_since_the_start_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let gate = Gate::with_command("sh", &["-c", "cat"], &format!("[[upstream]]\ncwd = {path:?}")).await;
    drop(folder);
    let (status, code, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32603));
    assert!(message.contains(&format!("cannot start \"sh\" in {path}: No such file")), "{message}");
}

#[tokio::test]
async fn a_session_beyond_max_children_is_refused_until_a_child_is_gone() {
    let children = Children::new(Script::default());
    let gate = children.gate("[[upstream]]\nmax_children = 2").await;
    let (first, second) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let (_of_first, _of_second) = (first.get_stream().await, second.get_stream().await);
    let third = Client::new(&gate.url);
    let (status, code, message) = third.ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32603));
    let why = "limit reached: max_children = 2 processes of this server run, all of them in use or about to end; \
               try again later";
    assert_eq!(message, why);
    assert_eq!(children.started().len(), 2);
    first.delete().await;
    let answer = eventually(async || {
        let answer = third.ask_to_initialize("2025-11-25", json!({})).await;
        answer.json().get("result").is_some().then_some(answer)
    });
    answer.await;
    assert!(!text_of(&second, "pid").await.is_empty());
}

#[tokio::test]
async fn a_child_that_was_deleted_counts_until_it_is_gone() {
    let children = Children::new(Script { setup: "trap '' TERM", tools: "", after: "while :; do sleep 1; done" });
    let gate = children.gate("[[upstream]]\nmax_children = 1").await;
    let client = Client::connect(&gate.url).await;
    let child = children.only().await;
    client.delete().await;
    let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
    assert!(answer.refusal().2.contains("max_children = 1"), "{answer:?}");
    child.gone().await;
}

#[tokio::test]
async fn after_children_that_end_at_once_the_next_start_backs_off_longer_each_time() {
    let gate = Gate::with_command("sh", &["-c", "exit 5"], "").await;
    let client = Client::new(&gate.url);
    let since = Instant::now();
    for waits in [0, 100, 300, 700].map(Duration::from_millis) {
        let (_, _, message) = client.ask_to_initialize("2025-11-25", json!({})).await.refusal();
        assert!(message.contains("exit status: 5"), "{message}");
        assert!(since.elapsed() >= waits, "{:?} of {waits:?}", since.elapsed());
    }
}

/// Returns what taskgate logs while one client after the other starts a session and ends it by `end`.
async fn log_of_sessions_that_end_by(end: impl AsyncFn(&Client)) -> String {
    let children = Children::new(Script::default());
    let args: Vec<&str> = ["serve", "--listen", "127.0.0.1:0", "--"].into_iter().chain(children.command()).collect();
    let taskgate = Binary::start(&args, &[]);
    let url = taskgate.url().await;
    // On a busy machine the next one may come only after the first waits, which are short.
    for _ in 0..5 {
        end(&Client::connect(&url).await).await;
    }
    taskgate.signal(rustix::process::Signal::TERM);
    taskgate.end().await.stderr
}

#[tokio::test]
async fn a_child_that_dies_young_delays_the_next_start_and_the_log_says_so() {
    let log =
        log_of_sessions_that_end_by(async |client| drop(client.error("tools/call", json!({ "name": "die" })).await));
    let log = log.await;
    for part in ["delay=100ms", "delay=200ms", "the disk is on fire", "a child process waits for its start"] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

#[tokio::test]
async fn a_child_that_ends_with_its_session_delays_no_start() {
    let log = log_of_sessions_that_end_by(async |client| drop(client.delete().await)).await;
    assert!(log.contains("child process ended") && !log.contains("wait"), "{log}");
}

#[tokio::test]
async fn a_child_that_pings_before_it_answers_initialize_gets_its_answer() {
    let tools = r#"*'"method":"initialize"'*)
        echo '{"jsonrpc":"2.0","id":"early","method":"ping"}'
        while IFS= read -r line; do note "$line"; case $line in *'"early"'*) break ;; esac; done
        reply "$id" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "pid").await, children.only().await.pid);
}
