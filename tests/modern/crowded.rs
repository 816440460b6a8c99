//! At `max_children` a call waits for a process that is used no longer: its owner's, or any other that leaves its place.

use serde_json::{Value, json};

use crate::{
    client::Modern,
    kit::{Children, Client, Gate, Script, eventually, soon, text_of},
};

const SCRIPT: Script = Script {
    setup: r#"
ask() { printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}\n'; }
"#,
    tools: r#"
    *'"name":"ask"'*) asked=$id; ask ;;
    *'"action":"accept"'*) text "$asked" answered ;;
"#,
    after: "",
};

const ONE_CHILD: &str = r#"
[server]
admin = "127.0.0.1:0"
[auth]
mode = "header"
header = "x-user"
trusted_peers = ["127.0.0.1"]
[[upstream]]
max_children = 1
"#;

fn able(gate: &Gate, user: &str) -> Modern {
    let client = Modern::able(&gate.url, json!({ "elicitation": {} }));
    Modern { http: client.http.with("x-user", user), ..client }
}

/// Returns the retry that answers what a call has asked.
fn retry(asked: &Value) -> Value {
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let answers = json!({ key: { "action": "accept", "content": {} } });
    json!({ "name": "ask", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers })
}

/// Has `user` call while a call of ann has the only process, and ends that one. Returns the process of each.
async fn processes(user: &str) -> [String; 2] {
    let children = Children::new(SCRIPT);
    let gate = children.gate(ONE_CHILD).await;
    let ann = able(&gate, "ann");
    let first = ann.call("pid").await["content"][0]["text"].as_str().unwrap().to_owned();
    let asked = ann.call("ask").await;
    let other = able(&gate, user);
    let waiting = tokio::spawn(async move { other.call("pid").await });
    let metrics = Client::new(&format!("{}/metrics", gate.admin.as_ref().unwrap()));
    eventually(async || {
        let metrics = metrics.send(http::Method::GET, "").await;
        metrics.text().contains("taskgate_sessionless_requests 2\n").then_some(())
    })
    .await;
    assert_eq!(ann.result("tools/call", retry(&asked)).await["content"][0]["text"], "answered");
    let second = soon(waiting).await.unwrap()["content"][0]["text"].as_str().unwrap().to_owned();
    [first, second]
}

#[tokio::test]
async fn a_call_that_waits_gets_the_process_of_its_owner_that_becomes_free() {
    let [first, second] = processes("ann").await;
    assert_eq!(first, second);
}

#[tokio::test]
async fn a_call_that_waits_gets_the_place_of_another_owners_process_that_is_used_no_longer() {
    let [first, second] = processes("bob").await;
    assert_ne!(first, second);
}

#[tokio::test]
async fn several_calls_find_out_one_after_the_other_that_the_server_dies_of_the_question_for_its_generation() {
    let dies = r#"
    *'"method":"server/discover"'*) exit 3 ;;
"#;
    let children = Children::new(Script { tools: dies, ..SCRIPT });
    let gate = children.gate(ONE_CHILD).await;
    let calls = ["ann", "bob", "eve"].map(|user| {
        let client = able(&gate, user);
        async move { client.call("pid").await }
    });
    for result in soon(futures_util::future::join_all(calls)).await {
        assert!(result["content"][0]["text"].is_string(), "{result}");
    }
}

#[tokio::test]
async fn the_unused_process_of_a_client_with_a_session_gives_way_to_a_call_without_one_and_the_other_way_round() {
    let children = Children::new(SCRIPT);
    let gate = children.gate(ONE_CHILD).await;
    let (ann, bob) = (able(&gate, "ann"), Client::new(&gate.url).with("x-user", "bob"));
    for _ in 0..2 {
        let session = bob.clone().initialize("2025-11-25", json!({})).await;
        text_of(&session, "pid").await;
        assert!(ann.call("pid").await["content"][0]["text"].is_string());
        assert_eq!(session.answer("ping", json!({})).await.status, 404);
    }
}
