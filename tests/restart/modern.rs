//! Clients of revision 2026-07-28 notice nothing: their tasks are found by principal or id, and their questions too.

use serde_json::{Value, json};

use crate::{
    House,
    kit::{Client, Options, Upstream, eventually},
    modern_client::{Modern, TASKS},
    written,
};

const AT_ONCE: &str = "[tasks]\ntask_after = \"0s\"\n";
const ELICITS: &str = r#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"How many?","requestedSchema":{"type":"object","properties":{}}}}"#;

fn able() -> Value {
    json!({ "elicitation": {}, "extensions": { TASKS: {} } })
}

#[tokio::test]
async fn a_task_is_found_by_its_id_at_once_with_its_result() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), AT_ONCE).await;
    let client = Modern::with_tasks(&house.url);
    let id = client.call("echo").await["taskId"].as_str().unwrap().to_owned();
    let before = client.until(&id, "completed").await;
    house.restart().await;
    assert_eq!(client.get(&id).await, before);
    assert_eq!(upstream.count("echo"), 1);
}

#[tokio::test]
async fn the_error_of_a_failed_task_stays_while_nothing_is_known_of_its_server() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let mut house = House::before(&upstream.url(), AT_ONCE).await;
    let client = Modern::with_tasks(&house.url);
    let id = client.call("slow").await["taskId"].as_str().unwrap().to_owned();
    let error = json!({ "code": -32021, "message": "no", "data": { "requiredCapabilities": { "roots": {} } } });
    upstream.held("slow").await.error(&error.to_string());
    let before = client.until(&id, "failed").await;
    assert_eq!(before["error"], error);
    house.restart().await;
    assert_eq!(client.get(&id).await, before);
    assert_eq!(upstream.count("server/discover"), 1);
}

#[tokio::test]
async fn a_call_that_the_disk_takes_as_no_task_is_refused_and_may_be_tried_again() {
    let upstream = Upstream::json().await;
    let house = House::before(&upstream.url(), AT_ONCE).await;
    let client = Modern::with_tasks(&house.url);
    let mark = house.folder.path().join("store.db-mark");
    let away = house.folder.path().join("away");
    std::fs::rename(&mark, &away).unwrap();
    let (_, code, why) = client.refusal("tools/call", json!({ "name": "echo" })).await;
    assert_eq!((code, &*why), (-32603, "taskgate cannot reach its store of tasks now; try again"));
    std::fs::rename(&away, &mark).unwrap();
    let id = client.call("echo").await["taskId"].as_str().unwrap().to_owned();
    client.until(&id, "completed").await;
    assert_eq!(upstream.count("echo"), 1);
}

#[tokio::test]
async fn a_question_of_a_task_that_is_resumed_is_answered_by_an_update() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), AT_ONCE).await;
    let client = Modern::able(&house.url, able());
    let id = client.call("slow").await["taskId"].as_str().unwrap().to_owned();
    let stream = upstream.held("slow").await.sse();
    let call = stream.seen.id();
    stream.raw("id: e1\ndata: \n\n").await;
    stream.raw(&format!("id: e2\ndata: {ELICITS}\n\n")).await;
    client.until(&id, "input_required").await;
    written(&Client::connect(&house.url).await).await;
    house.restart().await;
    let resumed = upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "e1");
    resumed.raw(&format!("id: e2\ndata: {ELICITS}\n\n")).await;
    let asked = client.until(&id, "input_required").await;
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let answers = json!({ key: { "action": "accept", "content": {} } });
    client.result("tasks/update", json!({ "taskId": id, "inputResponses": answers })).await;
    let answered = upstream.wait_for(|seen| seen.json()["id"] == "q1" && seen.rpc().is_empty()).await;
    assert_eq!(answered.json()["result"]["action"], "accept");
    resumed
        .raw(&format!("id: e3\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{call},\"result\":{{\"content\":[]}}}}\n\n"))
        .await;
    client.until(&id, "completed").await;
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_call_that_waited_is_sent_in_a_new_session_with_the_server() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "[tasks]\ntask_after = \"0s\"\nmax_running = 1\n").await;
    let client = Modern::with_tasks(&house.url);
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(client.call("slow").await["taskId"].as_str().unwrap().to_owned());
    }
    let held = upstream.held("slow").await;
    house.restart().await;
    drop(held);
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    client.until(&ids[1], "completed").await;
    assert_eq!(client.get(&ids[0]).await["status"], "failed");
    assert_eq!(upstream.count("slow"), 2);
}

#[tokio::test]
async fn the_state_of_a_call_that_was_parked_is_refused_with_what_has_happened_and_to_its_client_only() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), "[tasks]\ntask_after = \"1h\"\n").await;
    let client = Modern::able(&house.url, able());
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let stream = upstream.held("slow").await.sse();
    stream.raw(&format!("id: e1\ndata: {ELICITS}\n\n")).await;
    let parked = calling.await.unwrap();
    assert_eq!(parked["resultType"], "input_required");
    house.restart().await;
    let key = parked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let retry = |name: &str| {
        json!({ "name": name, "arguments": {}, "requestState": parked["requestState"],
            "inputResponses": { key.clone(): { "action": "accept", "content": {} } } })
    };
    let (status, code, why) = client.refusal("tools/call", retry("slow")).await;
    assert_eq!((status, code), (200, -32602));
    assert!(why.contains("restart") && why.contains("may or may not"), "{why}");
    // For another request it is good for nothing, and tells nothing.
    let (_, code, why) = client.refusal("tools/call", retry("other")).await;
    assert!(code == -32602 && !why.contains("restart"), "{why}");
    assert_eq!(upstream.count("slow"), 1);
    // A kill could come before the line is written.
    let log = house.end(rustix::process::Signal::TERM).await.stderr;
    assert!(log.contains("used before, or of a call that a restart has ended"), "{log}");
}

#[tokio::test]
async fn a_call_that_became_a_task_while_it_ran_is_resumed() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), "[tasks]\ntask_after = \"200ms\"\n").await;
    let client = Modern::with_tasks(&house.url);
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let stream = upstream.held("slow").await.sse();
    let call = stream.seen.id();
    stream.raw("id: e1\ndata: \n\n").await;
    let id = calling.await.unwrap()["taskId"].as_str().unwrap().to_owned();
    assert_eq!(client.get(&id).await["status"], "working");
    written(&Client::connect(&house.url).await).await;
    house.restart().await;
    let resumed = upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "e1");
    resumed
        .raw(&format!("id: e2\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{call},\"result\":{{\"content\":[]}}}}\n\n"))
        .await;
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn in_front_of_a_modern_server_a_call_that_waited_is_sent_as_it_came_and_one_that_ran_has_failed() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let mut house = House::before(&upstream.url(), "[tasks]\ntask_after = \"0s\"\nmax_running = 1\n").await;
    let client = Modern::with_tasks(&house.url);
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(client.call("slow").await["taskId"].as_str().unwrap().to_owned());
    }
    let held = upstream.held("slow").await;
    house.restart().await;
    drop(held);
    let sent = upstream.held("slow").await;
    let meta = sent.seen.json()["params"]["_meta"].clone();
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    sent.result(r#"{"resultType":"complete","content":[]}"#);
    client.until(&ids[1], "completed").await;
    assert_eq!(client.get(&ids[0]).await["status"], "failed");
    assert_eq!(upstream.count("slow"), 2);
}

#[tokio::test]
async fn a_call_that_waited_in_a_session_gets_a_session_of_the_server_that_has_become_modern_as_well() {
    let before = Upstream::json().await;
    let mut house = House::before(&before.url(), "[tasks]\nmax_running = 1\n").await;
    let client = Client::connect(&house.url).await;
    let (_running, waits) = (client.create_id("slow").await, client.create_id("slow").await);
    let held = before.held("slow").await;
    house.end(rustix::process::Signal::KILL).await;
    drop(held);
    before.stop().await;
    let upstream = Upstream::start_in_place_of(&before, Options { modern: true, ..Options::default() }).await;
    upstream.forget_sessions();
    house.start_again().await;
    let sent = upstream.held("slow").await;
    assert!(!sent.seen.header("mcp-session-id").is_empty());
    sent.result(r#"{"content":[]}"#);
    client.until(&waits, "completed").await;
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_call_that_has_begun_again_is_resumed_in_its_second_session() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), AT_ONCE).await;
    let client = Modern::able(&house.url, able());
    let first = client.call("echo").await["taskId"].as_str().unwrap().to_owned();
    client.until(&first, "completed").await;
    upstream.forget_sessions();
    let id = client.call("slow").await["taskId"].as_str().unwrap().to_owned();
    let stream = upstream.held("slow").await.sse();
    let (call, session) = (stream.seen.id(), stream.seen.header("mcp-session-id").to_owned());
    stream.raw("id: e1\ndata: \n\n").await;
    stream.raw(&format!("id: e2\ndata: {ELICITS}\n\n")).await;
    client.until(&id, "input_required").await;
    written(&Client::connect(&house.url).await).await;
    assert_eq!((upstream.count("slow"), &*session), (2, "upstream-2"), "refused in the first session");
    house.restart().await;
    let resumed = upstream.resumed().await;
    assert_eq!((resumed.seen.header("last-event-id"), resumed.seen.header("mcp-session-id")), ("e1", &*session));
    resumed
        .raw(&format!("id: e3\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{call},\"result\":{{\"content\":[]}}}}\n\n"))
        .await;
    client.until(&id, "completed").await;
    assert_eq!(upstream.count("slow"), 2);
}

#[tokio::test]
async fn of_two_calls_resumed_in_one_session_that_the_server_then_forgets_one_goes_on_when_the_other_breaks() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), AT_ONCE).await;
    let client = Modern::with_tasks(&house.url);
    let mut running = Vec::new();
    for event in ["a1", "b1"] {
        let id = client.call("slow").await["taskId"].as_str().unwrap().to_owned();
        let stream = upstream.held("slow").await.sse();
        let (call, session) = (stream.seen.id(), stream.seen.header("mcp-session-id").to_owned());
        stream.raw(&format!("id: {event}\ndata: \n\n")).await;
        stream.progress(1).await;
        let told = async || Some(client.get(&id).await).filter(|task| task["statusMessage"].is_string());
        eventually(told).await;
        running.push((id, stream, call, session));
    }
    assert_eq!(running[0].3, running[1].3, "they share a session");
    written(&Client::connect(&house.url).await).await;
    house.restart().await;
    let (one, other) = (upstream.resumed().await, upstream.resumed().await);
    let (breaks, goes_on) = if one.seen.header("last-event-id") == "a1" { (one, other) } else { (other, one) };
    upstream.forget_sessions();
    breaks.cut().await;
    client.until(&running[0].0, "failed").await;
    let call = &running[1].2;
    goes_on
        .raw(&format!("id: b2\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{call},\"result\":{{\"content\":[]}}}}\n\n"))
        .await;
    client.until(&running[1].0, "completed").await;
    assert_eq!(upstream.count("slow"), 2);
}
