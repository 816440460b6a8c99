//! Jobs of hosts without tasks go on, and their hosts wait for them in the same session.

use serde_json::{Value, json};

use crate::{
    House,
    kit::{Answers, Children, Client, Options, Script, Sse, Stream, Upstream, soon, text_in},
    modern_client::Modern,
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

#[tokio::test]
async fn a_job_of_a_client_without_sessions_is_there_while_its_server_is_not() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), SOON).await;
    let host = Modern::plain(&house.url);
    let calling = tokio::spawn({
        let host = host.clone();
        async move { host.call("slow").await }
    });
    let slow = upstream.held("slow").await.sse();
    let job = job_in(&soon(calling).await.unwrap());
    slow.result(&text("done").to_string()).await;
    let waits = |job: &str| json!({ "name": "wait_for_job", "arguments": { "job_ids": [job] } });
    assert_eq!(text_in(&host.result("tools/call", waits(&job)).await), "done");
    house.end(rustix::process::Signal::KILL).await;
    upstream.stop().await;
    house.start_again().await;
    assert_eq!(text_in(&host.result("tools/call", waits(&job)).await), "done");
    let cancels = json!({ "name": "cancel_job", "arguments": { "job_id": job } });
    assert!(text_in(&host.result("tools/call", cancels).await).contains("had ended already"));
    // It may be a tool of the server.
    let (_, code, _) = host.refusal("tools/call", waits("another-id")).await;
    assert_eq!(code, -32603);
}

/// A server that has a tool of one of our names.
const LISTS: &str = r#"
    *'"method":"tools/list"'*) reply "$id" '{"tools":[{"name":"list_jobs","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"slow"'*) while [ -d "$dir" ] && [ ! -e "$dir/go" ]; do sleep 0.02; done; text "$id" done ;;"#;

#[tokio::test]
async fn a_session_whose_server_was_a_process_tells_of_its_jobs_by_the_names_that_they_had() {
    let children = Children::new(Script { tools: LISTS, ..Script::default() });
    let config = format!("{SOON}[[upstream]]\ncommand = {}\n", json!(children.command()));
    let mut house = House::configured(&config, &[]).await;
    let host = Client::connect_as(&house.url, "2025-11-25", json!({})).await;
    host.ask("tools/list", json!({})).await;
    let calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let job = job_in(&calling.last().await["result"]);
    children.touch("go");
    let waits = json!({ "name": "taskgate_wait_for_job", "arguments": { "job_ids": [job] } });
    let done = host.response("tools/call", waits.clone()).await;
    assert_eq!(text_in(&done["result"]), "done");
    house.restart().await;
    assert_eq!(host.answer("tools/list", json!({})).await.status, 404, "the process has ended");
    assert_eq!(host.response("tools/call", waits).await["result"], done["result"]);
}

#[tokio::test]
async fn a_job_in_front_of_a_modern_server_that_ended_with_the_process_says_in_words_what_is_known() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let mut house = House::before(&upstream.url(), SOON).await;
    let host = Modern::plain(&house.url);
    let calling = tokio::spawn({
        let host = host.clone();
        async move { host.call("slow").await }
    });
    let held = upstream.held("slow").await;
    let job = job_in(&soon(calling).await.unwrap());
    house.restart().await;
    drop(held);
    let waits = json!({ "name": "wait_for_job", "arguments": { "job_ids": [job] } });
    let ended = host.result("tools/call", waits).await;
    assert!(ended["isError"] == true && text_in(&ended).contains("may or may not have had its effect"), "{ended}");
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn the_words_about_a_job_name_our_tool_although_the_host_lists_the_tools_no_more() {
    let tools = json!([{ "name": "wait_for_job", "inputSchema": { "type": "object" } }]);
    let options = Options { answers: Answers::Sse, listens: true, tools, ..Options::default() };
    let upstream = Upstream::start(options).await;
    let mut house = House::before(&upstream.url(), SOON).await;
    let host = Client::connect_as(&house.url, "2025-11-25", json!({})).await;
    host.ask("tools/list", json!({})).await;
    house.restart().await;
    let calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let _slow = upstream.held("slow").await.sse();
    let told = text_in(&calling.last().await["result"]);
    assert!(told.contains("call taskgate_wait_for_job with"), "{told}");
}

const STOPS_SOON: &str = "server.drain_timeout = \"100ms\"\ntasks.job_after = \"80ms\"\n";

/// Has the call of a job be one that can be resumed, and tell progress. Returns its id at the server.
async fn can_be_resumed(stream: &Sse) -> String {
    let call = stream.seen.id();
    event(stream, "e1", "").await;
    let params = json!({ "progressToken": call.parse::<u64>().unwrap(), "progress": 1, "message": "step 1" });
    let document = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
    event(stream, "e2", &document.to_string()).await;
    call
}

/// Returns the arguments of a call that waits, and is told progress.
fn waits_for(job: &str) -> Value {
    let arguments = json!({ "job_ids": [job], "seconds": 50 });
    json!({ "name": "wait_for_job", "arguments": arguments, "_meta": { "progressToken": "t" } })
}

/// Stops taskgate while a host waits, and checks that the host is told to go on waiting.
async fn is_told_to_wait_on(house: &mut House, mut waiting: Stream, job: &str) {
    while !waiting.message().await["params"]["message"].as_str().unwrap().contains("step 1") {}
    house.end(rustix::process::Signal::TERM).await;
    let result = waiting.last().await["result"].take();
    let words = text_in(&result);
    assert!(words.contains("is still running") && words.contains("which is normal"), "{words}");
    assert_eq!((job_in(&result).as_str(), result.get("isError")), (job, None));
}

#[tokio::test]
async fn a_stop_answers_a_wait_for_a_job_that_goes_on_with_the_usual_words() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), STOPS_SOON).await;
    let host = Client::connect_as(&house.url, "2025-11-25", json!({})).await;
    let calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let stream = upstream.held("slow").await.sse();
    let job = job_in(&calling.last().await["result"]);
    let call = can_be_resumed(&stream).await;
    is_told_to_wait_on(&mut house, host.stream("tools/call", waits_for(&job)), &job).await;
    house.start_again().await;
    answer(upstream.resumed().await, &call, &text("done")).await;
    assert_eq!(wait(&host, &job, 50).await, text("done"));
}

#[tokio::test]
async fn a_stop_answers_a_wait_of_a_host_without_a_session_too() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), STOPS_SOON).await;
    let host = Modern::plain(&house.url);
    let calling = tokio::spawn({
        let host = host.clone();
        async move { host.call("slow").await }
    });
    let stream = upstream.held("slow").await.sse();
    let job = job_in(&soon(calling).await.unwrap());
    let call = can_be_resumed(&stream).await;
    is_told_to_wait_on(&mut house, host.stream("tools/call", waits_for(&job)), &job).await;
    house.start_again().await;
    answer(upstream.resumed().await, &call, &text("done")).await;
    assert_eq!(text_in(&host.result("tools/call", waits_for(&job)).await), "done");
}
