//! A client of a stdio server has one process for its lists, its subscriptions and its calls one after the other.

use serde_json::json;

use crate::{
    client::Modern,
    kit::{Children, Script, eventually, soon},
};

/// Lists are answered after the question of a call, which the call needs an answer to.
const SCRIPT: Script = Script {
    setup: r#"
ask() { printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}\n'; }
"#,
    tools: r#"
    *'"method":"initialize"'*)
        reply "$id" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"sh","version":"1"}}' ;;
    *'"cursor":"bad"'*) printf '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what cursor?"}}\n' ;;
    *'"cursor":"release"'*) text "$held" released; reply "$id" '{"tools":[]}' ;;
    *'"method":"tools/list"'*) list=$id ;;
    *'"name":"ask"'*) asked=$id; ask ;;
    *'"action":"accept"'*) text "$asked" answered; reply "$list" '{"tools":[]}' ;;
    *'"name":"change"'*) printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'; text "$id" changed ;;
"#,
    after: "",
};

#[tokio::test]
async fn a_question_is_that_of_the_call_although_a_list_is_asked_for_in_the_same_process() {
    let children = Children::new(SCRIPT);
    let gate = children.gate("").await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let listing = tokio::spawn({
        let client = client.clone();
        async move { client.result("tools/list", json!({})).await }
    });
    children.only().await.line("tools/list").await;
    let asked = client.call("ask").await;
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let answers = json!({ key: { "action": "accept", "content": {} } });
    let retry =
        json!({ "name": "ask", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers });
    assert_eq!(client.result("tools/call", retry).await["content"][0]["text"], "answered");
    assert_eq!(soon(listing).await.unwrap()["tools"], json!([]));
    children.only().await;
}

#[tokio::test]
async fn a_subscription_hears_of_what_a_call_changes() {
    let children = Children::new(SCRIPT);
    let gate = children.gate("").await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let mut stream = client.stream("subscriptions/listen", wanted);
    assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(client.call("change").await["content"][0]["text"], "changed");
    assert_eq!(stream.message().await["method"], "notifications/tools/list_changed");
    children.only().await;
}

#[tokio::test]
async fn an_error_without_an_id_ends_a_list_that_is_alone_and_never_a_call_beside_it() {
    let children = Children::new(SCRIPT);
    let gate = children.gate("").await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let (_, code, _) = client.refusal("tools/list", json!({ "cursor": "bad" })).await;
    assert_eq!(code, -32600);
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("hold").await }
    });
    let child = children.only().await;
    child.line("hold").await;
    let listing = tokio::spawn({
        let client = client.clone();
        async move { client.answer("tools/list", json!({ "cursor": "bad" })).await }
    });
    eventually(async || (child.lines().iter().filter(|line| line.contains("\"bad\"")).count() == 2).then_some(()))
        .await;
    listing.abort();
    client.result("tools/list", json!({ "cursor": "release" })).await;
    assert_eq!(soon(calling).await.unwrap()["content"][0]["text"], "released");
}

#[tokio::test]
async fn a_list_that_its_client_has_left_leaves_the_process_to_the_calls() {
    let children = Children::new(SCRIPT);
    let gate = children.gate("").await;
    let client = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let leaving = tokio::spawn({
        let client = client.clone();
        async move { client.answer("tools/list", json!({})).await }
    });
    let child = children.only().await;
    child.line("tools/list").await;
    leaving.abort();
    child.line("notifications/cancelled").await;
    assert_eq!(client.call("pid").await["content"][0]["text"], json!(child.pid));
}

/// Asks more at once than may wait for one reader, in one write.
const BURST: Script = Script {
    setup: r#"
for n in 0 1 2 3 4 5 6 7 8 9; do for m in 0 1 2 3 4 5; do
    printf '{"jsonrpc":"2.0","id":"q%s%s","method":"elicitation/create","params":{"message":"%0900d","requestedSchema":{"type":"object","properties":{}}}}\n' $n $m 0
done; done >"$dir/burst"
"#,
    tools: r#"
    *'"name":"burst"'*) cat "$dir/burst" ;;
    *'"name":"late"'*) printf '{"jsonrpc":"2.0","id":"late","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}\n'; text "$id" asked ;;
"#,
    after: "",
};

#[tokio::test]
async fn a_call_that_taskgate_gives_up_is_cancelled_in_its_server_also_as_a_task() {
    for config in ["", "[tasks]\ntask_after = \"0s\"\n"] {
        let children = Children::new(BURST);
        let gate = children.gate(&format!("[server]\nmax_outbox = \"16KiB\"\n{config}")).await;
        let tasks = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let client = Modern::able(&gate.url, tasks);
        let called = client.answer("tools/call", json!({ "name": "burst", "arguments": {} })).await;
        let why = match called.json()["result"]["taskId"].as_str() {
            Some(id) => client.until(id, "failed").await["error"]["message"].to_string(),
            None => called.json()["error"]["message"].to_string(),
        };
        assert!(why.contains("does not read what the server sends it"), "{why}");
        let child = children.only().await;
        let call = child.message("\"name\":\"burst\"").await;
        assert_eq!(child.message("notifications/cancelled").await["params"]["requestId"], call["id"]);
    }
}
