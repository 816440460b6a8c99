//! When taskgate itself stops, no process is left behind.

use rustix::process::Signal;
use serde_json::json;

use crate::kit::{Binary, Children, Client, Process, Script, eventually};

async fn serving(children: &Children) -> (Binary, Client) {
    let args: Vec<&str> = ["serve", "--listen", "127.0.0.1:0", "--"].into_iter().chain(children.command()).collect();
    let taskgate = Binary::start(&args, &[]);
    let client = Client::connect(&taskgate.url().await).await;
    (taskgate, client)
}

#[tokio::test]
async fn sigterm_ends_every_child_and_then_taskgate() {
    let children = Children::new(Script::default());
    let (taskgate, client) = serving(&children).await;
    let _second = Client::connect(&taskgate.url().await).await;
    let calling = tokio::spawn(async move { client.error("tools/call", json!({ "name": "hold" })).await });
    let started = children.started();
    assert_eq!(started.len(), 2);
    let has = |child: &Process| child.lines().iter().any(|line| line.contains("\"hold\""));
    eventually(async || started.iter().any(has).then_some(())).await;
    taskgate.signal(Signal::TERM);
    assert_eq!(taskgate.end().await.code, Some(0));
    // They have ended before taskgate has.
    assert!(started.iter().all(|child| !child.is_alive()));
    calling.await.unwrap();
}

#[tokio::test]
async fn sigterm_kills_a_child_that_ignores_it() {
    let children = Children::new(Script { setup: "trap '' TERM", tools: "", after: "while :; do sleep 1; done" });
    let (taskgate, _client) = serving(&children).await;
    let child = children.only().await;
    taskgate.signal(Signal::TERM);
    assert_eq!(taskgate.end().await.code, Some(0));
    assert!(!child.is_alive());
}

#[tokio::test]
async fn sigterm_ends_the_processes_that_children_started() {
    let children = Children::new(Script { setup: "sleep 60 & sleep 60 &", ..Script::default() });
    let (taskgate, _client) = serving(&children).await;
    let child = children.only().await;
    taskgate.signal(Signal::TERM);
    assert_eq!(taskgate.end().await.code, Some(0));
    assert!(!child.is_alive());
}

#[tokio::test]
async fn a_child_that_was_deleted_just_before_sigterm_is_not_forgotten() {
    let children = Children::new(Script { setup: "trap '' TERM", tools: "", after: "while :; do sleep 1; done" });
    let (taskgate, client) = serving(&children).await;
    let child = children.only().await;
    client.delete().await;
    taskgate.signal(Signal::TERM);
    assert_eq!(taskgate.end().await.code, Some(0));
    assert!(!child.is_alive());
}

#[tokio::test]
async fn a_second_signal_kills_every_child_at_once() {
    let setup = "trap '' TERM; sleep 60 & setsid sleep 60 &";
    let children = Children::new(Script { setup, tools: "", after: "while :; do sleep 1; done" });
    let (taskgate, _client) = serving(&children).await;
    let child = children.only().await;
    let since = std::time::Instant::now();
    taskgate.signal(Signal::TERM);
    taskgate.logged_after("stopping").await;
    taskgate.signal(Signal::TERM);
    assert_eq!(taskgate.end().await.code, Some(1));
    assert!(since.elapsed() < std::time::Duration::from_secs(4), "{:?}", since.elapsed());
    child.gone().await;
}

#[tokio::test]
async fn a_child_ends_by_itself_when_taskgate_is_killed() {
    let children = Children::new(Script::default());
    let (taskgate, _client) = serving(&children).await;
    let child = children.only().await;
    taskgate.signal(Signal::KILL);
    assert_eq!(taskgate.end().await.code, None);
    child.gone().await;
}

#[tokio::test]
async fn a_child_that_is_still_starting_ends_with_taskgate_and_so_do_its_processes() {
    let children = Children::new(Script { setup: "sleep 60 & exec sleep 60", ..Script::default() });
    let args: Vec<&str> = ["serve", "--listen", "127.0.0.1:0", "--"].into_iter().chain(children.command()).collect();
    let taskgate = Binary::start(&args, &[]);
    let client = Client::new(&taskgate.url().await);
    let asking = tokio::spawn(async move { client.ask_to_initialize("2025-11-25", json!({})).await });
    let child = children.only().await;
    taskgate.signal(Signal::TERM);
    assert_eq!(taskgate.end().await.code, Some(0));
    assert!(!child.is_alive());
    asking.abort();
}
