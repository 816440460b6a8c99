//! The sessions with the server: kept apart by owner and by what the client can be asked.

use serde_json::json;

use crate::{
    client::{Modern, TASKS},
    kit::{Children, Client, Gate, Script, Upstream},
};

const USERS: &str =
    "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n[tasks]\ntask_after = \"0s\"\n";

fn user(gate: &Gate, name: &str) -> Modern {
    let client = Modern::with_tasks(&gate.url);
    Modern { http: client.http.with("x-user", name), ..client }
}

#[tokio::test]
async fn each_owner_and_each_set_of_capabilities_has_a_session_of_its_own() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, USERS).await;
    let (ann, bob) = (user(&gate, "ann"), user(&gate, "bob"));
    let able = Modern { capabilities: json!({ "sampling": {} }), ..ann.clone() };
    for client in [&ann, &bob, &able, &ann, &bob, &able] {
        client.result("tools/list", json!({})).await;
    }
    assert_eq!(upstream.count("initialize"), 3);
    let seen = upstream.seen();
    let lists = seen.iter().filter(|seen| seen.rpc() == "tools/list");
    let listed: Vec<_> = lists.map(|seen| seen.header("mcp-session-id").to_owned()).collect();
    assert_eq!((&listed[0], &listed[1], &listed[2]), (&listed[3], &listed[4], &listed[5]));
    assert!(listed[0] != listed[1] && listed[0] != listed[2] && listed[1] != listed[2]);
}

#[tokio::test]
async fn each_credential_has_a_session_of_its_own_in_whatever_header_it_comes() {
    for header in ["authorization", "cookie", "x-api-key"] {
        let upstream = Upstream::json().await;
        let gate = Gate::with(&upstream, "").await;
        let client = |credential: &str| {
            let client = Modern::plain(&gate.url);
            Modern { http: client.http.with(header, credential).with("x-trace", credential), ..client }
        };
        for credential in ["ann", "bob", "ann", "bob"] {
            client(credential).result("tools/list", json!({})).await;
        }
        let seen = upstream.seen();
        let lists = seen.iter().filter(|seen| seen.rpc() == "tools/list");
        let sessions: Vec<_> = lists.map(|seen| seen.header("mcp-session-id").to_owned()).collect();
        assert_eq!(upstream.count("initialize"), 2, "{header}");
        assert_eq!((&sessions[0], &sessions[1]), (&sessions[2], &sessions[3]), "{header}");
    }
}

#[tokio::test]
async fn a_task_is_its_owners_alone() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, USERS).await;
    let (ann, bob) = (user(&gate, "ann"), user(&gate, "bob"));
    let task = ann.call("slow").await;
    let id = task["taskId"].as_str().unwrap();
    let params = json!({ "taskId": id, "inputResponses": {} });
    let unknown = json!({ "taskId": "00000000-0000-4000-8000-000000000000", "inputResponses": {} });
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let refused = bob.refusal(method, params.clone()).await;
        assert_eq!(refused.1, -32602);
        assert_eq!(refused, bob.refusal(method, unknown.clone()).await, "as if there were none");
    }
    assert_eq!(ann.get(id).await["status"], "working");
}

#[tokio::test]
async fn where_no_name_is_known_a_task_is_for_the_client_that_knows_its_id() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let task = Modern::with_tasks(&gate.url).call("slow").await;
    let other = Modern::with_tasks(&gate.url);
    assert_eq!(other.get(task["taskId"].as_str().unwrap()).await["status"], "working");
}

#[tokio::test]
async fn a_task_keeps_the_process_that_its_call_has_for_itself() {
    for after in ["0s", "50ms"] {
        let children = Children::new(Script::default());
        let gate = children.gate(&format!("[tasks]\ntask_after = \"{after}\"\n")).await;
        let client = Modern::able(&gate.url, json!({ "elicitation": {}, "extensions": { TASKS: {} } }));
        assert_eq!(client.call("hold").await["resultType"], "task");
        let first = children.only().await;
        first.line("hold").await;
        let other = Modern::able(&gate.url, json!({ "elicitation": {} }));
        assert_ne!(other.call("pid").await["content"][0]["text"], json!(first.pid), "task_after = {after}");
    }
}

#[tokio::test]
async fn calls_that_have_a_session_each_are_counted_and_one_that_is_idle_gives_way() {
    let children = Children::new(Script::default());
    let gate = children.gate("[server]\nmax_sessions_per_owner = 1\n[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {}, "extensions": { TASKS: {} } }));
    let other = Modern::able(&gate.url, json!({ "sampling": {} }));
    other.call("pid").await;
    let first = children.only().await;
    let task = crate::kit::eventually(async || {
        let answer = client.answer("tools/call", json!({ "name": "hold" })).await.json();
        answer["result"]["taskId"].as_str().map(str::to_owned)
    })
    .await;
    first.gone().await;
    let (status, code, why) = other.refusal("tools/call", json!({ "name": "pid" })).await;
    assert_eq!((status, code), (200, -32603));
    assert!(why.contains("max_sessions_per_owner"), "{why}");
    assert_eq!(client.get(&task).await["status"], "working");
}

#[tokio::test]
async fn with_sessions_by_request_no_two_calls_have_one_and_each_ends() {
    let upstream = Upstream::json().await;
    let toml = format!("[[upstream]]\nurl = {:?}\nsessions = \"request\"\n", upstream.url());
    let gate = Gate::configured(&toml).await;
    let client = Modern::plain(&gate.url);
    for _ in 0..3 {
        client.call("echo").await;
    }
    assert_eq!(upstream.count("initialize"), 3);
    crate::kit::eventually(async || {
        (upstream.seen().iter().filter(|seen| seen.method == http::Method::DELETE).count() == 3).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_question_of_a_task_of_a_client_without_sessions_is_asked_of_no_other_client_of_its_owner() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, USERS).await;
    let other = Client::new(&gate.url).with("x-user", "ann");
    let other = other.initialize("2025-11-25", json!({ "roots": {} })).await;
    let mut stream = other.get_stream().await;
    let client = Modern { capabilities: json!({ "roots": {}, "extensions": { TASKS: {} } }), ..user(&gate, "ann") };
    let task = client.call("slow").await;
    let id = task["taskId"].as_str().unwrap();
    let slow = upstream.held("slow").await.sse();
    let roots = json!({ "jsonrpc": "2.0", "id": "q1", "method": "roots/list" });
    slow.event(&roots.to_string()).await;
    let asked = client.until(id, "input_required").await;
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    // Its stream tells that there are tasks, and when one of its own has ended nothing else has come.
    let own = other.create_id("slow").await;
    let its = upstream.held("slow").await;
    its.result(r#"{"content":[]}"#);
    loop {
        let told = stream.message().await;
        assert_eq!(told["method"], "notifications/tasks/status");
        if told["params"]["taskId"] == own {
            break;
        }
    }
    let answers = json!({ key: { "roots": [{ "uri": "file:///mine" }] } });
    client.result("tasks/update", json!({ "taskId": id, "inputResponses": answers })).await;
    let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    assert_eq!(answer.json()["result"]["roots"][0]["uri"], "file:///mine");
}
