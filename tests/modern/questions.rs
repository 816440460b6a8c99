//! What the server asks: as an answer of its own before a task exists, at the task afterwards.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    client::{Modern, TASKS},
    kit::{Gate, Sse, Upstream, soon},
};

/// On a busy machine a question may take longer to come than the second after which a call is a task.
const NO_TASK: &str = "[tasks]\ntask_after = \"10m\"\n";

fn able() -> Value {
    json!({ "elicitation": {}, "sampling": {}, "roots": {}, "extensions": { TASKS: {} } })
}

pub(crate) async fn asks(slow: &Sse, id: &str, message: &str) {
    let params = json!({ "message": message, "requestedSchema": { "type": "object", "properties": {} } });
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params });
    slow.event(&request.to_string()).await;
}

async fn house(toml: &str) -> (Upstream, Gate, Modern) {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, toml).await;
    let client = Modern::able(&gate.url, able());
    (upstream, gate, client)
}

/// A call that has asked, the server's end of it, and the key of the question.
pub(crate) async fn asked(upstream: &Upstream, client: &Modern) -> (Sse, Value, String) {
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let slow = upstream.held("slow").await.sse();
    asks(&slow, "q1", "Who?").await;
    let result = soon(calling).await.unwrap();
    let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    (slow, result, key)
}

pub(crate) fn retry(result: &Value, answers: &Value) -> Value {
    json!({ "name": "slow", "arguments": {}, "requestState": result["requestState"], "inputResponses": answers })
}

#[tokio::test]
async fn a_question_is_answered_by_a_retry_that_goes_on_with_the_very_call_that_asked() {
    let (upstream, _gate, client) = house(NO_TASK).await;
    let (slow, result, key) = asked(&upstream, &client).await;
    assert_eq!(result["resultType"], "input_required");
    assert_eq!(result["inputRequests"][&key]["method"], "elicitation/create");
    assert_eq!(result["inputRequests"][&key]["params"]["message"], "Who?");
    let retrying = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move {
            client.result("tools/call", retry(&result, &json!({ key: { "action": "accept", "content": {} } }))).await
        }
    });
    let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    assert_eq!(answer.json()["result"]["action"], "accept");
    slow.result(r#"{"content":[{"type":"text","text":"you"}]}"#).await;
    assert_eq!(soon(retrying).await.unwrap()["content"][0]["text"], "you");
    assert_eq!(upstream.count("slow"), 1, "it ran once");
}

#[tokio::test]
async fn an_answer_that_the_server_does_not_take_as_it_has_forgotten_the_session_ends_the_call() {
    let (upstream, _gate, client) = house(NO_TASK).await;
    let (_slow, result, key) = asked(&upstream, &client).await;
    upstream.forget_sessions();
    client.call("echo").await;
    let answers = json!({ key: { "action": "accept", "content": {} } });
    let error = soon(client.refusal("tools/call", retry(&result, &answers))).await;
    assert_eq!((error.0, error.1), (200, -32603), "{error:?}");
    assert_eq!(upstream.count("slow"), 1, "it ran once");
}

#[tokio::test]
async fn questions_that_come_together_are_asked_together_and_those_that_are_not_answered_again() {
    let (upstream, _gate, client) = house(NO_TASK).await;
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let slow = upstream.held("slow").await.sse();
    asks(&slow, "q1", "one").await;
    asks(&slow, "q2", "two").await;
    let first = soon(calling).await.unwrap();
    let requests = first["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 2, "{first}");
    let key_of = |message: &str| requests.iter().find(|(_, it)| it["params"]["message"] == message).unwrap().0.clone();
    let (one, two) = (key_of("one"), key_of("two"));
    let answers = json!({ one: { "action": "decline" }, "unknown": { "action": "accept" } });
    let second = client.result("tools/call", retry(&first, &answers)).await;
    assert_eq!(second["resultType"], "input_required");
    assert_eq!(second["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), [&two]);
    assert_ne!(second["requestState"], first["requestState"]);
    let last = tokio::spawn({
        let client = client.clone();
        async move { client.result("tools/call", retry(&second, &json!({ two: { "action": "cancel" } }))).await }
    });
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q2").await;
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(soon(last).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn an_answer_that_is_no_result_of_its_question_is_32602_and_the_question_stays_open() {
    let (upstream, gate, client) = house(NO_TASK).await;
    let (slow, result, key) = asked(&upstream, &client).await;
    let retried = retry(&result, &json!({ &key: { "action": "yes!" } }));
    let (_, code, message) = client.refusal("tools/call", retried).await;
    assert!(code == -32602 && message.contains(&key) && message.contains("an action"), "{message}");
    let retrying = tokio::spawn({
        let answers = json!({ "unknown": 5, &key: { "action": "accept", "content": {} } });
        let (client, retried) = (client.clone(), retry(&result, &answers));
        async move { client.result("tools/call", retried).await }
    });
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    slow.result(r#"{"content":[]}"#).await;
    soon(retrying).await.unwrap();

    let at_once = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::able(&at_once.url, able());
    let task = client.call("slow").await;
    let id = task["taskId"].as_str().unwrap();
    let slow = upstream.held("slow").await.sse();
    asks(&slow, "q2", "Who?").await;
    let waiting = client.until(id, "input_required").await;
    let key = waiting["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let update = |answers: Value| json!({ "taskId": id, "inputResponses": answers });
    assert_eq!(client.refusal("tasks/update", update(json!({ key: { "action": 7 } }))).await.1, -32602);
    assert_eq!(client.get(id).await["status"], "input_required");
    client.result("tasks/update", update(json!({ "unknown": 5, key: { "action": "cancel" } }))).await;
    let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q2").await;
    assert_eq!(answer.json()["result"], json!({ "action": "cancel" }));
    drop(gate);
}

#[tokio::test]
async fn a_client_is_asked_to_elicit_to_sample_and_for_roots_and_nothing_else() {
    for toml in ["", "[tasks]\ntask_after = \"0s\"\n"] {
        let (upstream, _gate, client) = house(toml).await;
        let calling = tokio::spawn({
            let client = client.clone();
            async move { client.call("slow").await }
        });
        let slow = upstream.held("slow").await.sse();
        for (id, request, code) in [
            ("q1", json!({ "method": "acme/doThing", "params": { "x": 1 } }), -32601),
            ("q2", json!({ "method": "tasks/list" }), -32601),
            ("q3", json!({ "method": "elicitation/create" }), -32602),
        ] {
            let mut request = request;
            (request["jsonrpc"], request["id"]) = (json!("2.0"), json!(id));
            slow.event(&request.to_string()).await;
            let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == id).await;
            assert_eq!(answer.json()["error"]["code"], code, "{answer:?}");
        }
        slow.result(r#"{"content":[]}"#).await;
        let answer = soon(calling).await.unwrap();
        if let Some(id) = answer["taskId"].as_str() {
            client.until(id, "completed").await;
        } else {
            assert_eq!(answer["resultType"], "complete");
        }
    }
}

#[tokio::test]
async fn a_request_state_is_good_once_and_for_its_own_request_alone() {
    let (upstream, gate, client) = house(NO_TASK).await;
    let (slow, result, key) = asked(&upstream, &client).await;
    let answers = json!({ key: { "action": "accept", "content": {} } });
    let good = retry(&result, &answers);
    let mut other_arguments = good.clone();
    other_arguments["arguments"] = json!({ "x": 1 });
    let mut tampered = good.clone();
    tampered["requestState"] = json!(format!("{}A", good["requestState"].as_str().unwrap()));
    for wrong in [other_arguments, tampered] {
        let (status, code, _) = client.refusal("tools/call", wrong).await;
        assert_eq!((status, code), (200, -32602));
    }
    let stranger = Modern::able(&gate.url, able());
    let mut prompt = good.clone();
    prompt["name"] = json!("another");
    assert_eq!(stranger.refusal("prompts/get", prompt).await.1, -32602);
    let retrying = tokio::spawn({
        let (client, good) = (client.clone(), good.clone());
        async move { client.result("tools/call", good).await }
    });
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    assert_eq!(client.refusal("tools/call", good).await.1, -32602, "it was used");
    slow.result(r#"{"content":[]}"#).await;
    soon(retrying).await.unwrap();
}

#[tokio::test]
async fn an_error_that_sends_the_user_to_pages_asks_for_them_and_the_retry_is_a_call_of_its_own() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::able(&gate.url, json!({ "elicitation": { "url": {} } }));
    let call = |params: Value| {
        let client = client.clone();
        tokio::spawn(async move { client.result("tools/call", params).await })
    };
    let first = call(json!({ "name": "slow", "arguments": {} }));
    let page = r#"{"mode":"url","elicitationId":"1","url":"https://example.com/connect","message":"Connect"}"#;
    let error = format!(r#"{{"code":-32042,"message":"go","data":{{"elicitations":[{page}]}}}}"#);
    upstream.held("slow").await.error(&error);
    let asked = soon(first).await.unwrap();
    assert_eq!(asked["resultType"], "input_required");
    let (key, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let params = json!({ "mode": "url", "message": "Connect", "url": "https://example.com/connect" });
    assert_eq!(*request, json!({ "method": "elicitation/create", "params": params }));
    // It goes on with no call that was parked.
    assert!(asked.get("requestState").is_none(), "{asked}");
    for (action, code) in [("decline", -32603), ("cancel", -32603), ("perhaps", -32602)] {
        let answers = json!({ key: { "action": action } });
        let refused =
            client.refusal("tools/call", json!({ "name": "slow", "arguments": {}, "inputResponses": answers }));
        assert_eq!(refused.await.1, code, "{action}");
    }
    assert_eq!(upstream.count("slow"), 1, "the server would only send the user there again");
    let answers = json!({ key: { "action": "accept" } });
    let again = call(json!({ "name": "slow", "arguments": {}, "inputResponses": answers }));
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    assert_eq!(soon(again).await.unwrap()["resultType"], "complete");
    assert_eq!(upstream.count("slow"), 2);
}

#[tokio::test]
async fn a_client_that_never_comes_back_gives_the_call_up_after_input_timeout_or_the_timeout_of_its_tool() {
    for (limit, name) in [("input_timeout = \"100ms\"", "within input_timeout"), ("timeout = \"2s\"", "within timeout")]
    {
        let (upstream, _gate, client) = house(&format!("{NO_TASK}{limit}\n")).await;
        let (_slow, result, key) = asked(&upstream, &client).await;
        let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(name), "{answer:?}");
        upstream.wait_for_message("notifications/cancelled").await;
        let late = retry(&result, &json!({ key: { "action": "accept" } }));
        assert_eq!(client.refusal("tools/call", late).await.1, -32602);
    }
}

#[tokio::test]
async fn a_result_that_came_while_its_client_was_asked_is_there_after_the_timeout_of_the_call() {
    let (upstream, _gate, client) = house(&format!("{NO_TASK}timeout = \"4s\"\n")).await;
    let (slow, result, key) = asked(&upstream, &client).await;
    slow.result(r#"{"content":[{"type":"text","text":"paid"}]}"#).await;
    tokio::time::sleep(Duration::from_millis(4200)).await;
    let retry = client.result("tools/call", retry(&result, &json!({ key: { "action": "accept" } }))).await;
    assert_eq!(retry["content"][0]["text"], "paid");
}

#[tokio::test]
async fn a_question_of_a_task_stands_at_the_task_and_is_answered_there() {
    let (upstream, _gate, client) = house("[tasks]\ntask_after = \"0s\"\n").await;
    let task = client.call("slow").await;
    let id = task["taskId"].as_str().unwrap();
    let slow = upstream.held("slow").await.sse();
    asks(&slow, "q1", "Who?").await;
    let waiting = client.until(id, "input_required").await;
    let key = waiting["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let update = |answers: Value| client.result("tasks/update", json!({ "taskId": id, "inputResponses": answers }));
    assert_eq!(update(json!({ "unknown": { "x": 1 } })).await["resultType"], "complete");
    assert_eq!(client.get(id).await["status"], "input_required");
    assert_eq!(update(json!({ &key: { "action": "accept", "content": {} } })).await["resultType"], "complete");
    assert_eq!(client.get(id).await["status"], "working", "the very next poll");
    let ignored = update(json!({ &key: { "action": "decline" } })).await;
    assert_eq!(ignored["resultType"], "complete", "what is answered is ignored");
    let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    assert_eq!(answer.json()["result"]["action"], "accept");
    asks(&slow, "q2", "And who else?").await;
    let waiting = client.until(id, "input_required").await;
    let next: Vec<_> = waiting["inputRequests"].as_object().unwrap().keys().collect();
    assert!(next.len() == 1 && *next[0] != key, "a key is never used again: {waiting}");
    slow.result(r#"{"content":[]}"#).await;
    client.until(id, "completed").await;
    let answers = upstream.seen();
    assert_eq!(answers.iter().filter(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").count(), 1);
}

#[tokio::test]
async fn a_call_that_asked_becomes_a_task_only_after_its_client_has_answered() {
    let (upstream, _gate, client) = house("[tasks]\ntask_after = \"3s\"\n").await;
    client.call("echo").await;
    let (slow, result, key) = asked(&upstream, &client).await;
    assert_eq!(result["resultType"], "input_required");
    let task = client.result("tools/call", retry(&result, &json!({ key: { "action": "accept" } }))).await;
    assert_eq!(task["resultType"], "task");
    slow.result(r#"{"content":[]}"#).await;
    client.until(task["taskId"].as_str().unwrap(), "completed").await;
}

#[tokio::test]
async fn a_call_that_fails_for_want_of_a_capability_says_which() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let calling = tokio::spawn(async move { client.answer("tools/call", json!({ "name": "slow" })).await });
    let slow = upstream.held("slow").await.sse();
    asks(&slow, "q1", "Who?").await;
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    slow.result(r#"{"isError":true,"content":[{"type":"text","text":"no \"name\""}]}"#).await;
    let answer = soon(calling).await.unwrap();
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (400, &json!(-32021)));
    assert_eq!(answer.json()["error"]["data"]["requiredCapabilities"], json!({ "elicitation": { "form": {} } }));
    assert!(answer.refusal().2.ends_with(r#"needs elicitation.form; it failed with "no \"name\"""#));
}

#[tokio::test]
async fn a_call_that_goes_on_after_a_question_that_it_could_not_ask_fails_with_its_own_words() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let params = json!({ "name": "slow", "_meta": { "progressToken": "mine" } });
    let calling = tokio::spawn(async move { client.result("tools/call", params).await });
    let slow = upstream.held("slow").await.sse();
    asks(&slow, "q1", "Who?").await;
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    slow.progress(1).await;
    slow.result(r#"{"isError":true,"content":[{"type":"text","text":"no disk"}]}"#).await;
    assert_eq!(soon(calling).await.unwrap()["content"][0]["text"], "no disk");
}

#[tokio::test]
async fn a_retry_without_the_extension_is_never_answered_with_a_task_nor_asked_what_it_does_not_declare() {
    let (upstream, gate, client) = house("[tasks]\ntask_after = \"3s\"\n").await;
    client.call("echo").await;
    let (slow, result, key) = asked(&upstream, &client).await;
    let plain = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let retrying = tokio::spawn(async move {
        plain.result("tools/call", retry(&result, &json!({ key: { "action": "accept", "content": {} } }))).await
    });
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    let roots = json!({ "jsonrpc": "2.0", "id": "q2", "method": "roots/list" });
    slow.event(&roots.to_string()).await;
    let refused = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q2").await;
    assert!(refused.json()["error"].is_object(), "{refused:?}");
    // A later call of a client with the extension becomes a task.
    let witness = tokio::spawn(async move { client.call("slow").await });
    let _witnessed = upstream.held("slow").await;
    assert_eq!(soon(witness).await.unwrap()["resultType"], "task");
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(soon(retrying).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn a_question_that_is_withdrawn_at_once_is_not_asked() {
    let (upstream, _gate, client) = house(NO_TASK).await;
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let slow = upstream.held("slow").await.sse();
    asks(&slow, "q1", "Who?").await;
    slow.notify("notifications/cancelled", json!({ "requestId": "q1" })).await;
    slow.event(r#"{"jsonrpc":"2.0","id":"p1","method":"ping"}"#).await;
    // By then taskgate has heard of both, and a later question of another call is asked.
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "p1").await;
    let (_witness, result, _) = asked(&upstream, &client).await;
    assert_eq!(result["resultType"], "input_required");
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(soon(calling).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn no_client_is_asked_in_the_course_of_a_request_that_has_no_retry() {
    let (upstream, _gate, client) = house(NO_TASK).await;
    upstream.hold("tools/list");
    let listing = tokio::spawn(async move { client.result("tools/list", json!({})).await });
    let list = upstream.held("tools/list").await.sse();
    asks(&list, "q1", "Who?").await;
    let refused = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    assert!(refused.json()["error"].is_object(), "{refused:?}");
    list.result(r#"{"tools":[]}"#).await;
    assert_eq!(soon(listing).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn a_retry_with_a_progress_token_that_no_notification_may_have_is_refused_and_can_be_made_again() {
    let (upstream, _gate, client) = house(NO_TASK).await;
    let (slow, result, key) = asked(&upstream, &client).await;
    let retry = retry(&result, &json!({ key: { "action": "accept", "content": {} } }));
    for token in [json!({ "a": 1 }), json!("t".repeat(5000))] {
        let mut malformed = retry.clone();
        malformed["_meta"] = json!({ "progressToken": token });
        let (_, code, message) = client.refusal("tools/call", malformed).await;
        assert!(code == -32602 && message.contains("the progress token"), "{message}");
    }
    let retrying = tokio::spawn(async move { client.result("tools/call", retry).await });
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q1").await;
    slow.result(r#"{"content":[{"type":"text","text":"you"}]}"#).await;
    assert_eq!(soon(retrying).await.unwrap()["content"][0]["text"], "you");
}
