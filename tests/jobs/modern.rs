//! Clients of revision 2026-07-28 that do not declare the tasks extension.

use serde_json::{Value, json};

use crate::{
    host::{Job, SOON, text},
    kit::{Gate, Held, Sse, Upstream, soon},
    modern_client::{Modern, TASKS},
};

async fn house(toml: &str) -> (Upstream, Gate) {
    house_of(&format!("{SOON}\n{toml}")).await
}

async fn house_of(toml: &str) -> (Upstream, Gate) {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, toml).await;
    (upstream, gate)
}

async fn job(upstream: &Upstream, host: &Modern) -> (Sse, Job) {
    let calling = tokio::spawn({
        let host = host.clone();
        async move { host.call("slow").await }
    });
    let slow = upstream.held("slow").await.sse();
    let result = soon(calling).await.unwrap();
    assert_eq!(result["resultType"], "complete");
    (slow, Job::in_words(&result))
}

async fn wait(host: &Modern, job: &Job, seconds: f64) -> Value {
    host.result("tools/call", job.waits(seconds)).await
}

async fn asks(slow: &Sse, id: &str) {
    let params = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params });
    slow.event(&request.to_string()).await;
}

#[tokio::test]
async fn a_call_that_takes_long_becomes_a_job_whose_id_alone_finds_it() {
    let (upstream, gate) = house("").await;
    let host = Modern::plain(&gate.url);
    let (slow, job) = job(&upstream, &host).await;
    let still = wait(&host, &job, 0.0).await;
    assert!(text(&still).contains("which is normal"), "{still}");
    slow.result(r#"{"content":[{"type":"text","text":"done"}],"structuredContent":{"n":1}}"#).await;
    let result = wait(&Modern::plain(&gate.url), &job, 50.0).await;
    assert_eq!((text(&result).as_str(), &result["structuredContent"]), ("done", &json!({ "n": 1 })));
    let listed = host.result("tools/call", json!({ "name": "list_jobs", "arguments": {} })).await;
    assert!(text(&listed).contains("does not know who asks") && listed["isError"] == true, "{listed}");
    assert!(text(&listed).ends_with("call wait_for_job with {\"job_ids\":[\"<id>\"]}."), "{listed}");
    let unknown = Job { id: "unknown".to_owned(), words: String::new() };
    let told = wait(&host, &unknown, 50.0).await;
    assert!(told["isError"] == true && !text(&told).contains("list_jobs"), "no list would tell the id: {told}");
}

#[tokio::test]
async fn where_each_call_has_a_session_of_its_own_one_of_them_lists_the_tools_and_job_tools_need_none() {
    let (upstream, gate) = house("[[upstream]]\nsessions = \"request\"").await;
    let host = Modern::plain(&gate.url);
    let (slow, first) = job(&upstream, &host).await;
    let (_slow, second) = job(&upstream, &host).await;
    assert_eq!(upstream.count("tools/list"), 1);
    let sessions = upstream.count("initialize");
    let still = wait(&host, &second, 0.0).await;
    assert!(text(&still).contains("which is normal"), "{still}");
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&wait(&host, &first, 50.0).await), "done");
    let cancelled =
        host.result("tools/call", json!({ "name": "cancel_job", "arguments": { "job_id": second.id } })).await;
    assert!(cancelled["isError"].is_null(), "{cancelled}");
    assert_eq!(upstream.count("initialize"), sessions, "a job tool has opened a session");
}

#[tokio::test]
async fn lists_and_instructions_differ_by_what_a_request_declares() {
    let (_upstream, gate) = house("").await;
    let (host, able) = (Modern::plain(&gate.url), Modern::with_tasks(&gate.url));
    let names = async |client: &Modern| {
        let listed = client.result("tools/list", json!({})).await;
        listed["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&host).await, ["echo", "wait_for_job", "cancel_job", "list_jobs"]);
    assert_eq!(names(&able).await, ["echo"]);
    let discovered = host.result("server/discover", json!({})).await;
    assert!(discovered["instructions"].as_str().unwrap().contains("id of a job"), "{discovered}");
    assert_eq!(able.result("server/discover", json!({})).await.get("instructions"), None);
}

#[tokio::test]
async fn a_request_that_declares_the_extension_gets_a_task() {
    let (upstream, gate) = house("tasks.task_after = \"50ms\"").await;
    let client = Modern::with_tasks(&gate.url);
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let slow = upstream.held("slow").await;
    let created = soon(calling).await.unwrap();
    assert_eq!(created["resultType"], "task");
    slow.result(r#"{"content":[]}"#);
    client.until(created["taskId"].as_str().unwrap(), "completed").await;
}

#[tokio::test]
async fn a_question_of_a_job_is_the_answer_of_a_call_that_waits_and_its_retry_waits_on() {
    let (upstream, gate) = house("").await;
    let host = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let (slow, job) = job(&upstream, &host).await;
    asks(&slow, "q").await;
    let asked = wait(&host, &job, 50.0).await;
    assert_eq!((&asked["resultType"], asked.get("requestState")), (&json!("input_required"), None));
    let (key, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(request["params"]["message"], "Who?");
    let again = wait(&host, &job, 0.0).await;
    assert_eq!(again["inputRequests"], asked["inputRequests"], "however short the wait");
    let mut retry = job.waits(50.0);
    retry["inputResponses"] = json!({ key: { "action": "accept", "content": {} } });
    let waiting = tokio::spawn({
        let host = host.clone();
        async move { host.result("tools/call", retry).await }
    });
    let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q").await;
    assert_eq!(answer.json()["result"]["action"], "accept");
    slow.result(r#"{"content":[{"type":"text","text":"you"}]}"#).await;
    assert_eq!(text(&soon(waiting).await.unwrap()), "you");
}

#[tokio::test]
async fn a_request_that_cannot_be_asked_is_told_in_words_what_its_job_waits_for() {
    let (upstream, gate) = house("").await;
    let able = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let (slow, job) = job(&upstream, &able).await;
    asks(&slow, "q").await;
    wait(&able, &job, 50.0).await;
    let words = text(&wait(&Modern::plain(&gate.url), &job, 0.0).await);
    assert!(
        words.contains("waits for an answer: \"Who?\", which this client cannot be asked; tell the user"),
        "{words}"
    );
    slow.result(r#"{"content":[]}"#).await;
}

#[tokio::test]
async fn a_question_before_the_job_is_asked_as_ever_and_its_retry_may_become_a_job() {
    let (upstream, gate) = house_of("tasks.job_after = \"2s\"").await;
    let host = Modern::able(&gate.url, json!({ "elicitation": {} }));
    host.call("echo").await;
    let calling = tokio::spawn({
        let host = host.clone();
        async move { host.call("slow").await }
    });
    let slow = upstream.held("slow").await.sse();
    asks(&slow, "q").await;
    let asked = soon(calling).await.unwrap();
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let retry = json!({
        "name": "slow", "arguments": {}, "requestState": asked["requestState"],
        "inputResponses": { key: { "action": "accept", "content": {} } },
    });
    let job = Job::in_words(&host.result("tools/call", retry).await);
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&wait(&host, &job, 50.0).await), "done");
}

#[tokio::test]
async fn a_silent_call_with_a_progress_token_has_heartbeats_and_a_wait_too() {
    let (upstream, gate) = house_of("tasks.heartbeat = \"40ms\"\ntasks.job_after = \"3s\"").await;
    let host = Modern::plain(&gate.url);
    let mut calling = host.stream("tools/call", json!({ "name": "slow", "_meta": { "progressToken": "t" } }));
    let slow = upstream.held("slow").await.sse();
    let mut last = 0.0;
    for _ in 0..3 {
        let beat = calling.message().await;
        assert_eq!(
            (&beat["method"], &beat["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("t"))
        );
        assert!(beat["params"]["progress"].as_f64().unwrap() > last, "{beat}");
        last = beat["params"]["progress"].as_f64().unwrap();
    }
    let job = Job::in_words(&calling.last().await["result"]);
    let mut params = job.waits(50.0);
    params["_meta"] = json!({ "progressToken": 8 });
    let mut waiting = host.stream("tools/call", params);
    assert_eq!(waiting.message().await["params"]["progressToken"], 8);
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(waiting.last().await["result"]["content"], json!([]));
}

#[tokio::test]
async fn a_host_that_leaves_a_wait_leaves_the_job_running() {
    let (upstream, gate) = house("").await;
    let host = Modern::plain(&gate.url);
    let (slow, job) = job(&upstream, &host).await;
    let mut waiting = host.stream("tools/call", job.waits(50.0));
    drop(tokio::time::timeout(std::time::Duration::from_millis(100), waiting.head()).await);
    drop(waiting);
    let cancelled = host.result("tools/call", json!({ "name": "cancel_job", "arguments": { "job_id": job.id } })).await;
    assert!(text(&cancelled).contains("is cancelled"), "{cancelled}");
    slow.abandoned().await;
}

#[tokio::test]
async fn a_client_of_either_generation_knows_the_extension_by_its_declaration_alone() {
    let (_upstream, gate) = house("").await;
    let odd = Modern::able(&gate.url, json!({ "extensions": { "other/tasks": {} } }));
    assert_eq!(odd.result("tools/list", json!({})).await["tools"].as_array().unwrap().len(), 4);
    let able = Modern::able(&gate.url, json!({ "extensions": { TASKS: {} } }));
    assert_eq!(able.result("tools/list", json!({})).await["tools"].as_array().unwrap().len(), 1);
}

/// Has a call of a modern server become a job.
async fn modern_job(upstream: &Upstream, host: &Modern) -> (Held, Job) {
    let calling = tokio::spawn({
        let host = host.clone();
        async move { host.call("slow").await }
    });
    let slow = upstream.held("slow").await;
    (slow, Job::in_words(&soon(calling).await.unwrap()))
}

#[tokio::test]
async fn a_server_of_the_same_revision_has_jobs_in_front_of_it_too() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, SOON).await;
    let host = Modern::plain(&gate.url);
    let discovered = host.result("server/discover", json!({})).await;
    assert!(discovered["instructions"].as_str().unwrap().contains("id of a job"), "{discovered}");
    let (slow, job) = modern_job(&upstream, &host).await;
    slow.result(r#"{"resultType":"complete","content":[{"type":"text","text":"done"}]}"#);
    assert_eq!(text(&wait(&host, &job, 50.0).await), "done");
    let listed = host.result("tools/list", json!({})).await;
    assert!(listed["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "wait_for_job"), "{listed}");
    assert_eq!((&listed["cacheScope"], &discovered["cacheScope"]), (&json!("private"), &json!("private")));
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn no_shared_cache_gives_a_host_what_a_client_with_tasks_was_told() {
    for (native, scope) in [("auto", "private"), ("keep", "public")] {
        let upstream = Upstream::modern(json!({ "tools": {}, "extensions": { TASKS: {} } })).await;
        let gate = Gate::with(&upstream, &format!("{SOON}\ntasks.native = {native:?}")).await;
        let able = Modern::with_tasks(&gate.url);
        for method in ["server/discover", "tools/list"] {
            assert_eq!(able.result(method, json!({})).await["cacheScope"], scope, "{native}: {method}");
        }
    }
}

#[tokio::test]
async fn invented_answers_cost_no_more_where_a_call_waits_for_many_jobs() {
    let (_upstream, gate) = house("").await;
    let host = Modern::plain(&gate.url);
    let answers: serde_json::Map<_, _> =
        (0..60_000).map(|n| (uuid::Uuid::from_u128(n).to_string(), json!({}))).collect();
    let took = async |jobs: u128| {
        let ids: Vec<_> = (0..jobs).map(|n| uuid::Uuid::from_u128(n).to_string()).collect();
        let params = json!({ "name": "wait_for_job", "arguments": { "job_ids": ids }, "inputResponses": answers });
        let since = std::time::Instant::now();
        assert_eq!(host.result("tools/call", params).await["isError"], true);
        since.elapsed()
    };
    let (mut one, mut many) = (took(1).await, took(16).await);
    for _ in 0..3 {
        (one, many) = (took(1).await.min(one), took(16).await.min(many));
    }
    // Looked at for each job they would take about sixteen times as long.
    assert!(many < 4 * one, "{one:?} for one job, {many:?} for many");
}

#[tokio::test]
async fn a_server_of_the_same_revision_with_tasks_of_its_own_has_jobs_for_hosts_that_know_none_unless_it_is_left_alone()
{
    for (native, ours) in [("auto", 3), ("replace", 3), ("keep", 0)] {
        let upstream = Upstream::modern(json!({ "tools": {}, "extensions": { TASKS: {} } })).await;
        let gate = Gate::with(&upstream, &format!("{SOON}\ntasks.native = {native:?}")).await;
        let host = Modern::plain(&gate.url);
        let listed = host.result("tools/list", json!({})).await;
        assert_eq!(listed["tools"].as_array().unwrap().len(), 1 + ours, "{native}: {listed}");
        if ours > 0 {
            let (slow, job) = modern_job(&upstream, &host).await;
            slow.result(r#"{"resultType":"complete","content":[{"type":"text","text":"done"}]}"#);
            assert_eq!(text(&wait(&host, &job, 50.0).await), "done", "{native}");
            let able = Modern::with_tasks(&gate.url).result("tools/list", json!({})).await;
            assert_eq!(able["tools"].as_array().unwrap().len(), 1, "{native}: {able}");
        }
    }
}

#[tokio::test]
async fn what_a_server_of_the_same_revision_asks_in_a_job_is_asked_by_a_call_that_waits_and_answered_by_its_retry() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, SOON).await;
    let host = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let (slow, job) = modern_job(&upstream, &host).await;
    let params = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    let question = json!({ "method": "elicitation/create", "params": params });
    let asks = json!({ "resultType": "input_required", "requestState": "s", "inputRequests": { "name": question } });
    slow.result(&asks.to_string());
    let asked = wait(&host, &job, 50.0).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (key, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut retry = job.waits(50.0);
    retry["inputResponses"] = json!({ key: { "action": "accept", "content": {} } });
    let waiting = tokio::spawn({
        let host = host.clone();
        async move { host.result("tools/call", retry).await }
    });
    let retried = upstream.held("slow").await;
    let sent = retried.seen.json()["params"].clone();
    assert_eq!((&sent["requestState"], &sent["inputResponses"]["name"]["action"]), (&json!("s"), &json!("accept")));
    retried.result(r#"{"resultType":"complete","content":[{"type":"text","text":"you"}]}"#);
    assert_eq!(text(&soon(waiting).await.unwrap()), "you");
}

#[tokio::test]
async fn what_a_server_with_sessions_means_by_a_result_type_does_not_reach_the_host_of_a_job() {
    let (upstream, gate) = house("").await;
    let host = Modern::plain(&gate.url);
    let (slow, job) = job(&upstream, &host).await;
    slow.result(r#"{"resultType":"mine","content":[{"type":"text","text":"done"}]}"#).await;
    let result = wait(&host, &job, 50.0).await;
    assert_eq!(result["resultType"], "complete", "{result}");
}
