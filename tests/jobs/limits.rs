//! What a host sees of limits, and several calls that wait for one job.

use serde_json::json;

use crate::{
    host::{House, SOON, call, text, wait},
    kit::{Client, eventually},
};

#[tokio::test]
async fn a_call_that_a_limit_keeps_from_becoming_a_job_goes_on_plainly() {
    for (limit, reason) in [
        ("tasks.max_tasks_per_owner = 1", Some("max_tasks_per_owner")),
        ("tasks.max_tasks = 1", Some("max_tasks")),
        ("rate.creations = \"1/h\"", None),
    ] {
        let house = House::open(&format!("server.admin = \"127.0.0.1:0\"\n{SOON}\n{limit}")).await;
        let (first, _) = house.job().await;
        let calling = house.host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
        let second = house.upstream.held("slow").await.sse();
        if let Some(reason) = reason {
            let line = format!("taskgate_tasks_refused_total{{reason=\"{reason}\"}} 1\n");
            let metrics = Client::new(&format!("{}/metrics", house.gate.admin.as_ref().unwrap()));
            eventually(async || metrics.send(http::Method::GET, "").await.text().contains(&line).then_some(())).await;
        } else {
            // No event tells of this one. A later call of another owner becomes a job.
            let other = Client::connect_as(&house.gate.url, "2025-06-18", json!({})).await;
            house.job_of(&other, "slow").await;
        }
        second.result(r#"{"content":[{"type":"text","text":"plain"}]}"#).await;
        assert_eq!(text(&calling.last().await["result"]), "plain", "{limit}");
        first.result(r#"{"content":[]}"#).await;
    }
}

#[tokio::test]
async fn several_calls_wait_for_one_job_and_those_that_stay_are_told() {
    let house = House::open(SOON).await;
    let (slow, job) = house.job().await;
    let waits = || async {
        let mut params = job.waits(50.0);
        params["_meta"] = json!({ "progressToken": "t" });
        let mut waiting = house.host.stream("tools/call", params);
        waiting.head().await;
        waiting
    };
    let (leaves, first, second) = (waits().await, waits().await, waits().await);
    drop(leaves);
    slow.progress(1).await;
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    for waiting in [first, second] {
        assert_eq!(text(&waiting.last().await["result"]), "done");
    }
}

#[tokio::test]
async fn ids_of_no_job_take_no_room_of_those_that_wait() {
    let house = House::open(&format!("{SOON}\ntasks.max_waiters = 1")).await;
    let (slow, job) = house.job().await;
    let unknown = uuid::Uuid::new_v4().to_string();
    let arguments = json!({ "job_ids": [job.id, "typo", unknown], "seconds": 50 });
    let mut params = json!({ "name": "wait_for_job", "arguments": arguments });
    params["_meta"] = json!({ "progressToken": "t" });
    let mut waiting = house.host.stream("tools/call", params);
    waiting.head().await;
    for none in ["another typo", &unknown] {
        let told = text(&call(&house.host, "wait_for_job", json!({ "job_ids": [none], "seconds": 0 })).await);
        assert!(told.contains("no job") && !told.contains("limit"), "{told}");
    }
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert!(text(&waiting.last().await["result"]).contains("is done"));
}

#[tokio::test]
async fn jobs_that_have_ended_take_no_room_of_those_that_wait() {
    let house = House::open(&format!("{SOON}\ntasks.max_waiters_per_owner = 1")).await;
    let ((one, first), (two, second)) = (house.job().await, house.job().await);
    for (slow, job) in [(one, &first), (two, &second)] {
        slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
        assert_eq!(text(&wait(&house.host, job, 50.0).await), "done");
    }
    let (third, runs) = house.job().await;
    let mut params = runs.waits(50.0);
    params["_meta"] = json!({ "progressToken": "t" });
    let mut waiting = house.host.stream("tools/call", params);
    waiting.head().await;
    let told = call(&house.host, "wait_for_job", json!({ "job_ids": [first.id, second.id] })).await;
    assert_eq!(told["content"].as_array().map(Vec::len), Some(4), "{told}");
    third.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&waiting.last().await["result"]), "done");
}

#[tokio::test]
async fn a_wait_for_which_there_is_no_room_is_told_so_in_words_and_can_be_made_again() {
    let house = House::open(&format!("{SOON}\ntasks.max_waiters = 1")).await;
    let (slow, job) = house.job().await;
    let mut params = job.waits(50.0);
    params["_meta"] = json!({ "progressToken": "t" });
    let mut waiting = house.host.stream("tools/call", params);
    waiting.head().await;
    let arguments = json!({ "job_ids": [job.id], "seconds": 0 });
    let refused = call(&house.host, "wait_for_job", arguments.clone()).await;
    assert!(text(&refused).starts_with("limit reached: tasks.max_waiters = 1"), "{refused}");
    assert!(refused["isError"] == true && text(&refused).ends_with("call again later"), "{refused}");
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&waiting.last().await["result"]), "done");
    eventually(async || {
        let again = call(&house.host, "wait_for_job", arguments.clone()).await;
        (text(&again) == "done").then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_id_that_is_given_twice_is_told_of_once() {
    let house = House::open(SOON).await;
    let ((one, first), (two, second)) = (house.job().await, house.job().await);
    let arguments = json!({ "job_ids": [first.id, second.id, first.id], "seconds": 0 });
    let told = call(&house.host, "wait_for_job", arguments).await;
    assert_eq!(told["content"].as_array().unwrap().len(), 2, "{told}");
    one.result(r#"{"content":[]}"#).await;
    two.result(r#"{"content":[]}"#).await;
}
