//! Calls that become tasks, and the methods of the extension.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    client::{Modern, TASKS},
    kit::{Client, Gate, Upstream, eventually, soon},
};

async fn house(toml: &str) -> (Upstream, Gate, Modern) {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, toml).await;
    let client = Modern::with_tasks(&gate.url);
    (upstream, gate, client)
}

const SOON: &str = "[tasks]\ntask_after = \"50ms\"\n";
const AT_ONCE: &str = "[tasks]\ntask_after = \"0s\"\n";

#[tokio::test]
async fn a_call_that_is_answered_in_time_is_answered_plainly() {
    let (_upstream, _gate, client) = house("").await;
    let result = client.call("echo").await;
    assert_eq!(result["resultType"], "complete");
    assert!(result["taskId"].is_null(), "{result}");
}

#[tokio::test]
async fn a_call_that_takes_longer_is_answered_with_a_flat_task_that_tasks_get_finds_and_that_ends_with_the_result() {
    let (upstream, _gate, client) = house(SOON).await;
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let slow = upstream.held("slow").await.sse();
    let task = soon(calling).await.unwrap();
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")));
    for member in ["task", "result", "error", "inputRequests", "ttl", "pollInterval", "requestState"] {
        assert!(task.get(member).is_none(), "{member} in {task}");
    }
    assert!(task["ttlMs"].is_u64() && task["pollIntervalMs"].is_u64() && task["createdAt"].is_string(), "{task}");
    let id = task["taskId"].as_str().unwrap();
    slow.progress(1).await;
    assert_eq!(client.get(id).await["status"], "working");
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    let ended = client.until(id, "completed").await;
    assert_eq!(ended["resultType"], "complete");
    assert_eq!(ended["result"]["content"][0]["text"], "done");
    assert!(ended["result"]["_meta"].is_null(), "{ended}");
    assert_eq!(upstream.count("slow"), 1, "it ran once");
}

#[tokio::test]
async fn a_task_says_how_long_calls_of_its_tool_usually_take_and_when_to_poll() {
    let (upstream, _gate, client) = house(AT_ONCE).await;
    for _ in 0..4 {
        let task = client.call("slow").await;
        upstream.held("slow").await.result(r#"{"content":[]}"#);
        client.until(task["taskId"].as_str().unwrap(), "completed").await;
    }
    let created = client.call("slow").await;
    let task = client.get(created["taskId"].as_str().unwrap()).await;
    for task in [created, task] {
        assert!(task["statusMessage"].as_str().unwrap().starts_with("Usually done "), "{task}");
        assert!((500..=30_000).contains(&task["pollIntervalMs"].as_u64().unwrap()), "{task}");
    }
}

#[tokio::test]
async fn task_after_zero_makes_a_task_at_once_and_an_error_of_the_server_fails_it() {
    let (upstream, _gate, client) = house(AT_ONCE).await;
    // The others' codes are no more ones of the revision, or the server does not mean them so.
    for (theirs, told) in [(-32000, -32000), (-32042, -32603), (-32021, -32603)] {
        let task = client.call("slow").await;
        let id = task["taskId"].as_str().unwrap();
        upstream.held("slow").await.error(&format!(r#"{{"code":{theirs},"message":"broken"}}"#));
        let ended = client.until(id, "failed").await;
        assert_eq!(ended["error"], json!({ "code": told, "message": "broken" }));
        assert!(ended.get("result").is_none(), "{ended}");
    }
}

#[tokio::test]
async fn an_error_result_completes_a_task_where_it_fails_one_of_a_legacy_client() {
    let (upstream, _gate, client) = house(AT_ONCE).await;
    let task = client.call("slow").await;
    upstream.held("slow").await.result(r#"{"isError":true,"content":[{"type":"text","text":"no disk"}]}"#);
    let ended = client.until(task["taskId"].as_str().unwrap(), "completed").await;
    assert_eq!(ended["result"]["isError"], true);
}

#[tokio::test]
async fn what_a_server_with_sessions_means_by_a_result_type_does_not_reach_the_client_of_a_task() {
    let (upstream, _gate, client) = house(AT_ONCE).await;
    let task = client.call("slow").await;
    upstream.held("slow").await.result(r#"{"resultType":"mine","content":[]}"#);
    let ended = client.until(task["taskId"].as_str().unwrap(), "completed").await;
    assert_eq!(ended["result"], json!({ "resultType": "complete", "content": [] }));
}

#[tokio::test]
async fn a_cancelled_task_is_acknowledged_twice_and_the_server_is_told() {
    let (upstream, _gate, client) = house(AT_ONCE).await;
    let task = client.call("slow").await;
    let id = task["taskId"].as_str().unwrap();
    let _held = upstream.held("slow").await;
    for _ in 0..2 {
        let acknowledged = client.result("tasks/cancel", json!({ "taskId": id })).await;
        assert_eq!(acknowledged["resultType"], "complete");
    }
    upstream.wait_for_message("notifications/cancelled").await;
    assert_eq!(client.get(id).await["status"], "cancelled");
}

#[tokio::test]
async fn a_client_without_the_extension_never_gets_a_task_and_is_told_what_it_lacks() {
    let upstream = Upstream::json().await;
    let tools = "[upstream.tools.always]\nsupport = \"required\"\n";
    let gate = Gate::configured(&format!("[[upstream]]\nurl = {:?}\n{tools}", upstream.url())).await;
    let client = Modern::plain(&gate.url);
    assert_eq!(client.call("echo").await["resultType"], "complete");
    for (method, params) in [
        ("tasks/get", json!({ "taskId": "x" })),
        ("tasks/update", json!({ "taskId": "x", "inputResponses": {} })),
        ("tasks/cancel", json!({ "taskId": "x" })),
        ("tools/call", json!({ "name": "always" })),
    ] {
        let answer = client.answer(method, params).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (400, &json!(-32021)), "{method}");
        let needed = &answer.json()["error"]["data"]["requiredCapabilities"]["extensions"][TASKS];
        assert!(needed.is_object(), "{answer:?}");
    }
}

#[tokio::test]
async fn calls_over_max_running_wait_as_tasks_and_run_one_after_the_other() {
    let (upstream, _gate, client) = house("[tasks]\ntask_after = \"1h\"\nmax_running = 1\n").await;
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let running = upstream.held("slow").await;
    let queued = client.call("slow").await;
    assert_eq!(queued["resultType"], "task", "it waits for its turn as a task");
    assert_eq!(upstream.count("slow"), 1);
    running.result(r#"{"content":[]}"#);
    assert_eq!(soon(first).await.unwrap()["resultType"], "complete");
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    client.until(queued["taskId"].as_str().unwrap(), "completed").await;
}

#[tokio::test]
async fn one_principal_sees_one_set_of_tasks_in_both_generations_each_in_its_form() {
    let upstream = Upstream::sse().await;
    let auth = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n[tasks]\ntask_after = \"0s\"\n";
    let gate = Gate::with(&upstream, auth).await;
    let mut modern = Modern::with_tasks(&gate.url);
    modern.http = modern.http.with("x-user", "ann");
    let task = modern.call("slow").await;
    let id = task["taskId"].as_str().unwrap();
    upstream.held("slow").await.result(r#"{"isError":true,"content":[]}"#);
    modern.until(id, "completed").await;
    let legacy = Client::new(&gate.url).with("x-user", "ann").initialize("2025-11-25", json!({})).await;
    assert_eq!(legacy.list().await, [id]);
    assert_eq!(legacy.get(id).await["status"], "failed");
    let theirs = legacy.create_id("slow").await;
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    assert_eq!(modern.until(&theirs, "completed").await["result"]["content"], json!([]));
}

#[tokio::test]
async fn a_call_that_would_be_one_task_too_many_goes_on_as_it_is_for_the_timeout_of_its_tool() {
    let upstream = Upstream::sse().await;
    let config = "[rate]\ncreations = \"1/h\"\n[tasks]\ntask_after = \"20ms\"\ntimeout = \"1s\"\n";
    let gate = Gate::with(&upstream, config).await;
    let client = Modern::with_tasks(&gate.url);
    assert_eq!(client.call("slow").await["resultType"], "task");
    drop(upstream.held("slow").await);
    let (status, code, why) = client.refusal("tools/call", json!({ "name": "slow" })).await;
    assert_eq!((status, code), (200, -32603));
    assert!(why.contains("did not answer within 1s"), "{why}");
    let call = upstream.held("slow").await.seen.id();
    let cancelled = upstream.wait_for_message("notifications/cancelled").await;
    assert_eq!(cancelled.json()["params"]["requestId"].to_string(), call);
}

#[tokio::test]
async fn answers_that_come_together_do_not_wait_for_each_other_to_be_taken_by_the_server() {
    const QUESTIONS: usize = 8;
    let (upstream, gate, _) = house(AT_ONCE).await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {}, "extensions": { TASKS: {} } }));
    let task = client.call("slow").await;
    let id = task["taskId"].as_str().unwrap();
    let slow = upstream.held("slow").await.sse();
    for question in 0..QUESTIONS {
        let params = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
        let asked = json!({ "jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params });
        slow.event(&asked.to_string()).await;
    }
    let keys: Vec<_> = eventually(async || {
        let task = client.get(id).await;
        let requests = task["inputRequests"].as_object()?;
        (requests.len() == QUESTIONS).then(|| requests.keys().cloned().collect())
    })
    .await;
    let answers: serde_json::Map<_, _> = keys.into_iter().map(|key| (key, json!({ "action": "decline" }))).collect();
    upstream.hold("POST");
    let update = client.result("tasks/update", json!({ "taskId": id, "inputResponses": answers }));
    let arrive = async {
        let (begun, mut arrived) = (Instant::now(), Vec::new());
        while arrived.len() < QUESTIONS {
            arrived.push(upstream.held("POST").await);
        }
        // One after the other, each would have a second of its own.
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        for answer in arrived {
            assert_eq!(answer.seen.json()["result"]["action"], "decline");
            answer.status(202, &[], "");
        }
    };
    let (updated, ()) = tokio::join!(update, arrive);
    assert_eq!(updated["resultType"], "complete");
    assert_eq!(client.get(id).await["status"], "working");
}
