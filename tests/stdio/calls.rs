//! What passes between a client and a well-behaved child.

use serde_json::{Value, json};

use crate::kit::{Children, Client, Script, status_of, text_in, text_of};

/// Asks the client something before it answers the call.
const ASKING: Script = Script {
    setup: "",
    tools: r#"*'"name":"ask"'*)
        asked=$id
        echo '{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"Really?"}}' ;;
    *'"id":"q-1"'*) text "$asked" answered ;;
    *'"name":"ask later"'*)
        text "$id" soon
        echo '{"jsonrpc":"2.0","id":"q-2","method":"roots/list"}' ;;"#,
    after: "",
};

#[tokio::test]
async fn each_session_has_a_child_of_its_own() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    assert!(children.started().is_empty(), "a child is started for a session, not before");
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let (of_ann, of_bob) = (text_of(&ann, "pid").await, text_of(&bob, "pid").await);
    assert_ne!(of_ann, of_bob);
    assert_eq!(text_of(&ann, "pid").await, of_ann);
    let mut pids: Vec<_> = children.started().into_iter().map(|child| child.pid).collect();
    pids.sort();
    let mut expected = [of_ann, of_bob];
    expected.sort();
    assert_eq!(pids, expected);
}

#[tokio::test]
async fn the_clients_name_and_capabilities_reach_the_child() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "roots": {} })).await;
    let child = children.only().await;
    let initialize = child.message("initialize").await;
    assert_eq!(initialize["params"]["clientInfo"], json!({ "name": "test-client", "version": "1.0" }));
    assert_eq!(initialize["params"]["capabilities"], json!({ "roots": {} }));
    child.line("notifications/initialized").await;
    assert_eq!(client.initialized["serverInfo"], json!({ "name": "sh", "version": "1" }));
    assert!(client.initialized["capabilities"]["tasks"].is_object());
}

#[tokio::test]
async fn calls_that_overlap_get_their_own_answers() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let caller = client.clone();
    let held = tokio::spawn(async move { text_of(&caller, "hold").await });
    children.only().await.line(r#""hold""#).await;
    assert_eq!(text_of(&client, "release").await, "done");
    assert_eq!(held.await.unwrap(), "released");
}

#[tokio::test]
async fn a_call_becomes_a_task_and_its_result_is_collected() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let id = client.create_id("hold").await;
    let call = children.only().await.message(r#""hold""#).await;
    assert_eq!(call["params"].get("task"), None, "{call}");
    assert_eq!(status_of(&client.get(&id).await), "working");
    text_of(&client, "release").await;
    client.until(&id, "completed").await;
    let result = client.collect(&id).await["result"].take();
    assert_eq!(text_in(&result), "released");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/related-task"], json!({ "taskId": id }));
}

#[tokio::test]
async fn cancelling_a_task_writes_a_cancelled_line_under_the_id_of_the_call() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let id = client.create_id("hold").await;
    let child = children.only().await;
    let call = child.message(r#""hold""#).await;
    assert_eq!(status_of(&client.cancel(&id).await), "cancelled");
    let cancelled = child.message("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
    // A child that still answers changes nothing.
    text_of(&client, "release").await;
    assert_eq!(status_of(&client.get(&id).await), "cancelled");
}

#[tokio::test]
async fn cancelling_a_plain_call_writes_a_cancelled_line_under_the_id_of_the_call() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let client_id = json!("a call of mine");
    let call = json!({ "jsonrpc": "2.0", "id": client_id, "method": "tools/call", "params": { "name": "hold" } });
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.post(call.to_string()).await });
    let child = children.only().await;
    let call = child.message(r#""hold""#).await;
    assert_ne!(call["id"], client_id);
    assert_eq!(client.notify("notifications/cancelled", json!({ "requestId": client_id })).await, 202);
    assert_eq!(child.message("notifications/cancelled").await["params"]["requestId"], call["id"]);
    text_of(&client, "release").await;
    calling.await.unwrap();
}

#[tokio::test]
async fn a_message_on_several_lines_is_written_as_one() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let body = "{\"id\":7,\r\n\"jsonrpc\":\"2.0\",\n\n\"method\":\"tools/call\",\n\"params\":{\"name\":\"pid\",\n\"arguments\":{\"text\":\"a\\nb\"}}}\n";
    let answer = client.post(body).await.json();
    let child = children.only().await;
    assert_eq!((&answer["id"], text_in(&answer["result"])), (&json!(7), child.pid.clone()));
    let written = child.message(r#""pid""#).await;
    assert_eq!(written["params"]["arguments"], json!({ "text": "a\nb" }));
    let methods: Vec<Value> = child.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(methods.len(), 3, "initialize, initialized and one call: {methods:?}");
}

#[tokio::test]
async fn a_request_of_the_child_within_a_call_reaches_the_client_and_the_answer_the_child() {
    let children = Children::new(ASKING);
    let gate = children.gate("").await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await;
    let mut call = client.stream("tools/call", json!({ "name": "ask" }));
    let question = call.message().await;
    assert_eq!(
        (&question["method"], &question["params"]["message"]),
        (&json!("elicitation/create"), &json!("Really?"))
    );
    assert_eq!(client.respond(&question["id"], json!({ "action": "accept", "content": {} })).await, 202);
    assert_eq!(text_in(&call.message().await["result"]), "answered");
    let answer = children.only().await.message("accept").await;
    assert_eq!((&answer["id"], &answer["result"]["action"]), (&json!("q-1"), &json!("accept")));
}

#[tokio::test]
async fn a_request_of_the_child_between_calls_reaches_the_get_stream() {
    let children = Children::new(ASKING);
    let gate = children.gate("").await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "roots": {} })).await;
    let mut listening = client.get_stream().await;
    assert_eq!(text_of(&client, "ask later").await, "soon");
    let question = listening.message().await;
    assert_eq!(question["method"], "roots/list");
    assert_eq!(client.respond(&question["id"], json!({ "roots": [] })).await, 202);
    let answer = children.only().await.message(r#""roots":[]"#).await;
    assert_eq!(answer["id"], "q-2");
}

/// Says that its tools have changed, in the middle of a call that goes on until it is released.
const CHANGING: Script = Script {
    setup: "",
    tools: r#"*'"name":"change"'*)
        held=$id
        echo '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}' ;;"#,
    after: "",
};

#[tokio::test]
async fn tools_list_changed_comes_on_the_get_stream_whatever_runs_and_names_no_task() {
    let children = Children::new(CHANGING);
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    // In a task, before any stream is open.
    let id = client.create_id("change").await;
    children.only().await.line(r#""change""#).await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    let mut listener = client.get_stream().await;
    assert_eq!(listener.message().await, changed);
    text_of(&client, "release").await;
    assert!(waiting.message().await["result"].is_object());
    assert_eq!(listener.message().await["method"], "notifications/tasks/status");
    // In a plain call.
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.answer("tools/call", json!({ "name": "change" })).await });
    assert_eq!(listener.message().await, changed);
    text_of(&client, "release").await;
    assert!(!calling.await.unwrap().is_stream());
}

#[tokio::test]
async fn tools_list_changed_comes_with_a_call_where_no_get_stream_is_open() {
    let children = Children::new(CHANGING);
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let mut call = client.stream("tools/call", json!({ "name": "change" }));
    assert_eq!(call.message().await["method"], "notifications/tools/list_changed");
    text_of(&client, "release").await;
    assert!(call.message().await["result"].is_object());
}
