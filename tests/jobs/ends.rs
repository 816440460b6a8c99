//! Every end of a job, in words that a model can act on.

use serde_json::{Value, json};

use crate::{
    host::{House, Job, SOON, call, text, wait},
    kit::{eventually, soon},
};

/// Runs a job to its end, and returns what its host is told.
async fn told(toml: &str, end: impl AsyncFnOnce(crate::kit::Sse)) -> (Value, Job) {
    let house = House::open(&format!("{SOON}\n{toml}")).await;
    let (slow, job) = house.job().await;
    end(slow).await;
    (wait(&house.host, &job, 50.0).await, job)
}

#[tokio::test]
async fn an_error_result_stays_as_it_is() {
    let error = json!({ "content": [{ "type": "text", "text": "the disk is full" }], "isError": true, "y": 1.0 });
    let raw = error.to_string();
    let (result, _) = told("", async |slow| slow.result(&raw).await).await;
    assert_eq!(result, error);
}

#[tokio::test]
async fn an_error_is_told_in_the_words_of_the_server() {
    let (result, job) = told("", async |slow| {
        let id = slow.seen.id();
        slow.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"no such luck"}}}}"#))
            .await;
    })
    .await;
    assert_eq!(result["isError"], true);
    let words = text(&result);
    let says = format!("Job {} (\"slow\") has failed, and has no result: no such luck. If the reason is gone", job.id);
    assert!(words.starts_with(&says) && words.ends_with("call slow anew."), "{words}");
}

#[tokio::test]
async fn a_timeout_is_named_with_its_setting() {
    let house = House::open(&format!("{SOON}\ntasks.timeout = \"300ms\"")).await;
    let (slow, job) = house.job().await;
    let result = wait(&house.host, &job, 50.0).await;
    slow.abandoned().await;
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("timeout = 300ms is over and the call was cancelled"), "{result}");
}

#[tokio::test]
async fn a_cancelled_job_has_no_result() {
    let house = House::open(SOON).await;
    let (_slow, job) = house.job().await;
    let waiting = tokio::spawn({
        let (host, job) = (house.host.clone(), job.clone());
        async move { wait(&host, &job, 50.0).await }
    });
    call(&house.host, "cancel_job", json!({ "job_id": job.id })).await;
    let result = soon(waiting).await.unwrap();
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("was cancelled, and has no result. Call slow anew only if"), "{result}");
}

#[tokio::test]
async fn expired_and_unknown_jobs_have_one_answer() {
    let house = House::open(&format!(
        "{SOON}\ntasks.ttl = \"100ms\"\ntasks.timeout = \"300ms\"\ntasks.poll_interval = \"10ms\""
    ))
    .await;
    let (slow, job) = house.job().await;
    slow.result(r#"{"content":[]}"#).await;
    let expired = eventually(async || {
        let result = wait(&house.host, &job, 0.0).await;
        (result["isError"] == true).then_some(result)
    })
    .await;
    let unknown = Job { id: "not-even-an-id".to_owned(), words: String::new() };
    let guessed = wait(&house.host, &unknown, 0.0).await;
    assert_eq!(text(&expired).replace(&job.id, ""), text(&guessed).replace("not-even-an-id", ""));
    assert!(text(&expired).contains("list_jobs tells the ids of your jobs"), "{expired}");
}

#[tokio::test]
async fn a_server_that_goes_is_told_and_the_host_learns_it() {
    let house = House::open(SOON).await;
    let (slow, job) = house.job().await;
    slow.cut().await;
    house.upstream.stop().await;
    let result = wait(&house.host, &job, 50.0).await;
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("has failed, and has no result: "), "{result}");
}

#[tokio::test]
async fn a_session_whose_server_has_forgotten_it_still_tells_of_its_jobs() {
    let house = House::open(SOON).await;
    let (slow, job) = house.job().await;
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&wait(&house.host, &job, 50.0).await), "done");
    house.upstream.forget_sessions();
    let lost = house.host.answer("tools/call", json!({ "name": "echo", "arguments": {} })).await;
    assert_eq!(lost.status, 404);
    assert_eq!(text(&wait(&house.host, &job, 50.0).await), "done");
}

#[tokio::test]
async fn a_result_that_is_too_large_is_told_so() {
    let (result, _) = told("tasks.max_result = 10", async |slow| {
        slow.result(r#"{"content":[{"type":"text","text":"more than ten bytes"}]}"#).await;
    })
    .await;
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("max_result = 10 bytes"), "{result}");
}
