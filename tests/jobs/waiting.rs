//! `wait_for_job`, `cancel_job` and `list_jobs`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    host::{House, Job, SOON, call, next, text, wait},
    kit::{Binary, Client, Gate, Upstream, soon},
    modern_client::Modern,
};

#[tokio::test]
async fn a_wait_is_answered_as_soon_as_the_job_has_ended() {
    let house = House::open(SOON).await;
    let (slow, job) = house.job().await;
    let waiting = tokio::spawn({
        let (host, job) = (house.host.clone(), job.clone());
        async move { wait(&host, &job, 50.0).await }
    });
    slow.progress(1).await;
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&soon(waiting).await.unwrap()), "done");
}

#[tokio::test]
async fn a_wait_whose_time_is_over_says_that_this_is_normal_and_can_be_made_again() {
    let house = House::open(SOON).await;
    let (slow, job) = house.job().await;
    for _ in 0..2 {
        let result = wait(&house.host, &job, 0.0).await;
        let words = text(&result);
        assert!(words.starts_with(&format!("Job {} (\"slow\") is still running after ", job.id)), "{words}");
        let next = format!("call wait_for_job with {{\"job_ids\":[\"{}\"]}} again. Do not call slow again", job.id);
        assert!(words.contains("which is normal") && words.contains(&next), "{words}");
        assert_eq!((result.get("isError"), result.get("structuredContent")), (None, None));
    }
    slow.result(r#"{"content":[]}"#).await;
}

#[tokio::test]
async fn a_wait_tells_progress_under_its_own_token() {
    let house = House::open(SOON).await;
    let (slow, job) = house.job().await;
    let mut params = job.waits(50.0);
    params["_meta"] = json!({ "progressToken": "mine" });
    let mut waiting = house.host.stream("tools/call", params);
    waiting.head().await;
    let mut told = 0.0;
    for step in 1..4 {
        slow.progress(step).await;
        let progress = loop {
            let progress = next(&mut waiting, "notifications/progress").await;
            if progress["params"]["message"].as_str().unwrap().contains(&step.to_string()) {
                break progress;
            }
        };
        assert_eq!(progress["params"]["progressToken"], "mine");
        assert!(progress["params"]["progress"].as_f64().unwrap() > told, "{progress}");
        told = progress["params"]["progress"].as_f64().unwrap();
    }
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(waiting.last().await["result"], json!({ "content": [] }));
}

#[tokio::test]
async fn a_wait_of_a_silent_job_has_heartbeats() {
    let house = House::open(&format!("{SOON}\ntasks.heartbeat = \"50ms\"")).await;
    let (slow, job) = house.job().await;
    let mut params = job.waits(50.0);
    params["_meta"] = json!({ "progressToken": 7 });
    let mut waiting = house.host.stream("tools/call", params);
    waiting.head().await;
    for _ in 0..3 {
        let beat = next(&mut waiting, "notifications/progress").await;
        assert!(beat["params"]["message"].as_str().unwrap().contains("\"slow\" has run for"), "{beat}");
    }
    slow.result(r#"{"content":[]}"#).await;
}

#[tokio::test]
async fn a_wait_without_a_progress_token_takes_no_processor_time_while_nothing_happens() {
    let upstream = Upstream::sse().await;
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, format!("{SOON}\ntasks.heartbeat = \"10ms\"")).unwrap();
    let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", &upstream.url(), "--config", path.to_str().unwrap()];
    let taskgate = Binary::start(&args, &[]);
    let host = Client::connect_as(&taskgate.url().await, "2025-06-18", json!({})).await;
    let calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let slow = upstream.held("slow").await.sse();
    let job = Job::in_words(&calling.last().await["result"]);
    let modern = Modern::plain(host.url());
    let same = Job::in_words(&modern.call("slow").await);
    let before = taskgate.processor_time();
    let (one, two) = tokio::join!(wait(&host, &job, 2.0), modern.result("tools/call", same.waits(2.0)));
    let taken = taskgate.processor_time().saturating_sub(before);
    assert!(text(&one).contains("still running") && text(&two).contains("still running"), "{one} {two}");
    assert!(taken < Duration::from_millis(150), "{taken:?} in waits of 2 s");
    slow.result(r#"{"content":[]}"#).await;
}

/// Returns all texts of a result.
fn texts(result: &Value) -> Vec<&str> {
    result["content"].as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn several_jobs_are_waited_for_at_once() {
    let house = House::open(SOON).await;
    let ((one, first), (two, second)) = (house.job().await, house.job().await);
    one.result(r#"{"content":[{"type":"text","text":"first"}],"isError":true}"#).await;
    wait(&house.host, &first, 50.0).await;
    let ids = json!({ "job_ids": [first.id, second.id, "unknown"], "seconds": 0 });
    let result = call(&house.host, "wait_for_job", ids.clone()).await;
    let told = texts(&result);
    assert_eq!(told[..2], [&*format!("Job {} has failed. What it gave follows.", first.id), "first"]);
    assert!(told[2].contains("is still running") && told[3].contains("There is no job \"unknown\""), "{told:?}");
    assert_eq!(result.get("isError"), None);
    two.result(r#"{"content":[],"structuredContent":{"n":1}}"#).await;
    let mut ids = ids;
    ids["seconds"] = json!(50);
    let result = call(&house.host, "wait_for_job", ids).await;
    let told = texts(&result);
    assert_eq!(told[2..4], [&*format!("Job {} is done. Its result follows.", second.id), "{\"n\":1}"]);
}

#[tokio::test]
async fn of_several_jobs_those_with_an_empty_result_are_told_so() {
    let house = House::open(SOON).await;
    let ((one, first), (two, second)) = (house.job().await, house.job().await);
    one.result(r#"{"content":[]}"#).await;
    two.result(r#"{"content":[],"isError":true}"#).await;
    let ids = json!({ "job_ids": [first.id, second.id], "seconds": 50 });
    let result = call(&house.host, "wait_for_job", ids).await;
    let said = |how: &str, job: &Job| format!("Job {} {how}, and its result is empty.", job.id);
    assert_eq!(texts(&result), [said("is done", &first), said("has failed", &second)]);
}

#[tokio::test]
async fn a_job_is_cancelled_also_in_the_server() {
    let house = House::open(SOON).await;
    let (slow, job) = house.job().await;
    let cancelled = call(&house.host, "cancel_job", json!({ "job_id": job.id })).await;
    assert!(text(&cancelled).starts_with(&format!("Job {} (\"slow\") is cancelled.", job.id)), "{cancelled}");
    house.upstream.wait_for_message("notifications/cancelled").await;
    slow.abandoned().await;
    let again = call(&house.host, "cancel_job", json!({ "job_id": job.id })).await;
    assert!(text(&again).contains("was cancelled, and has no result") && again.get("isError").is_none(), "{again}");
}

#[tokio::test]
async fn a_job_that_has_ended_is_not_cancelled() {
    let house = House::open(SOON).await;
    let (slow, job) = house.job().await;
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&wait(&house.host, &job, 50.0).await), "done");
    let words = text(&call(&house.host, "cancel_job", json!({ "job_id": job.id })).await);
    assert!(words.contains("had ended already") && words.contains("wait_for_job"), "{words}");
}

#[tokio::test]
async fn who_cancels_a_job_that_failed_without_a_result_is_promised_none() {
    let house = House::open(&format!("{SOON}\ntasks.timeout = \"300ms\"")).await;
    let (slow, job) = house.job().await;
    slow.abandoned().await;
    assert_eq!(wait(&house.host, &job, 50.0).await["isError"], true);
    let words = text(&call(&house.host, "cancel_job", json!({ "job_id": job.id })).await);
    assert!(words.contains("had failed already, and has no result. To read why, call wait_for_job with"), "{words}");
}

#[tokio::test]
async fn jobs_are_listed_with_what_has_become_of_them() {
    let house = House::open(SOON).await;
    assert!(text(&call(&house.host, "list_jobs", json!({})).await).starts_with("No job of yours runs"));
    let ((_running, first), (two, second)) = (house.job().await, house.job().await);
    two.result(r#"{"content":[]}"#).await;
    wait(&house.host, &second, 50.0).await;
    let words = text(&call(&house.host, "list_jobs", json!({})).await);
    assert!(words.contains(&format!("- {}: \"slow\" has run for", first.id)), "{words}");
    assert!(words.contains(&format!("- {}: \"slow\" is done; its result can be read", second.id)), "{words}");
    assert!(words.ends_with("To get a result, call wait_for_job with {\"job_ids\":[\"<id>\"]}."), "{words}");
}

#[tokio::test]
async fn a_long_list_of_jobs_is_cut_and_says_so() {
    let house = House::open(&format!("{SOON}\ntasks.max_running = 100")).await;
    for _ in 0..22 {
        let (slow, job) = house.job().await;
        slow.result(r#"{"content":[]}"#).await;
        wait(&house.host, &job, 50.0).await;
    }
    let words = text(&call(&house.host, "list_jobs", json!({})).await);
    assert_eq!(words.matches("is done").count(), 20, "{words}");
    assert!(words.contains("\nand 2 more."), "{words}");
}

#[tokio::test]
async fn the_last_jobs_are_listed_of_however_many() {
    let upstream = Upstream::sse().await;
    let limits = "tasks.max_tasks_per_owner = 2000\nrate.creations = \"10000/s\"";
    let auth = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]";
    let gate = Gate::with(&upstream, &format!("{SOON}\n{limits}\n{auth}")).await;
    let connect = async |version| Client::new(&gate.url).with("x-user", "ann").initialize(version, json!({})).await;
    let (able, host) = (connect("2025-11-25").await, connect("2025-06-18").await);
    for _ in 0..30 {
        futures_util::future::join_all((0..40).map(|_| able.create("echo", json!({})))).await;
    }
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
        jobs.push((upstream.held("slow").await.sse(), Job::in_words(&calling.last().await["result"])));
    }
    let words = text(&call(&host, "list_jobs", json!({})).await);
    let at = |job: &Job| words.find(&job.id).unwrap_or_else(|| panic!("{} is not in {words}", job.id));
    assert!(at(&jobs[0].1) < at(&jobs[1].1), "the newest is the last");
    assert_eq!(words.matches("is done").count(), 20, "{words}");
    assert!(words.contains("\nand at least 978 more."), "{words}");
}

#[tokio::test]
async fn jobs_of_a_principal_are_found_from_any_of_its_sessions_and_by_no_other() {
    let upstream = Upstream::sse().await;
    let toml = format!("{SOON}\n[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]");
    let gate = Gate::with(&upstream, &toml).await;
    let connect = async |user: &str| {
        let client = Client::new(&gate.url).with("x-user", user);
        client.initialize("2025-06-18", json!({})).await
    };
    let (ann, bob) = (connect("ann").await, connect("bob").await);
    let calling = ann.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let slow = upstream.held("slow").await.sse();
    let job = Job::in_words(&calling.last().await["result"]);
    let (foreign, unknown) = (wait(&bob, &job, 50.0).await, "9b2e8a34-6f6f-4f9e-9d53-0a7f3b1c2d4e");
    let other = Job { id: unknown.to_owned(), words: String::new() };
    let guessed = wait(&bob, &other, 50.0).await;
    assert_eq!(text(&foreign).replace(&job.id, ""), text(&guessed).replace(unknown, ""));
    assert_eq!(foreign["isError"], true);
    assert!(text(&call(&bob, "list_jobs", json!({})).await).starts_with("No job"));
    let refused = call(&bob, "cancel_job", json!({ "job_id": job.id })).await;
    assert_eq!(refused["isError"], true);
    slow.result(r#"{"content":[{"type":"text","text":"hers"}]}"#).await;
    let again = connect("ann").await;
    assert_eq!(text(&wait(&again, &job, 50.0).await), "hers");
}

#[tokio::test]
async fn arguments_that_are_not_clear_are_refused_in_words() {
    let house = House::open(SOON).await;
    for (tool, arguments) in [
        ("wait_for_job", json!({})),
        ("wait_for_job", json!({ "job_ids": [] })),
        ("wait_for_job", json!([])),
        ("wait_for_job", json!({ "job_ids": ["x"], "seconds": -1 })),
        ("cancel_job", json!({ "job_id": 7 })),
        ("wait_for_job", json!({ "job_ids": ["x"], "seconds": "soon" })),
        ("cancel_job", json!({})),
    ] {
        let result = call(&house.host, tool, arguments.clone()).await;
        assert_eq!(result["isError"], true, "{arguments}: {result}");
        assert!(text(&result).starts_with("Nothing was"), "{result}");
    }
}

#[tokio::test]
async fn guesses_of_ids_are_slowed_and_then_refused_as_those_of_tasks_are() {
    let house = House::open(&format!("{SOON}\nrate.failed_lookups = \"1/m\"\nrate.task_methods = \"3/m\"")).await;
    let unknown = Job { id: "9b2e8a34-6f6f-4f9e-9d53-0a7f3b1c2d4e".to_owned(), words: String::new() };
    let first = wait(&house.host, &unknown, 0.0).await;
    assert!(text(&first).contains("There is no job"), "{first}");
    for _ in 0..2 {
        wait(&house.host, &unknown, 0.0).await;
    }
    let refused = wait(&house.host, &unknown, 0.0).await;
    assert!(text(&refused).contains("task_methods") && refused["isError"] == true, "{refused}");
}

#[tokio::test]
async fn many_ids_that_are_unknown_hold_an_answer_back_once() {
    let house = House::open(&format!("{SOON}\nrate.failed_lookups = \"1/h\"")).await;
    let ids: Vec<String> = (0..16).map(|n| format!("9b2e8a34-6f6f-4f9e-9d53-0a7f3b1c2d{n:02}")).collect();
    let begun = Instant::now();
    let told = call(&house.host, "wait_for_job", json!({ "job_ids": ids, "seconds": 0 })).await;
    let took = begun.elapsed();
    assert!(Duration::from_secs(1) <= took && took < Duration::from_secs(5), "{took:?}");
    let parts = told["content"].as_array().unwrap();
    assert_eq!((parts.len(), &told["isError"]), (16, &json!(true)));
    assert!(parts.iter().all(|part| part["text"].as_str().unwrap().contains("There is no job")), "{told}");
}

#[tokio::test]
async fn a_progress_token_that_no_notification_may_have_is_refused_in_words() {
    let house = House::open(SOON).await;
    let (slow, job) = house.job().await;
    for token in [json!({ "a": 1 }), json!("t".repeat(5000))] {
        let mut params = job.waits(50.0);
        params["_meta"] = json!({ "progressToken": token });
        let told = house.host.response("tools/call", params).await["result"].take();
        assert!(told["isError"] == true && text(&told).contains("the progress token"), "{told}");
    }
    slow.result(r#"{"content":[]}"#).await;
}
