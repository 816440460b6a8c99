//! A plain call that takes long becomes a job, and its host is told in words what to do.

use std::time::Duration;

use serde_json::json;

use crate::{
    host::{House, Job, SOON, call, text, wait},
    kit::{Answers, Client, Gate, Options, Upstream, eventually},
};

#[tokio::test]
async fn a_call_that_takes_long_is_answered_in_words_that_name_the_next_call_and_ends_as_its_result() {
    let house = House::open(SOON).await;
    let (slow, job) = house.job().await;
    let (state, next) = job.words.split_once(". ").unwrap();
    assert!(state.starts_with("\"slow\" is still running, as job ") && state.contains("it has run for"), "{state}");
    assert!(next.starts_with(&format!("To get its result, call wait_for_job with {{\"job_ids\":[\"{}\"]}}. ", job.id)));
    assert!(next.ends_with("Do not call slow again for this, it would run twice."), "{next}");
    let result =
        json!({ "content": [{ "type": "text", "text": "done" }], "structuredContent": { "n": 1.50 }, "x": [] });
    slow.result(&result.to_string()).await;
    assert_eq!(wait(&house.host, &job, 10.0).await, result);
    assert_eq!(wait(&house.host, &job, 10.0).await, result, "it can be read again");
    assert_eq!(house.upstream.count("slow"), 1, "it ran once");
}

#[tokio::test]
async fn a_call_that_has_ended_by_then_is_answered_as_ever() {
    let house = House::open(r#"tasks.job_after = "50m""#).await;
    let calling = house.host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    house.upstream.held("slow").await.result(r#"{"content":[{"type":"text","text":"quick"}]}"#);
    assert_eq!(text(&calling.last().await["result"]), "quick");
    assert_eq!(text(&call(&house.host, "echo", json!({ "a": 1 })).await), r#"{"a":1}"#);
}

#[tokio::test]
async fn a_call_that_has_ended_before_its_stream_is_resumed_is_answered_as_ever() {
    let house = House::open(r#"tasks.job_after = "1s""#).await;
    let host = Client::connect_as(&house.gate.url, "2025-11-25", json!({})).await;
    let mut calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let slow = house.upstream.held("slow").await.sse();
    let primer = calling.next_of_any_kind().await.unwrap();
    drop(calling);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    slow.notify("notifications/message", json!({ "level": "info", "data": "late" })).await;
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    // By then taskgate has the answer.
    call(&host, "echo", json!({})).await;
    let mut resumed = host.with("last-event-id", primer.id.as_deref().unwrap()).get_stream().await;
    assert_eq!(resumed.message().await["params"]["data"], "late");
    assert_eq!(text(&resumed.last().await["result"]), "done");
}

#[tokio::test]
async fn a_server_that_does_not_stream_has_jobs_too() {
    let house = House::of(Options::default(), SOON).await;
    let calling = house.host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let slow = house.upstream.held("slow").await;
    let job = Job::in_words(&calling.last().await["result"]);
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#);
    assert_eq!(text(&wait(&house.host, &job, 10.0).await), "done");
}

#[tokio::test]
async fn the_words_tell_the_title_of_the_tool_and_how_far_the_call_is() {
    let tools = json!([{ "name": "slow", "title": "Export all", "inputSchema": { "type": "object" } }]);
    let options = Options { answers: Answers::Sse, tools, ..Options::default() };
    let house = House::of(options, r#"tasks.job_after = "2s""#).await;
    house.host.ask("tools/list", json!({})).await;
    let calling = house.host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let slow = house.upstream.held("slow").await.sse();
    let token = slow.seen.json()["params"]["_meta"]["progressToken"].clone();
    let told = json!({ "progressToken": token, "progress": 3, "total": 7, "message": "some files" });
    slow.notify("notifications/progress", told).await;
    let job = Job::in_words(&calling.last().await["result"]);
    assert!(job.words.starts_with("\"Export all\" is still running, as job"), "{}", job.words);
    assert!(job.words.contains("(so far: 3 of 7: some files)"), "{}", job.words);
    assert!(job.words.contains("Do not call slow again"), "{}", job.words);
    let still = text(&wait(&house.host, &job, 0.0).await);
    assert!(still.starts_with(&format!("Job {} (\"Export all\") is still running after", job.id)), "{still}");
    assert!(
        still.contains("which is normal") && still.contains("3 of 7: some files") && still.contains("again"),
        "{still}"
    );
}

#[tokio::test]
async fn the_words_of_a_tool_can_be_replaced() {
    let toml = r#"
        [[upstream]]
        [upstream.tools."slow"]
        job_after = "80ms"
        job_text = 'Brewing {title} ({tool}), {elapsed}. Next: call {wait_for_job} with {"job_ids":["{job_id}"]}'
        job_wait_text = 'Still brewing {job_id}{progress}{estimate}.'
    "#;
    let house = House::open(toml).await;
    let (_slow, job) = house.job().await;
    let (said, _) = job.words.split_once(". Next: call").unwrap();
    assert!(said.starts_with("Brewing slow (slow), ") && said.contains(" second"), "{}", job.words);
    assert_eq!(text(&wait(&house.host, &job, 0.0).await), format!("Still brewing {}.", job.id));
}

#[tokio::test]
async fn a_client_that_declares_tasks_or_asks_for_one_gets_tasks_and_no_jobs() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, SOON).await;
    let able = Client::connect_as(&gate.url, "2025-11-25", json!({ "tasks": { "list": {} } })).await;
    let names = able.ask("tools/list", json!({})).await["tools"].as_array().unwrap().len();
    assert_eq!((names, able.initialized.get("instructions")), (1, None));
    let calling = able.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let slow = upstream.held("slow").await;
    // A later call of a host without tasks becomes a job.
    let host = Client::connect_as(&gate.url, "2025-06-18", json!({})).await;
    let house = House { upstream, gate, host };
    let (_witness, _) = house.job().await;
    slow.result(r#"{"content":[{"type":"text","text":"plain"}]}"#);
    assert_eq!(text(&calling.last().await["result"]), "plain");
    // Another one has not declared them, and asks for a task all the same.
    let asking = Client::connect(&house.gate.url).await;
    let task = asking.create_id("slow").await;
    house.upstream.held("slow").await.result(r#"{"content":[]}"#);
    asking.until(&task, "completed").await;
}

#[tokio::test]
async fn a_tool_that_can_be_no_task_becomes_no_job() {
    let toml = format!("{SOON}\n[[upstream]]\n[upstream.tools.slow]\nsupport = \"forbidden\"");
    let house = House::open(&toml).await;
    let calling = house.host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let slow = house.upstream.held("slow").await;
    // A later call of another tool becomes a job.
    let (_witness, _) = house.job_of(&house.host, "other").await;
    slow.result(r#"{"content":[{"type":"text","text":"plain"}]}"#);
    assert_eq!(text(&calling.last().await["result"]), "plain");
}

#[tokio::test]
async fn a_tool_that_has_to_be_a_task_becomes_a_job_only_where_plain_calls_of_it_are_taken() {
    let house = House::open(&format!("{SOON}\ntasks.support = \"required\"")).await;
    let (slow, job) = house.job().await;
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&wait(&house.host, &job, 50.0).await), "done");
    let newer = Client::connect(&house.gate.url).await;
    let (code, message) = newer.error("tools/call", json!({ "name": "slow", "arguments": {} })).await;
    assert!(code == -32601 && message.contains("can only be called as a task"), "{message}");
}

#[tokio::test]
async fn a_job_has_run_since_its_call_however_late_it_got_its_turn() {
    let house = House::open("tasks.job_after = \"20ms\"\ntasks.max_running = 1\ntasks.poll_interval = \"2s\"").await;
    let (first, _) = house.job().await;
    let calling = house.host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let second = house.upstream.held("slow").await.sse();
    tokio::time::sleep(Duration::from_millis(1600)).await;
    first.result(r#"{"content":[]}"#).await;
    let job = Job::in_words(&calling.last().await["result"]);
    let (_, run) = job.words.split_once("it has run for ").unwrap();
    assert!(!run.starts_with("1 second"), "{}", job.words);
    let still = text(&wait(&house.host, &job, 0.0).await);
    let (_, run) = still.split_once("running after ").unwrap();
    assert!(!run.starts_with("1 second"), "{still}");
    second.result(r#"{"content":[]}"#).await;
}

#[tokio::test]
async fn a_call_for_which_no_turn_is_free_goes_on_until_one_is() {
    let house = House::open(&format!("{SOON}\ntasks.max_running = 1")).await;
    let (first, _) = house.job().await;
    let calling = house.host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let second = house.upstream.held("slow").await.sse();
    // A later call of another tool becomes a job.
    let (_witness, _) = house.job_of(&house.host, "other").await;
    let jobs = text(&call(&house.host, "list_jobs", json!({})).await);
    assert_eq!(jobs.matches("\"slow\" has run for").count(), 1, "the second call waits for its turn: {jobs}");
    first.result(r#"{"content":[]}"#).await;
    let job = Job::in_words(&calling.last().await["result"]);
    second.result(r#"{"content":[{"type":"text","text":"second"}]}"#).await;
    assert_eq!(text(&wait(&house.host, &job, 10.0).await), "second");
}

#[tokio::test]
async fn a_late_cancellation_of_the_call_does_not_cancel_the_job() {
    let house = House::open(SOON).await;
    let id = 77;
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "slow" } });
    let answer = house.host.post(body.to_string()).await;
    let job = Job::in_words(&answer.json()["result"]);
    let slow = house.upstream.held("slow").await.sse();
    assert_eq!(house.host.notify("notifications/cancelled", json!({ "requestId": id })).await, 202);
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&wait(&house.host, &job, 10.0).await), "done");
    assert_eq!(house.upstream.count("notifications/cancelled"), 0);
}

#[tokio::test]
async fn a_call_that_its_host_has_cancelled_becomes_no_job() {
    let house = House::open(r#"tasks.job_after = "2s""#).await;
    let id = 77;
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "slow" } });
    let cancelling = async {
        let slow = house.upstream.held("slow").await.sse();
        assert_eq!(house.host.notify("notifications/cancelled", json!({ "requestId": id })).await, 202);
        // A call that begins later becomes one.
        let (_other, _job) = house.job().await;
        slow.abandoned().await;
    };
    let (answer, ()) = tokio::join!(house.host.post(body.to_string()), cancelling);
    assert!(!answer.text().contains("job"), "{}", answer.text());
    assert_eq!(house.upstream.count("notifications/cancelled"), 1, "the server is told once");
}

#[tokio::test]
async fn jobs_of_a_session_end_with_it() {
    let house = House::open(SOON).await;
    let (slow, _job) = house.job().await;
    house.host.delete().await;
    slow.abandoned().await;
}

#[tokio::test]
async fn a_job_is_a_task_in_metrics() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, &format!("server.admin = \"127.0.0.1:0\"\n{SOON}")).await;
    let host = Client::connect_as(&gate.url, "2025-06-18", json!({})).await;
    let house = House { upstream, gate, host };
    let (slow, _job) = house.job().await;
    let metrics = Client::new(&format!("{}/metrics", house.gate.admin.as_ref().unwrap()));
    let has = async |line: &str| {
        eventually(async || {
            let text = metrics.send(http::Method::GET, "").await.text().to_owned();
            text.contains(line).then_some(())
        })
        .await;
    };
    has("taskgate_tasks_created_total").await;
    slow.result(r#"{"content":[]}"#).await;
    has("status=\"completed\"").await;
}
