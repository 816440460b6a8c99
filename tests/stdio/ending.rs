//! How children end with their session: by themselves if they can, by force otherwise.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::kit::{Children, Client, Script, eventually, soon};

/// Neither the end of stdin nor SIGTERM ends it.
const STUBBORN: Script = Script { setup: "trap '' TERM", tools: "", after: "while :; do sleep 1; done" };
/// Only SIGTERM ends it.
const WAITS_FOR_TERM: Script = Script {
    setup: "trap 'note SIGTERM; exit 0' TERM",
    tools: "",
    after: "note 'end of stdin'; while :; do sleep 1; done",
};
/// Leaves a process behind that keeps its stdin, stdout and stderr.
const PARENT: Script = Script { setup: "sleep 60 &", tools: "", after: "" };

#[tokio::test]
async fn delete_closes_stdin_and_lets_the_child_end_by_itself() {
    let script = Script { setup: "trap 'note SIGTERM' TERM", tools: "", after: "note 'end of stdin'" };
    let children = Children::new(script);
    let (_gate, client, child) = children.session().await;
    assert!(child.is_alive());
    assert_eq!(client.delete().await.status, 200);
    child.line("end of stdin").await;
    assert!(!child.lines().contains(&"SIGTERM".to_owned()));
    child.gone().await;
}

#[tokio::test]
async fn a_child_that_goes_on_after_delete_gets_sigterm() {
    let children = Children::new(WAITS_FOR_TERM);
    let (_gate, client, child) = children.session().await;
    let since = Instant::now();
    client.delete().await;
    child.line("end of stdin").await;
    child.line("SIGTERM").await;
    // It had a while to end by itself.
    assert!(since.elapsed() > Duration::from_secs(1), "{:?}", since.elapsed());
    child.gone().await;
}

#[tokio::test]
async fn a_child_that_ignores_sigterm_is_killed_after_delete() {
    let children = Children::new(STUBBORN);
    let (_gate, client, child) = children.session().await;
    client.delete().await;
    child.gone().await;
}

#[tokio::test]
async fn processes_that_the_child_started_end_with_it_at_delete() {
    let children = Children::new(PARENT);
    let (_gate, client, child) = children.session().await;
    client.delete().await;
    child.gone().await;
}

#[tokio::test]
async fn processes_that_left_the_childs_group_end_with_it_too() {
    // In a session of its own, with a parent that has ended, and ignoring SIGTERM.
    let setup = "setsid sh -c 'trap \"\" TERM; sleep 60 & sleep 60' & (setsid sleep 60 >/dev/null 2>&1 </dev/null &)";
    let children = Children::new(Script { setup, ..Script::default() });
    let (_gate, client, child) = children.session().await;
    client.delete().await;
    child.gone().await;
}

#[tokio::test]
async fn processes_that_left_the_group_of_a_killed_child_end_too() {
    let script = Script { setup: "setsid sleep 60 &", tools: r#"*'"name":"fall"'*) kill -9 $$ ;;"#, after: "" };
    let children = Children::new(script);
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    client.error("tools/call", json!({ "name": "fall" })).await;
    children.only().await.gone().await;
}

#[tokio::test]
async fn delete_ends_the_calls_and_tasks_of_the_session() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let id = client.create_id("hold").await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    let child = children.only().await;
    child.line(r#""hold""#).await;
    client.delete().await;
    assert_eq!(waiting.message().await["error"]["code"], -32602);
    child.gone().await;
    assert_eq!(client.answer("ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn an_idle_session_ends_with_its_child() {
    let children = Children::new(Script::default());
    let gate = children.gate("[server]\nsession_idle = \"200ms\"").await;
    let client = Client::connect(&gate.url).await;
    children.only().await.gone().await;
    assert_eq!(client.answer("ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn a_child_whose_client_left_before_it_was_initialized_ends() {
    // It never answers, and does not look at its stdin.
    let children = Children::new(Script { setup: "sleep 60 & exec sleep 60", ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::new(&gate.url);
    let asking = tokio::spawn(async move { client.ask_to_initialize("2025-11-25", json!({})).await });
    let child = children.only().await;
    asking.abort();
    child.gone().await;
}

#[tokio::test]
async fn a_child_that_closes_its_stdout_is_ended_with_its_session() {
    let tools = r#"*'"name":"hush"'*) exec >/dev/null; while :; do sleep 1; done ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let (_gate, client, child) = children.session().await;
    let (code, message) = client.error("tools/call", json!({ "name": "hush" })).await;
    assert!(code == -32603 && message.contains("it had closed its stdout: signal: 15"), "{message}");
    child.gone().await;
    let status = eventually(async || Some(client.answer("ping", json!({})).await.status));
    assert_eq!(soon(status).await, 404);
}
