//! What is bounded, ends, and drains.

use serde_json::{Value, json};

use crate::{
    client::{Modern, VERSION},
    kit::{Client, Gate, Sse, Upstream, eventually, soon},
};

/// Calls a tool that asks these questions. Returns the server's end of the call, and its answer.
async fn asked(upstream: &Upstream, client: &Modern, ids: &[&str]) -> (Sse, Value) {
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let slow = upstream.held("slow").await.sse();
    for id in ids {
        let params = json!({ "message": id, "requestedSchema": { "type": "object", "properties": {} } });
        let question = json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params });
        slow.event(&question.to_string()).await;
    }
    (slow, soon(calling).await.unwrap())
}

/// Waits until the metrics have these lines.
pub(crate) async fn shows(gate: &Gate, lines: &[String]) {
    let url = format!("{}/metrics", gate.admin.as_ref().unwrap());
    eventually(async || {
        let metrics = Client::new(&url).send(http::Method::GET, "").await;
        lines.iter().all(|line| metrics.text().contains(&format!("\ntaskgate_{line}\n"))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_rate_that_is_used_up_is_429_and_says_when_to_come_back() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, "[rate]\ntask_methods = \"1/h\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    client.refusal("tasks/get", json!({ "taskId": "x" })).await;
    let refused = client.answer("tasks/get", json!({ "taskId": "x" })).await;
    assert_eq!((refused.status.as_u16(), refused.refusal().1), (429, -32603));
    assert!(refused.header("retry-after").parse::<u64>().unwrap() > 3000, "{refused:?}");
}

#[tokio::test]
async fn a_session_with_the_server_that_no_call_uses_ends() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, "[server]\nsession_idle = \"50ms\"\n").await;
    let client = Modern::plain(&gate.url);
    client.call("echo").await;
    eventually(async || upstream.seen().iter().any(|seen| seen.method == "DELETE").then_some(())).await;
    client.call("echo").await;
    assert_eq!(upstream.count("initialize"), 2);
}

#[tokio::test]
async fn with_sessions_request_each_call_has_a_session_for_itself() {
    let upstream = Upstream::sse().await;
    let toml = format!("[[upstream]]\nurl = {:?}\nsessions = \"request\"\n", upstream.url());
    let gate = Gate::configured(&toml).await;
    let client = Modern::plain(&gate.url);
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.call("slow").await })
        })
        .collect();
    let (first, second) = (upstream.held("slow").await, upstream.held("slow").await);
    assert_eq!(upstream.count("initialize"), 2);
    first.result(r#"{"content":[]}"#);
    second.result(r#"{"content":[]}"#);
    for call in calls {
        assert_eq!(soon(call).await.unwrap()["resultType"], "complete");
    }
}

#[tokio::test]
async fn a_retry_takes_the_place_in_flight_of_the_call_that_it_goes_on_with() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[server]\nadmin = \"127.0.0.1:0\"\n").await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let (slow, asked) = asked(&upstream, &client, &["one", "two"]).await;
    let params = client.params(json!({ "name": "slow", "arguments": {} }));
    let headers = [("mcp-protocol-version", VERSION), ("mcp-method", "tools/call"), ("mcp-name", "slow")];
    let connection = || headers.iter().fold(Client::http2(&gate.url), |http, (name, value)| http.with(name, value));
    let connections: Vec<_> = (0..16).map(|_| connection()).collect();
    let _others: Vec<_> = (1..1024).map(|nth| connections[nth % 16].stream("tools/call", params.clone())).collect();
    shows(&gate, &["sessionless_requests 1024".into()]).await;
    let retry = |asked: &Value| {
        let answers = asked["inputRequests"].as_object().unwrap().keys().take(1);
        let answers: Value = answers.map(|key| (key.clone(), json!({ "action": "decline" }))).collect();
        let state = &asked["requestState"];
        let retry = json!({ "name": "slow", "arguments": {}, "requestState": state, "inputResponses": answers });
        let client = client.clone();
        tokio::spawn(async move { client.result("tools/call", retry).await })
    };
    let asked_again = soon(retry(&asked)).await.unwrap();
    assert_eq!(asked_again["resultType"], "input_required", "{asked_again}");
    let last = retry(&asked_again);
    let is_answer = |id: &Value| id == "one" || id == "two";
    let answers = || upstream.seen().iter().filter(|seen| is_answer(&seen.json()["id"])).count();
    eventually(async || (answers() == 2).then_some(())).await;
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(soon(last).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn a_call_for_whose_task_there_is_no_room_keeps_its_turn_while_it_runs() {
    let upstream = Upstream::json().await;
    let toml = "[server]\nadmin = \"127.0.0.1:0\"\n[tasks]\nmax_running = 1\nmax_tasks = 1\ntask_after = \"1ms\"\n";
    let gate = Gate::with(&upstream, toml).await;
    let client = Modern::with_tasks(&gate.url);
    assert_eq!(client.call("only").await["resultType"], "task");
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.call("slow").await });
    let slow = upstream.held("slow").await;
    shows(&gate, &[r#"tasks_refused_total{reason="max_tasks"} 1"#.into()]).await;
    let (_, code, _) = client.refusal("tools/call", json!({ "name": "slow", "arguments": {} })).await;
    assert_eq!((code, upstream.count("slow")), (-32603, 1), "its turn is not free");
    slow.result(r#"{"content":[]}"#);
    assert_eq!(soon(calling).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn what_modern_clients_hold_is_in_the_metrics_while_they_hold_it() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[server]\nadmin = \"127.0.0.1:0\"\n[tasks]\ninput_timeout = \"5s\"\n").await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let (_slow, asked) = asked(&upstream, &client, &["q"]).await;
    assert_eq!(asked["resultType"], "input_required");
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": {} }));
    let _server = tokio::join!(upstream.get_stream(), stream.message()).0;
    let hold = async |samples: [(&str, u32); 4]| {
        shows(&gate, &samples.map(|(name, count)| format!("{name} {count}"))).await;
    };
    hold([("pooled_sessions", 1), ("parked_calls", 1), ("subscriptions", 1), ("sessionless_requests", 1)]).await;
    drop(stream);
    // The call is given up after input_timeout.
    hold([("pooled_sessions", 1), ("parked_calls", 0), ("subscriptions", 0), ("sessionless_requests", 0)]).await;
}

#[tokio::test]
async fn a_task_of_a_modern_client_leaves_the_lines_that_any_task_leaves_in_the_audit_log() {
    let upstream = Upstream::json().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let toml = format!("[tasks]\ntask_after = \"0s\"\n[audit]\nto = \"file\"\nfile = {:?}\n", log.path());
    let gate = Gate::with(&upstream, &toml).await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("echo").await;
    client.until(task["taskId"].as_str().unwrap(), "completed").await;
    client.refusal("tasks/get", json!({ "taskId": "unknown" })).await;
    gate.stop().await;
    let lines = std::fs::read_to_string(log.path()).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in ["task_created", "task_ended", "result_retrieved", "lookup_failed"] {
        let line = lines.iter().find(|line| line["event"] == event);
        assert_eq!(line.unwrap_or_else(|| panic!("{event} in {lines:?}"))["owner"], lines[0]["owner"]);
    }
}

#[tokio::test]
async fn a_subscription_is_cancelled_and_answered_when_taskgate_stops() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": {} }));
    let acknowledged = stream.message().await;
    assert_eq!(acknowledged["params"]["notifications"], json!({}));
    let stopping = tokio::spawn(gate.stop());
    let cancelled = stream.message().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    let end = stream.message().await;
    assert_eq!(cancelled["params"]["requestId"], end["id"]);
    assert_eq!(end["result"]["resultType"], "complete", "{end}");
    assert_eq!(end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], end["id"]);
    soon(stopping).await.unwrap();
}

#[tokio::test]
async fn a_task_of_a_modern_client_is_drained_and_can_be_collected_meanwhile() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[server]\ndrain_timeout = \"10s\"\n[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await;
    let id = task["taskId"].as_str().unwrap().to_owned();
    let slow = upstream.held("slow").await;
    let stopping = tokio::spawn(gate.stop());
    slow.result(r#"{"content":[]}"#);
    assert_eq!(client.until(&id, "completed").await["result"]["content"], json!([]));
    soon(stopping).await.unwrap();
}

#[tokio::test]
async fn a_call_that_can_become_no_task_is_given_up_after_the_input_timeout_of_its_tool() {
    let upstream = Upstream::sse().await;
    let tool = "[upstream.tools.slow]\ninput_timeout = \"100ms\"\n";
    let gate = Gate::configured(&format!("[[upstream]]\nurl = {:?}\n{tool}", upstream.url())).await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let (_slow, _) = asked(&upstream, &client, &["q1"]).await;
    let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("input_timeout = 100ms"), "{answer:?}");
}
