//! The audit log: a line for everything that a client does with a task, and nothing private in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use std::path::PathBuf;

use kit::{Client, Gate, Upstream, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

/// taskgate with an audit log in a file, for users that a header names.
struct Audited {
    upstream: Upstream,
    gate: Gate,
    file: PathBuf,
    _folder: TempDir,
}

impl Audited {
    async fn start(more: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("audit.jsonl");
        let upstream = Upstream::json().await;
        let toml = format!(
            "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n\
             [audit]\nto = \"file\"\nfile = {:?}\n{more}",
            file.display().to_string()
        );
        let gate = Gate::with(&upstream, &toml).await;
        Self { upstream, gate, file, _folder: folder }
    }

    async fn user(&self, name: &str) -> Client {
        Client::new(&self.gate.url).with("x-user", name).initialize("2025-11-25", json!({})).await
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the first line with all these members, once it is there.
    async fn line(&self, members: Value) -> Value {
        let members = members.as_object().unwrap().clone();
        let fits = |line: &Value| members.iter().all(|(name, value)| line[name] == *value);
        eventually(async || self.lines().into_iter().find(fits)).await
    }

    fn count(&self, event: &str) -> usize {
        self.lines().iter().filter(|line| line["event"] == event).count()
    }
}

#[tokio::test]
async fn a_task_leaves_a_line_for_its_creation_its_end_and_each_retrieval() {
    let audited = Audited::start("").await;
    let ann = audited.user("ann").await;
    let id = ann.create_id("echo").await;
    ann.until(&id, "completed").await;
    let result = ann.collect(&id).await;
    let created = audited.line(json!({ "event": "task_created", "task": id })).await;
    let ended = audited.line(json!({ "event": "task_ended", "task": id })).await;
    let retrieved = audited.line(json!({ "event": "result_retrieved", "task": id })).await;
    for line in [&created, &ended, &retrieved] {
        assert_eq!(line["tool"], "echo", "{line}");
        assert_eq!(line["owner"], created["owner"], "{line}");
        assert_eq!(line["session"], created["session"], "{line}");
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    }
    assert_eq!((&created["outcome"], &ended["outcome"]), (&json!("running"), &json!("completed")));
    assert_eq!(retrieved["outcome"], "completed");
    assert!(ended["duration"].as_f64().unwrap() > 0.0, "{ended}");
    // The result as it is kept, without what taskgate adds for the client.
    let mut kept = result["result"].clone();
    kept.as_object_mut().unwrap().remove("_meta");
    assert_eq!(ended["bytes"], kept.to_string().len());
    assert_eq!(retrieved["bytes"], ended["bytes"]);
}

#[tokio::test]
async fn the_line_of_a_retrieval_names_the_session_that_retrieved() {
    let audited = Audited::start("[tasks]\nmax_running = 1").await;
    let (here, there) = (audited.user("ann").await, audited.user("ann").await);
    let id = here.create_id("slow").await;
    let created = audited.line(json!({ "event": "task_created", "task": id })).await;
    let waiting = there.stream("tasks/result", json!({ "taskId": id }));
    audited.upstream.held("slow").await.result(r#"{"content":[]}"#);
    waiting.last().await;
    let retrieved = audited.line(json!({ "event": "result_retrieved", "task": id })).await;
    assert_eq!(retrieved["owner"], created["owner"]);
    assert_ne!(retrieved["session"], created["session"]);
}

#[tokio::test]
async fn a_cancellation_names_its_client_and_the_task_ends_as_cancelled() {
    let audited = Audited::start("").await;
    let ann = audited.user("ann").await;
    let id = ann.create_id("slow").await;
    ann.cancel(&id).await;
    audited.line(json!({ "event": "task_cancelled", "task": id, "tool": "slow" })).await;
    audited.line(json!({ "event": "task_ended", "task": id, "outcome": "cancelled" })).await;
}

#[tokio::test]
async fn refusals_name_the_limit() {
    let audited = Audited::start("[tasks]\nmax_tasks_per_owner = 1\n[rate]\ncreations = \"2/h\"").await;
    let ann = audited.user("ann").await;
    ann.create_id("slow").await;
    let call = json!({ "name": "slow", "task": {} });
    assert!(ann.error("tools/call", call.clone()).await.1.contains("max_tasks_per_owner"));
    let refused = ann.answer("tools/call", call).await;
    assert_eq!(refused.status, 429);
    let owner = &audited.line(json!({ "event": "task_created" })).await["owner"];
    audited.line(json!({ "event": "task_refused", "outcome": "max_tasks_per_owner", "owner": owner })).await;
    audited.line(json!({ "event": "request_refused", "outcome": "creations", "owner": owner })).await;
}

#[tokio::test]
async fn failed_lookups_are_logged_and_repeated_ones_say_so() {
    let audited = Audited::start("[rate]\nfailed_lookups = \"1/h\"").await;
    let (ann, bob) = (audited.user("ann").await, audited.user("bob").await);
    let id = ann.create_id("slow").await;
    bob.error("tasks/get", json!({ "taskId": id })).await;
    bob.error("tasks/cancel", json!({ "taskId": id })).await;
    let failed = audited.line(json!({ "event": "lookup_failed", "task": id, "outcome": "not_found" })).await;
    let created = audited.line(json!({ "event": "task_created", "task": id })).await;
    assert_ne!(failed["owner"], created["owner"]);
    audited.line(json!({ "event": "repeated_failed_lookups", "outcome": "slowed", "owner": failed["owner"] })).await;
}

#[tokio::test]
async fn excessive_polling_is_logged_once_in_ten_poll_intervals() {
    let audited = Audited::start("[tasks]\npoll_interval = \"1h\"").await;
    let ann = audited.user("ann").await;
    let id = ann.create_id("slow").await;
    for _ in 0..99 {
        ann.get(&id).await;
    }
    ann.error("tasks/get", json!({ "taskId": "none" })).await;
    audited.line(json!({ "event": "lookup_failed" })).await;
    assert_eq!(audited.count("excessive_polling"), 0);
    for _ in 0..200 {
        ann.get(&id).await;
    }
    audited.line(json!({ "event": "excessive_polling", "task": id, "tool": "slow" })).await;
    ann.cancel(&id).await;
    audited.line(json!({ "event": "task_ended" })).await;
    assert_eq!(audited.count("excessive_polling"), 1);
}

#[tokio::test]
async fn forged_answers_cancellations_and_event_ids_do_nothing_and_are_logged() {
    let audited = Audited::start("").await;
    let (ann, bob) = (audited.user("ann").await, audited.user("bob").await);
    let id = ann.create_id("slow").await;
    let owner = {
        bob.error("tasks/get", json!({ "taskId": id })).await;
        audited.line(json!({ "event": "lookup_failed" })).await["owner"].clone()
    };
    let question = format!("taskgate:{}", uuid::Uuid::new_v4());
    assert_eq!(bob.respond(&json!(question), json!({ "action": "accept" })).await, 202);
    audited.line(json!({ "event": "answer_ignored", "owner": owner })).await;
    assert_eq!(bob.notify("notifications/cancelled", json!({ "requestId": 4711 })).await, 202);
    audited.line(json!({ "event": "cancellation_ignored", "owner": owner })).await;
    let foreign = bob.with("last-event-id", "00000000-1-1").send(http::Method::GET, "").await;
    assert_eq!(foreign.status, 400);
    audited.line(json!({ "event": "request_refused", "outcome": "last_event_id", "owner": owner })).await;
    assert_eq!(kit::status_of(&ann.get(&id).await), "working");
}

#[tokio::test]
async fn a_principal_is_written_as_a_hash_unless_the_file_asks_for_names() {
    let (hashed, named) = (Audited::start("").await, Audited::start("owner = \"principal\"").await);
    for (audited, owner) in [(hashed, "49915e0d7d4b402e"), (named, "ann")] {
        audited.user("ann").await.create_id("echo").await;
        let created = audited.line(json!({ "event": "task_created" })).await;
        assert_eq!(created["owner"], owner, "{created}");
    }
}

#[tokio::test]
async fn no_line_has_arguments_results_or_session_ids() {
    let audited = Audited::start("").await;
    let ann = audited.user("ann").await;
    let call = json!({ "name": "echo", "arguments": { "password": "open sesame" }, "task": {} });
    let task = ann.ask("tools/call", call).await["task"].take();
    let id = task["taskId"].as_str().unwrap();
    ann.until(id, "completed").await;
    let result = ann.collect(id).await;
    ann.error("tasks/get", json!({ "taskId": "guess" })).await;
    audited.line(json!({ "event": "lookup_failed" })).await;
    let text = std::fs::read_to_string(&audited.file).unwrap();
    let said = result["result"]["content"][0]["text"].as_str().unwrap();
    for secret in ["open sesame", "password", ann.session(), said, "guess"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[tokio::test]
async fn the_log_continues_in_a_new_file_when_the_old_one_is_moved_away() {
    let audited = Audited::start("").await;
    let ann = audited.user("ann").await;
    let first = ann.create_id("slow").await;
    audited.line(json!({ "event": "task_created", "task": first })).await;
    let moved = audited.file.with_extension("1");
    std::fs::rename(&audited.file, &moved).unwrap();
    let second = ann.create_id("slow").await;
    let found = eventually(async || std::fs::read_to_string(&audited.file).ok().filter(|text| !text.is_empty())).await;
    assert!(found.contains(&second) && !found.contains(&first), "{found}");
}

#[tokio::test]
async fn events_during_shutdown_are_in_the_log() {
    let audited = Audited::start("").await;
    let ann = audited.user("ann").await;
    let id = ann.create_id("slow").await;
    ann.cancel(&id).await;
    let Audited { gate, file, _folder, .. } = audited;
    gate.stop().await;
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("task_created") && text.contains("task_cancelled"), "{text}");
}
