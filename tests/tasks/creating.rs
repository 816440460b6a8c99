//! Creating tasks: acknowledged at once, run in the background, never lost.

use serde_json::{Value, json};

use crate::kit::{Answers, Client, Gate, Options, Upstream, house, status_of};

#[tokio::test]
async fn a_call_as_a_task_is_answered_with_the_task_before_the_tool_answers() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let answer = client.answer("tools/call", json!({ "name": "slow", "task": { "ttl": 7_200_000 } })).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, "application/json"));
    let result = answer.json()["result"].take();
    let members: Vec<_> = result.as_object().unwrap().keys().collect();
    assert_eq!(members, ["task"]);
    let task = &result["task"];
    assert_eq!(status_of(task), "working");
    assert!(task["taskId"].is_string() && task["ttl"].is_u64() && task["pollInterval"].is_u64(), "{task}");
    assert_eq!(task["createdAt"], task["lastUpdatedAt"]);
    let slow = upstream.held("slow").await;
    assert!(slow.is_open());
}

#[tokio::test]
async fn the_upstream_gets_the_call_without_the_task_member_and_is_asked_for_progress() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    for (sent, received) in [
        (r#"{ "name":"slow" , "task" : { "ttl":1.5 } ,"x":1.50 }"#, r#"{ "name":"slow" ,"x":1.50 }"#),
        (
            r#"{"task":{},"name":"slow","arguments":{"task":{"ttl":1}}}"#,
            r#"{"name":"slow","arguments":{"task":{"ttl":1}}}"#,
        ),
        (r#"{"name":"slow","\u0074ask":{}}"#, r#"{"name":"slow"}"#),
    ] {
        client.post(format!(r#"{{"extra":[ ],"jsonrpc":"2.0","id":"i","method":"tools/call","params":{sent}}}"#)).await;
        let slow = upstream.held("slow").await;
        let id = slow.seen.id();
        let asked = format!(r#"{{"_meta":{{"progressToken":{id}}},"#);
        let received = received.replacen('{', &asked, 1);
        let expected =
            format!(r#"{{"extra":[ ],"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{received}}}"#);
        let squeezed = |text: &str| text.replace(' ', "");
        assert_eq!(squeezed(slow.seen.text()), squeezed(&expected));
    }
}

#[tokio::test]
async fn the_call_carries_the_headers_of_the_request_that_created_it() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    client.with("authorization", "Bearer t0ken").create("slow", json!({})).await;
    assert_eq!(upstream.held("slow").await.seen.header("authorization"), "Bearer t0ken");
}

#[tokio::test]
async fn task_ids_are_unique_and_hard_to_guess() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    let mut ids: Vec<String> = Vec::new();
    for _ in 0..50 {
        ids.push(client.create_id("echo").await);
    }
    for id in &ids {
        // The fixed digits of a random UUID; the other 122 bits are random.
        assert_eq!((id.len(), &id[14..15]), (36, "4"), "{id}");
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 50);
}

#[tokio::test]
async fn the_immediate_response_of_the_policy_is_in_the_answer() {
    let upstream = Upstream::json().await;
    let toml =
        "[tasks]\nimmediate_response = \"Started.\"\n[[upstream]]\n[upstream.tools.quiet]\nimmediate_response = \"\"";
    let gate = Gate::with(&upstream, toml).await;
    let client = Client::connect(&gate.url).await;
    let meta = async |tool: &str| client.ask("tools/call", json!({ "name": tool, "task": {} })).await["_meta"].take();
    assert_eq!(meta("echo").await, json!({ "io.modelcontextprotocol/model-immediate-response": "Started." }));
    assert_eq!(meta("quiet").await, Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_poll_never_fails_and_a_fast_result_is_never_lost() {
    for answers in [Answers::Json, Answers::Sse] {
        let upstream = Upstream::start(Options { answers, ..Options::default() }).await;
        let gate = Gate::before(&upstream).await;
        let client = Client::connect(&gate.url).await;
        for n in 0..200 {
            let params = json!({ "name": "echo", "arguments": { "n": n }, "task": {} });
            let task = client.ask("tools/call", params).await["task"].take();
            let id = task["taskId"].as_str().unwrap();
            assert!(["working", "completed"].contains(&status_of(&client.get(id).await)));
            let result = client.collect(id).await["result"].take();
            assert_eq!(result["content"][0]["text"], format!("{{\"n\":{n}}}"));
            assert_eq!(status_of(&client.get(id).await), "completed");
        }
    }
}

#[tokio::test]
async fn a_task_survives_the_disconnect_of_the_client_that_created_it() {
    let (upstream, gate, client) = house(Upstream::json()).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await;
    // Its connections end with it.
    let (url, session) = (gate.url.clone(), client.session().to_owned());
    drop(client);
    let back = Client::new(&url).with("mcp-session-id", &session);
    assert_eq!(status_of(&back.get(&id).await), "working");
    slow.result(r#"{"content":[]}"#);
    assert_eq!(status_of(&back.until(&id, "completed").await), "completed");
    assert_eq!(upstream.count("notifications/cancelled"), 0, "before the result");
}

#[tokio::test]
async fn a_client_that_never_reads_the_answer_still_has_its_task() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let call = client.stream("tools/call", json!({ "name": "slow", "task": {} }));
    let slow = upstream.held("slow").await;
    drop(call);
    let ids = client.list().await;
    assert_eq!(ids.len(), 1);
    slow.result(r#"{"content":[]}"#);
    client.until(&ids[0], "completed").await;
}

#[tokio::test]
async fn the_call_runs_upstream_exactly_once() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let id = client.create_id("echo").await;
    client.until(&id, "completed").await;
    client.collect(&id).await;
    client.collect(&id).await;
    assert_eq!(upstream.count("echo"), 1);
}

#[tokio::test]
async fn an_invalid_task_member_is_refused() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    for task in [
        json!([]),
        json!(true),
        json!("x"),
        json!(null),
        json!({ "ttl": "5" }),
        json!({ "ttl": -1 }),
        json!({ "ttl": {} }),
    ] {
        let (code, message) = client.error("tools/call", json!({ "name": "echo", "task": task })).await;
        assert_eq!(code, -32602, "{task}: {message}");
        assert!(message.contains("params.task"), "{task}: {message}");
    }
    let (code, message) = client.error("tools/call", json!({ "task": {} })).await;
    assert_eq!(code, -32602);
    assert!(message.contains("params.name"), "{message}");
    assert_eq!(upstream.count("tools/call"), 0);
}
