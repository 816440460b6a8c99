//! Two owners at one tool: a flood by one of them does not hold up the other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use kit::{Client, Gate, Held, Upstream, within};
use serde_json::{Value, json};

const HEADER: &str = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";
/// How many calls the one owner makes.
const FLOOD: usize = 10_000;
/// How many of them are in flight at a time.
const AT_A_TIME: usize = 32;
/// How many calls of the tool run at once.
const RUNNING: usize = 2;
/// How long the whole flood may take.
const PATIENCE: Duration = Duration::from_mins(1);

struct House {
    upstream: Upstream,
    _gate: Gate,
    /// The owner that floods.
    ann: Client,
    /// The owner that calls once.
    bob: Client,
    /// The calls of the flood that run.
    running: Vec<Held>,
    /// The tasks of the flood that were acknowledged.
    acknowledged: Vec<String>,
    /// The errors of the calls that were refused.
    refused: Vec<String>,
}

/// Starts a taskgate with limits of its own, and floods its tool.
async fn flooded(limits: &str) -> House {
    let upstream = Upstream::json().await;
    let toml = format!("{HEADER}[tasks]\nmax_running = {RUNNING}\n{limits}");
    let gate = Gate::with(&upstream, &toml).await;
    let user = async |name| Client::new(&gate.url).with("x-user", name).initialize("2025-11-25", json!({})).await;
    let (ann, bob) = (user("ann").await, user("bob").await);
    let call = json!({ "name": "slow", "task": {} });
    let calls = stream::iter(0..FLOOD).map(|_| ann.request("tools/call", call.clone()));
    let answers: Vec<Value> = within(PATIENCE, calls.buffer_unordered(AT_A_TIME).collect()).await;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let acknowledged = answers.iter().filter_map(|answer| text(&answer["result"]["task"]["taskId"])).collect();
    let refused = answers.iter().filter_map(|answer| text(&answer["error"]["message"])).collect();
    let running = vec![upstream.held("slow").await, upstream.held("slow").await];
    House { upstream, _gate: gate, ann, bob, running, acknowledged, refused }
}

impl House {
    /// Lets the other owner call the tool once, and ends calls until it runs; returns how many calls of the flood begin
    /// before it.
    async fn turn_of_the_other(&mut self) -> usize {
        let called = Instant::now();
        let task = self.bob.create("slow", json!({})).await;
        let waits = called.elapsed();
        assert!(task["statusMessage"].as_str().unwrap().starts_with("Queued"), "{task}");
        let mut before = 0;
        loop {
            self.running.remove(0).result(r#"{"content":[]}"#);
            let begun = self.upstream.held("slow").await;
            if begun.seen.header("x-user") == "bob" {
                let runs = called.elapsed();
                eprintln!("acknowledged after {waits:?}, began after {runs:?} and behind {before} calls of the flood");
                begun.result(r#"{"content":[]}"#);
                self.bob.until(task["taskId"].as_str().unwrap(), "completed").await;
                self.running.push(self.upstream.held("slow").await);
                return before;
            }
            before += 1;
            self.running.push(begun);
        }
    }
}

#[tokio::test]
async fn a_call_waits_for_at_most_one_of_another_owners_ten_thousand_calls() {
    let limits = format!("max_queued = {FLOOD}\nmax_queued_per_owner = {FLOOD}\nmax_tasks_per_owner = {FLOOD}");
    let mut house = flooded(&limits).await;
    assert_eq!((house.acknowledged.len(), house.refused.len()), (FLOOD, 0));
    assert!(house.turn_of_the_other().await <= 1);
    // And again, after every waiting owner has had a turn.
    assert!(house.turn_of_the_other().await <= 1);
    assert_eq!(house.bob.list().await.len(), 2);
}

#[tokio::test]
async fn in_a_flood_refused_calls_learn_why_and_acknowledged_tasks_are_found() {
    let mut house = flooded("").await;
    let places = RUNNING + 256;
    assert_eq!((house.acknowledged.len(), house.refused.len()), (places, FLOOD - places));
    for message in &house.refused {
        assert!(message.contains("max_running = 2 ") && message.contains("max_queued = 256 of yours"), "{message}");
    }
    let before = house.turn_of_the_other().await;
    assert!(before <= 1);
    let mut found = house.ann.list().await;
    found.sort_unstable();
    house.acknowledged.sort_unstable();
    assert_eq!(found, house.acknowledged);
    // Each of them runs once, and to its end.
    for running in house.running.drain(..) {
        running.result(r#"{"content":[]}"#);
    }
    for _ in RUNNING + before + 1..places {
        house.upstream.held("slow").await.result(r#"{"content":[]}"#);
    }
    assert_eq!(house.upstream.count("slow"), places + 1);
    for id in &house.acknowledged {
        house.ann.until(id, "completed").await;
    }
}
