//! Jobs of hosts without tasks go on, and their hosts wait for them in the same session.

use serde_json::{Value, json};

use crate::{
    House,
    kit::{Client, Upstream, soon, text_in},
    resumed::{answer, event, text},
    written,
};

const SOON: &str = "tasks.job_after = \"80ms\"\n";

/// Returns the id of the job that an answer names in words.
#[track_caller]
fn job_in(result: &Value) -> String {
    let words = text_in(result);
    let (_, call) = words.split_once("{\"job_ids\":[\"").unwrap_or_else(|| panic!("{words}"));
    call.split('"').next().unwrap().to_owned()
}

async fn wait(host: &Client, job: &str, seconds: u32) -> Value {
    let arguments = json!({ "job_ids": [job], "seconds": seconds });
    host.response("tools/call", json!({ "name": "wait_for_job", "arguments": arguments })).await["result"].take()
}

/// Waits until the words about a job have `part` in them.
async fn until(host: &Client, job: &str, part: &str) {
    while !text_in(&wait(host, job, 1).await).contains(part) {}
}

#[tokio::test]
async fn a_job_whose_answer_can_be_resumed_runs_once_and_its_host_waits_for_it_as_before() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), SOON).await;
    let host = Client::connect_as(&house.url, "2025-11-25", json!({})).await;
    let calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let stream = upstream.held("slow").await.sse();
    event(&stream, "e1", "").await;
    let job = job_in(&calling.last().await["result"]);
    let call = stream.seen.id();
    for step in [1, 2] {
        let params = json!({ "progressToken": call.parse::<u64>().unwrap(), "progress": step,
            "message": format!("step {step}") });
        let document = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
        event(&stream, "e2", &document.to_string()).await;
        until(&host, &job, &format!("step {step}")).await;
    }
    written(&host).await;
    house.restart().await;
    let resumed = upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "e2");
    let waiting = tokio::spawn({
        let (host, job) = (host.clone(), job.clone());
        async move { wait(&host, &job, 50).await }
    });
    answer(resumed, &call, &text("done")).await;
    assert_eq!(soon(waiting).await.unwrap(), text("done"));
    house.restart().await;
    assert_eq!(wait(&host, &job, 1).await, text("done"), "it can be read again");
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_job_that_ended_with_the_process_says_in_words_what_is_known() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), SOON).await;
    let host = Client::connect_as(&house.url, "2025-11-25", json!({})).await;
    let calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let held = upstream.held("slow").await;
    let job = job_in(&calling.last().await["result"]);
    house.restart().await;
    drop(held);
    let ended = wait(&host, &job, 50).await;
    assert_eq!(ended["isError"], true, "{ended}");
    assert!(text_in(&ended).contains("may or may not have had its effect"), "{ended}");
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_session_stays_one_of_a_client_with_tasks_or_without() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), SOON).await;
    let host = Client::connect_as(&house.url, "2025-11-25", json!({})).await;
    let other = Client::connect_as(&house.url, "2025-11-25", json!({ "tasks": { "list": {} } })).await;
    house.restart().await;
    for (client, has_jobs) in [(host, true), (other, false)] {
        let list = client.ask("tools/list", json!({})).await;
        let tools = list["tools"].as_array().unwrap();
        assert_eq!(tools.iter().any(|tool| tool["name"] == "wait_for_job"), has_jobs, "{list}");
    }
}
