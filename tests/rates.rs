//! How often one owner may do what, and what becomes of a client that guesses ids.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use kit::{Answer, Client, Gate, Upstream, eventually};
use serde_json::json;
use uuid::Uuid;

const HEADER: &str = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";

async fn start(rate: &str) -> (Upstream, Gate) {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &format!("{HEADER}[rate]\n{rate}")).await;
    (upstream, gate)
}

async fn user(gate: &Gate, name: &str) -> Client {
    Client::new(&gate.url).with("x-user", name).initialize("2025-11-25", json!({})).await
}

async fn lookup(client: &Client, method: &str, id: &str) -> Answer {
    client.answer(method, json!({ "taskId": id })).await
}

/// Checks for 429 that names the key of `[rate]` and the seconds to wait.
#[track_caller]
fn is_too_often(answer: &Answer, key: &str) {
    let (status, code, message) = answer.refusal();
    assert_eq!((status, code), (429, -32603), "{message}");
    assert!(message.contains(&format!("rate.{key}")), "{message}");
    let seconds: u64 = answer.header("retry-after").parse().unwrap();
    assert!(seconds >= 1 && message.contains(&format!("{seconds}s")), "{message}");
}

#[tokio::test]
async fn creations_over_the_rate_are_refused_with_429_and_the_time_to_wait() {
    let (upstream, gate) = start("creations = \"3/h\"").await;
    let (ann, bob) = (user(&gate, "ann").await, user(&gate, "bob").await);
    for _ in 0..3 {
        ann.create_id("slow").await;
    }
    let call = json!({ "name": "slow", "task": {} });
    is_too_often(&ann.answer("tools/call", call.clone()).await, "creations");
    // The refused call has not reached the server, and neither plain calls nor those of another owner are counted.
    ann.ask("tools/call", json!({ "name": "echo" })).await;
    bob.create_id("slow").await;
    upstream.held("slow").await;
    assert_eq!(ann.list().await.len(), 3);
}

#[tokio::test]
async fn task_methods_over_the_rate_are_refused_and_a_new_session_does_not_help() {
    let (_upstream, gate) = start("task_methods = \"4/h\"").await;
    let ann = user(&gate, "ann").await;
    let id = ann.create_id("slow").await;
    ann.get(&id).await;
    ann.list().await;
    ann.ask("tasks/cancel", json!({ "taskId": id })).await;
    lookup(&ann, "tasks/result", &id).await;
    for client in [ann, user(&gate, "ann").await] {
        for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list"] {
            is_too_often(&lookup(&client, method, &id).await, "task_methods");
        }
    }
    user(&gate, "bob").await.list().await;
}

#[tokio::test]
async fn a_refused_request_succeeds_after_the_time_to_wait() {
    let (_upstream, gate) = start("creations = \"1/s\"").await;
    let ann = user(&gate, "ann").await;
    ann.create_id("slow").await;
    let call = json!({ "name": "slow", "task": {} });
    // On a busy machine the second may be over.
    let refused = eventually(async || {
        let answer = ann.answer("tools/call", call.clone()).await;
        answer.json()["error"].is_object().then_some(answer)
    });
    let refused = refused.await;
    is_too_often(&refused, "creations");
    // The wait is what is tested.
    tokio::time::sleep(Duration::from_secs(refused.header("retry-after").parse().unwrap())).await;
    ann.ask("tools/call", call).await;
}

#[tokio::test]
async fn anonymous_sessions_have_rates_of_their_own() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, "[rate]\ncreations = \"1/h\"").await;
    let (one, other) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    one.create_id("slow").await;
    is_too_often(&one.answer("tools/call", json!({ "name": "slow", "task": {} })).await, "creations");
    other.create_id("slow").await;
}

#[tokio::test]
async fn a_client_on_stdin_gets_the_same_error() {
    let upstream = Upstream::json().await;
    let folder = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("config.toml");
    let toml = format!("[rate]\ntask_methods = \"1/h\"\n[[upstream]]\nurl = {:?}", upstream.url());
    std::fs::write(&config, toml).unwrap();
    let mut client = kit::Wrapped::connect(&["--config", config.to_str().unwrap()]).await;
    client.request("tasks/list", json!({})).await;
    let error = client.request("tasks/list", json!({})).await["error"].take();
    assert!(error["message"].as_str().unwrap().contains("rate.task_methods = 1 in 1h"), "{error}");
}

/// 50,000 guesses, half of them ids of another owner's tasks: the guesser gets 429 and others are as fast as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_guesses_ids_is_slowed_then_refused_and_no_other_client_notices() {
    const GUESSES: usize = 50_000;
    let (_upstream, gate) = start("").await;
    let (ann, eve) = (user(&gate, "ann").await, user(&gate, "eve").await);
    let own = eve.create_id("slow").await;
    let id = ann.create_id("slow").await;
    let guessing = stream::iter(0..GUESSES).map(|n| {
        let (eve, guess) = (eve.clone(), if n % 2 == 0 { id.clone() } else { Uuid::new_v4().to_string() });
        async move {
            let answer = lookup(&eve, ["tasks/get", "tasks/result", "tasks/cancel"][n % 3], &guess).await;
            if answer.status == 429 {
                is_too_often(&answer, "failed_lookups");
                return false;
            }
            assert_eq!(answer.refusal().1, -32602);
            true
        }
    });
    let began = Instant::now();
    let guessed = guessing.buffer_unordered(64).filter(|answered| std::future::ready(*answered)).count();
    let polling = async {
        let mut polls = 0;
        loop {
            assert_eq!(kit::status_of(&ann.get(&id).await), "working");
            polls += 1;
            tokio::task::yield_now().await;
            if polls % 100 == 0 {
                // The guesser can still use its own tasks.
                eve.get(&own).await;
            }
        }
    };
    let answered = tokio::select! {
        answered = guessed => answered,
        () = polling => unreachable!(),
    };
    // The burst, what has been refilled since, and the eight that were held back in each second.
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    assert!(answered <= 60 + seconds * 10, "{answered} guesses were answered in {seconds}s");
    assert!(answered >= 60, "{answered} guesses were answered");
}

/// Returns the median, and the distance between the quartiles, of times in microseconds.
fn middle(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times[times.len() * part / 4];
    (at(2), at(3) - at(1))
}

/// Not a test of speed: the time of an answer must not tell which kind of id was asked for.
#[tokio::test]
async fn foreign_expired_and_unknown_ids_take_the_same_time_within_noise() {
    let (_upstream, gate) = start("failed_lookups = \"1000000/s\"").await;
    let (ann, eve) = (user(&gate, "ann").await, user(&gate, "eve").await);
    let foreign = ann.create_id("slow").await;
    let mut times = [Vec::new(), Vec::new()];
    for n in 0..10_000 {
        let guess = if n % 2 == 0 { foreign.clone() } else { Uuid::new_v4().to_string() };
        let began = Instant::now();
        let answer = lookup(&eve, "tasks/get", &guess).await;
        times[n % 2].push(began.elapsed().as_secs_f64() * 1e6);
        assert_eq!(answer.refusal().1, -32602);
    }
    let [(foreign, foreign_noise), (unknown, unknown_noise)] = times.map(middle);
    eprintln!("foreign {foreign:.1} µs ± {foreign_noise:.1}, unknown {unknown:.1} µs ± {unknown_noise:.1}");
    let noise = foreign_noise.max(unknown_noise);
    assert!((foreign - unknown).abs() < noise, "foreign {foreign} µs, unknown {unknown} µs, noise {noise} µs");
}
