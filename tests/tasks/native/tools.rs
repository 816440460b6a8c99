//! Which tools a server runs as tasks itself: what its lists say, and when taskgate asks.

use http::StatusCode;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{RELATED, house, options, passed, research, task};
use crate::kit::{Answers, Client, Gate, Options, Upstream};

/// Sends a call as a task that must be refused.
fn call(client: &Client, tool: &str) -> JoinHandle<(i64, String)> {
    let (client, params) = (client.clone(), json!({ "name": tool, "task": {} }));
    tokio::spawn(async move { client.error("tools/call", params).await })
}

#[tokio::test]
async fn tools_that_the_server_lists_with_tasks_keep_them_and_all_others_get_taskgates() {
    for answers in [Answers::Json, Answers::Sse] {
        let (upstream, _gate, client) = house(Options { answers, ..options() }, "").await;
        let list = client.ask("tools/list", json!({})).await;
        let mut expected = options().tools;
        for at in [2, 3] {
            expected[at]["execution"] = json!({ "taskSupport": "optional" });
        }
        assert_eq!(list["tools"], expected);
        research(&upstream, &client, json!({})).await;
        let id = client.create_id("echo").await;
        client.until(&id, "completed").await;
        let seen = upstream.wait_for(|seen| seen.json()["params"]["name"] == "echo").await;
        assert_eq!(seen.json()["params"].get("task"), None);
        assert_eq!(upstream.count("tools/list"), 1, "the client's list has told");
        assert_eq!(upstream.count("tasks/get"), 0);
    }
}

#[tokio::test]
async fn before_any_list_taskgate_asks_for_all_pages_once_and_again_after_a_change() {
    let (upstream, _gate, client) = house(options(), "").await;
    upstream.hold("tools/list");
    let stream = upstream.get_stream().await;
    for round in 0..2 {
        let calls = ["research", "research"].map(|tool| {
            let client = client.clone();
            tokio::spawn(async move { client.request("tools/call", json!({ "name": tool, "task": {} })).await })
        });
        let first = upstream.held("tools/list").await;
        assert_eq!(first.seen.json()["params"].get("cursor"), None);
        first.result(r#"{"tools":[{"name":"echo"}],"nextCursor":"two"}"#);
        let second = upstream.held("tools/list").await;
        assert_eq!(second.seen.json()["params"]["cursor"], "two");
        second.result(r#"{"tools":[{"name":"research","execution":{"taskSupport":"optional"}}]}"#);
        for call in calls {
            upstream.held("research").await.result(&json!({ "task": task("theirs", "working") }).to_string());
            assert_eq!(call.await.unwrap()["result"]["task"]["taskId"], "theirs");
        }
        let id = client.create_id("echo").await;
        client.until(&id, "completed").await;
        assert_eq!(upstream.count("tools/list"), 2 * (round + 1));
        stream.notify("notifications/tools/list_changed", json!({})).await;
        client.get_stream().await.message().await;
    }
}

#[tokio::test]
async fn a_call_is_refused_and_not_sent_where_the_server_does_not_list_its_tools() {
    let (upstream, _gate, client) = house(options(), "").await;
    upstream.hold("tools/list");
    for (answer, words) in [(r#"{"x":1}"#, "has no tools"), (r#"{"tools":7}"#, "not a list")] {
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.error("tools/call", json!({ "name": "echo", "task": {} })).await }
        });
        upstream.held("tools/list").await.result(answer);
        let (code, message) = asked.await.unwrap();
        assert_eq!(code, -32603);
        assert!(message.contains("tools/list does not tell") && message.contains(words), "{message}");
    }
    let refusing = async { upstream.held("tools/list").await.status(401, &[("www-authenticate", "Bearer x")], "") };
    let answer = client.answer("tools/call", json!({ "name": "echo", "task": {} }));
    let (answer, ()) = tokio::join!(answer, refusing);
    assert_eq!((answer.status, answer.header("www-authenticate")), (StatusCode::UNAUTHORIZED, "Bearer x"));
    assert_eq!(upstream.count("tools/call"), 0);
}

#[tokio::test]
async fn a_tool_that_is_only_called_plainly_needs_no_list() {
    let (upstream, _gate, client) = house(options(), "").await;
    client.ask("tools/call", json!({ "name": "echo", "arguments": {} })).await;
    assert_eq!(upstream.count("tools/list"), 0);
}

#[tokio::test]
async fn forbidden_and_required_in_the_policy_hold_for_the_servers_tasks_too() {
    let policy = "[[upstream]]\n[upstream.tools.research]\nsupport = \"forbidden\"\n[upstream.tools.maybe]\nsupport = \"required\"";
    let (upstream, _gate, client) = house(options(), policy).await;
    let list = client.ask("tools/list", json!({})).await;
    let support = |at: usize| list["tools"][at]["execution"]["taskSupport"].clone();
    assert_eq!([support(0), support(1)], ["forbidden", "required"]);
    let refused = [json!({ "name": "research", "task": {} }), json!({ "name": "maybe" })];
    for params in refused {
        assert_eq!(client.error("tools/call", params).await.0, -32601);
    }
    assert_eq!(upstream.count("tools/call"), 0);
    let params = json!({ "name": "maybe", "task": {} });
    let created = json!({ "task": task("theirs", "working") });
    assert_eq!(passed(&upstream, &client, "maybe", params, created.clone()).await.0, created);
}

#[tokio::test]
async fn calls_beyond_those_that_may_wait_for_the_servers_list_are_refused() {
    let (upstream, _gate, client) = house(options(), "").await;
    upstream.hold("tools/list");
    let mut calls: Vec<_> = (0..65).map(|_| call(&client, "echo")).collect();
    let (code, message) = futures_util::future::select_all(&mut calls).await.0.unwrap();
    assert!(code == -32603 && message.contains("limit reached: 64 calls of the session wait"), "{message}");
    assert_eq!((upstream.count("tools/list"), upstream.count("tools/call")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn taskgate_waits_half_a_minute_for_the_servers_list() {
    let (upstream, _gate, client) = house(options(), "").await;
    upstream.hold("tools/list");
    let calling = client.stream("tools/call", json!({ "name": "echo", "task": {} }));
    let held = upstream.held("tools/list").await;
    let error = calling.last().await["error"].take();
    assert!(error["message"].as_str().unwrap().contains("did not answer within 30s"), "{error}");
    held.abandoned().await;
    assert_eq!(upstream.count("tools/call"), 0);
}

#[tokio::test]
async fn an_endless_list_of_tools_is_given_up_after_a_hundred_pages() {
    let (upstream, _gate, client) = house(options(), "").await;
    upstream.hold("tools/list");
    let calling = call(&client, "echo");
    for _ in 0..100 {
        upstream.held("tools/list").await.result(r#"{"tools":[],"nextCursor":"again"}"#);
    }
    let (code, message) = calling.await.unwrap();
    assert!(code == -32603 && message.contains("more than 100 pages"), "{message}");
    assert_eq!((upstream.count("tools/list"), upstream.count("tools/call")), (100, 0));
}

#[tokio::test]
async fn a_question_while_taskgate_asks_for_the_list_belongs_to_the_only_task() {
    let upstream = Upstream::start(options()).await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await;
    let (theirs, mut stream) = (upstream.get_stream().await, client.get_stream().await);
    let id = client.create_id("slow").await;
    let _slow = upstream.held("slow").await;
    theirs.notify("notifications/tools/list_changed", json!({})).await;
    assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
    upstream.hold("tools/list");
    let calling = call(&client, "echo");
    let list = upstream.held("tools/list").await;
    let params = json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } });
    let question = json!({ "jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params });
    theirs.event(&question.to_string()).await;
    let asked = loop {
        let message = stream.message().await;
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    assert_eq!(asked["params"]["_meta"][RELATED]["taskId"], *id);
    list.result("{}");
    assert_eq!(calling.await.unwrap().0, -32603);
}
