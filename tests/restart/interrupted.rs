//! Calls that ran when the process was killed and whose answers cannot be resumed fail, and say what is not known.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::{
    House,
    kit::{Client, Upstream, eventually, status_of},
};

#[tokio::test]
async fn a_call_that_ran_fails_and_says_that_its_effect_is_unknown_and_that_it_was_not_sent_again() {
    for upstream in [Upstream::json().await, Upstream::sse().await] {
        let mut house = House::before(&upstream.url(), "").await;
        let client = Client::connect(&house.url).await;
        let id = client.create_id("slow").await;
        // Its answer is a stream without event ids where it is one at all.
        let held = upstream.held("slow").await;
        house.restart().await;
        let task = client.until(&id, "failed").await;
        let error = client.collect(&id).await["error"].clone();
        for told in [task["statusMessage"].as_str().unwrap(), error["message"].as_str().unwrap()] {
            for part in ["process of taskgate ended while the call ran", "may or may not", "not sent again"] {
                assert!(told.contains(part), "{part} in {told}");
            }
        }
        assert_eq!((upstream.count("slow"), error["code"].clone()), (1, json!(-32603)));
        drop(held);
        // It has ended for good.
        house.restart().await;
        assert_eq!(client.get(&id).await, task);
    }
}

#[tokio::test]
async fn the_time_that_a_task_took_counts_from_its_creation_though_the_process_was_away() {
    let upstream = Upstream::json().await;
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    let config = format!("[audit]\nto = \"file\"\nfile = {audit:?}\n");
    let mut house = House::before(&upstream.url(), &config).await;
    let client = Client::connect(&house.url).await;
    let id = client.create_id("slow").await;
    let _held = upstream.held("slow").await;
    house.end(Signal::KILL).await;
    // What is waited for is the clock itself.
    tokio::time::sleep(Duration::from_millis(200)).await;
    house.start_again().await;
    client.until(&id, "failed").await;
    let lines = || std::fs::read_to_string(&audit).unwrap();
    let ended = |line: &serde_json::Value| line["event"] == "task_ended";
    let find = || lines().lines().map(|line| serde_json::from_str(line).unwrap()).find(ended);
    let ended = eventually(async || find()).await;
    assert!(ended["duration"].as_f64().unwrap() >= 0.2, "{ended}");
}

#[tokio::test]
async fn a_deadline_that_passed_while_the_process_was_away_applies() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "[tasks]\npoll_interval = \"100ms\"\nttl = \"1s\"\n").await;
    let client = Client::connect(&house.url).await;
    // It is kept for ten poll intervals.
    let id = client.create("echo", json!({ "ttl": 1 })).await["taskId"].as_str().unwrap().to_owned();
    client.until(&id, "completed").await;
    house.end(Signal::KILL).await;
    // What is waited for is the clock itself.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    house.start_again().await;
    assert_eq!(client.error("tasks/get", json!({ "taskId": id })).await.0, -32602);
}

#[tokio::test]
async fn tasks_of_an_upstream_that_is_not_configured_any_more_fail_and_say_so() {
    let upstream = Upstream::json().await;
    let auth = "[tasks]\nmax_running = 1\n[auth]\nmode = \"header\"\nheader = \"x-user\"\n\
                trusted_peers = [\"127.0.0.1\"]\n";
    let with = |path: &str| format!("{auth}[[upstream]]\npath = \"{path}\"\nurl = \"{}\"\n", upstream.url());
    let mut house = House::configured(&with("/mcp"), &[]).await;
    let client = Client::new(&house.url).with("x-user", "ann").initialize("2025-11-25", json!({})).await;
    let (running, waits) = (client.create_id("slow").await, client.create_id("slow").await);
    let held = upstream.held("slow").await;
    for path in ["/other", "/mcp"] {
        house.configure(&with(path));
        house.restart().await;
    }
    drop(held);
    let [running, waits] = [client.get(&running).await, client.get(&waits).await];
    assert!(running["statusMessage"].as_str().unwrap().contains("may or may not"), "{running}");
    let why = waits["statusMessage"].as_str().unwrap();
    assert!(why.contains("was not sent") && why.contains("not configured any more"), "{why}");
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_mistake_in_a_path_is_taken_back_by_the_next_start() {
    let upstream = Upstream::json().await;
    let with = |path: &str, idle: &str| {
        let url = upstream.url();
        format!("[server]\nsession_idle = \"{idle}\"\n[[upstream]]\npath = \"{path}\"\nurl = \"{url}\"\n")
    };
    let mut house = House::configured(&with("/mcp", "1h"), &[]).await;
    let (client, idle) = (Client::connect(&house.url).await, Client::connect(&house.url).await);
    let (ended, running) = (client.create_id("echo").await, client.create_id("slow").await);
    let task = client.until(&ended, "completed").await;
    let _held = upstream.held("slow").await;
    house.configure(&with("/mpc", "1h"));
    house.restart().await;
    for starts_again in [true, false] {
        let told = house.end(Signal::KILL).await.stderr;
        let line = told.lines().find(|line| line.contains("is not configured any more; they are kept")).unwrap();
        let counts = if starts_again { ["sessions=2", "tasks=2"] } else { ["sessions=1", "tasks=2"] };
        assert!(line.contains("/mcp") && counts.iter().all(|count| line.contains(count)), "{line}");
        if starts_again {
            // What is waited for is the clock itself: a session without tasks is over then, as anywhere.
            tokio::time::sleep(Duration::from_secs(1)).await;
            house.configure(&with("/mpc", "1s"));
            house.start_again().await;
        }
    }
    house.configure(&with("/mcp", "1s"));
    house.start_again().await;
    assert_eq!(client.get(&ended).await, task);
    assert_eq!(status_of(&client.get(&running).await), "failed");
    client.ask("tools/list", json!({})).await;
    assert_eq!(idle.answer("tools/list", json!({})).await.status, 404);
}
