//! What a modern server asks: it passes to the client of a plain call, and stands at a task.

use serde_json::{Value, json};

use crate::{
    client::{Modern, TASKS},
    kit::{Client, Gate, Upstream, soon},
};

const ASKS: &str = r#"{"resultType":"input_required","requestState":"state 1","inputRequests":{"name":{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{}}}}}}"#;
const AT_ONCE: &str = "[tasks]\ntask_after = \"0s\"\n";

fn able(gate: &Gate) -> Modern {
    Modern::able(&gate.url, json!({ "elicitation": {}, "sampling": {}, "extensions": { TASKS: {} } }))
}

/// Returns the only question of a task, with its key.
fn question(task: &Value) -> (String, Value) {
    let mut requests = task["inputRequests"].as_object().unwrap().iter();
    let (key, request) = requests.next().unwrap();
    assert!(requests.next().is_none(), "{task}");
    (key.clone(), request.clone())
}

#[tokio::test]
async fn a_question_of_a_plain_call_and_its_retry_pass_as_they_are() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    let client = able(&gate);
    let asked = tokio::spawn({
        let client = client.clone();
        async move { client.call("ask").await }
    });
    upstream.held("ask").await.result(ASKS);
    assert_eq!(soon(asked).await.unwrap(), serde_json::from_str::<Value>(ASKS).unwrap());
    let answers = json!({ "name": { "action": "accept", "content": {} } });
    let params = json!({ "name": "ask", "arguments": {}, "inputResponses": answers, "requestState": "state 1" });
    let retried = tokio::spawn({
        let client = client.clone();
        async move { client.result("tools/call", params).await }
    });
    let retry = upstream.held("ask").await;
    let sent = retry.seen.json()["params"].clone();
    assert_eq!((&sent["inputResponses"], &sent["requestState"]), (&answers, &json!("state 1")));
    retry.result(r#"{"resultType":"complete","content":[]}"#);
    assert_eq!(soon(retried).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn a_question_of_a_task_stands_at_the_task_and_the_answer_goes_up_with_the_servers_state_as_the_call_going_on() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, AT_ONCE).await;
    let client = able(&gate);
    let task = client.result("tools/call", json!({ "name": "ask", "arguments": { "a": 1 } })).await;
    let id = task["taskId"].as_str().unwrap();
    let first = upstream.held("ask").await;
    let (first_id, first_params) = (first.seen.id(), first.seen.json()["params"].clone());
    first.result(ASKS);
    for round in 0..2 {
        let asking = client.until(id, "input_required").await;
        let (key, request) = question(&asking);
        assert_eq!(request["params"]["message"], "Who?");
        let answer = json!({ "action": "accept", "content": { "round": round } });
        client.result("tasks/update", json!({ "taskId": id, "inputResponses": { key: answer } })).await;
        let retry = upstream.held("ask").await;
        let mut params = retry.seen.json()["params"].clone();
        assert_ne!(retry.seen.id(), first_id);
        assert_eq!(params["inputResponses"], json!({ "name": answer }));
        assert_eq!(params["requestState"], format!("state {}", round + 1));
        assert_eq!(retry.seen.header("mcp-name"), "ask");
        for member in ["inputResponses", "requestState"] {
            params.as_object_mut().unwrap().remove(member);
        }
        params["_meta"]["progressToken"] = first_params["_meta"]["progressToken"].clone();
        assert_eq!(params, first_params);
        if round == 0 {
            assert_eq!(client.until(id, "working").await["status"], "working");
            retry.result(&ASKS.replace("state 1", "state 2"));
        } else {
            retry.result(r#"{"resultType":"complete","content":[],"x":2}"#);
        }
    }
    assert_eq!(client.until(id, "completed").await["result"]["x"], 2);
}

#[tokio::test]
async fn a_server_that_puts_a_task_off_without_a_question_gets_its_state_back_after_a_pause() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, AT_ONCE).await;
    let client = able(&gate);
    let task = client.call("ask").await;
    upstream.held("ask").await.result(r#"{"resultType":"input_required","requestState":"later"}"#);
    let retry = upstream.held("ask").await;
    let params = retry.seen.json()["params"].clone();
    assert_eq!(params["requestState"], "later");
    assert!(params.get("inputResponses").is_none(), "{params}");
    retry.result(r#"{"resultType":"complete","content":[]}"#);
    client.until(task["taskId"].as_str().unwrap(), "completed").await;
}

#[tokio::test]
async fn a_server_without_a_state_may_put_a_task_off_once_it_has_its_answer() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, AT_ONCE).await;
    let client = able(&gate);
    let task = client.call("ask").await["taskId"].as_str().unwrap().to_owned();
    upstream.held("ask").await.result(&ASKS.replace(r#""requestState":"state 1","#, ""));
    let (key, _) = question(&client.until(&task, "input_required").await);
    let answer = json!({ "action": "accept", "content": {} });
    client.result("tasks/update", json!({ "taskId": task, "inputResponses": { key: answer } })).await;
    let answered = upstream.held("ask").await;
    assert_eq!(answered.seen.json()["params"]["inputResponses"], json!({ "name": answer }));
    answered.result(r#"{"resultType":"input_required","requestState":"later"}"#);
    let retry = upstream.held("ask").await;
    let params = retry.seen.json()["params"].clone();
    assert_eq!((&params["requestState"], params.get("inputResponses")), (&json!("later"), None));
    retry.result(r#"{"resultType":"complete","content":[]}"#);
    client.until(&task, "completed").await;
}

#[tokio::test]
async fn a_question_that_is_not_answered_in_time_is_cancelled_for_the_user_and_one_without_such_an_answer_fails_the_task()
 {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\ninput_timeout = \"100ms\"\n").await;
    let client = able(&gate);
    let task = client.call("ask").await;
    upstream.held("ask").await.result(ASKS);
    let retry = upstream.held("ask").await;
    assert_eq!(retry.seen.json()["params"]["inputResponses"], json!({ "name": { "action": "cancel" } }));
    retry.result(r#"{"resultType":"complete","content":[]}"#);
    client.until(task["taskId"].as_str().unwrap(), "completed").await;

    let task = client.call("ask").await;
    let samples = ASKS.replace("elicitation/create", "sampling/createMessage");
    let samples = samples.replace(r#""mode":"form""#, r#""messages":[],"maxTokens":1"#);
    upstream.held("ask").await.result(&samples);
    let failed = client.until(task["taskId"].as_str().unwrap(), "failed").await;
    assert!(failed["error"]["message"].as_str().unwrap().contains("input_timeout"), "{failed}");
}

#[tokio::test]
async fn a_task_is_not_asked_what_its_client_has_not_declared() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, AT_ONCE).await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("ask").await;
    upstream.held("ask").await.result(ASKS);
    let failed = client.until(task["taskId"].as_str().unwrap(), "failed").await;
    assert!(failed["error"]["message"].as_str().unwrap().contains("not declared"), "{failed}");
}

#[tokio::test]
async fn the_answer_in_a_task_goes_up_with_the_credential_that_came_with_it_only_if_its_owner_is_known() {
    let named = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";
    for (auth, credential) in [(named, "Bearer new"), ("", "Bearer old")] {
        let upstream = Upstream::modern(json!({ "tools": {} })).await;
        let gate = Gate::with(&upstream, &format!("{auth}{AT_ONCE}")).await;
        let with = |credential: &str| {
            let http = Client::new(&gate.url).with("x-user", "ann").with("authorization", credential);
            Modern { http, capabilities: able(&gate).capabilities }
        };
        let (client, renewed) = (with("Bearer old"), with("Bearer new"));
        let task = client.call("ask").await;
        let id = task["taskId"].as_str().unwrap();
        upstream.held("ask").await.result(ASKS);
        let (key, _) = question(&client.until(id, "input_required").await);
        let answers = json!({ key: { "action": "decline" } });
        renewed.result("tasks/update", json!({ "taskId": id, "inputResponses": answers })).await;
        let retry = upstream.held("ask").await;
        assert_eq!((retry.seen.header("authorization"), retry.seen.header("mcp-name")), (credential, "ask"));
        // It stays so for what the server puts off.
        retry.result(r#"{"resultType":"input_required","requestState":"later"}"#);
        let retry = upstream.held("ask").await;
        assert_eq!(retry.seen.header("authorization"), credential);
        retry.result(r#"{"resultType":"complete","content":[]}"#);
        client.until(id, "completed").await;
    }
}

#[tokio::test]
async fn questions_that_come_together_stand_at_the_task_together_and_their_answers_go_up_together() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("[store]\nkind = \"file\"\npath = {:?}\n", folder.path().join("tasks.db"));
    let gate = Gate::with(&upstream, &format!("{store}{AT_ONCE}")).await;
    let client = able(&gate);
    let task = client.call("ask").await["taskId"].clone();
    let mut told = client.stream("subscriptions/listen", json!({ "notifications": { "taskIds": [task] } }));
    assert_eq!(told.message().await["params"]["notifications"], json!({ "taskIds": [task] }));
    let mut asks = serde_json::from_str::<Value>(ASKS).unwrap();
    let names = ["a", "b", "c", "d"];
    asks["inputRequests"] = names.iter().map(|name| (*name, asks["inputRequests"]["name"].clone())).collect();
    upstream.held("ask").await.result(&asks.to_string());

    // The first notification has all questions, and not only those that the disk has taken so far.
    let asking = told.message().await["params"].clone();
    let requests = asking["inputRequests"].as_object().unwrap();
    assert_eq!((&asking["status"], requests.len()), (&json!("input_required"), names.len()), "{asking}");
    for key in requests.keys() {
        let answers = json!({ key: { "action": "decline" } });
        client.result("tasks/update", json!({ "taskId": task, "inputResponses": answers })).await;
    }
    let retry = upstream.held("ask").await;
    let declined = Value::from_iter(names.map(|name| (name, json!({ "action": "decline" }))));
    assert_eq!(retry.seen.json()["params"]["inputResponses"], declined);
    retry.result(r#"{"resultType":"complete","content":[]}"#);
    client.until(task.as_str().unwrap(), "completed").await;
}
