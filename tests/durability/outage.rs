//! What goes on between clients and servers while the disk takes nothing, or hangs.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    adopting::House,
    kit::{
        Client, Sse, eventually,
        shim::{CHANGES, Fault},
        soon,
    },
    modern_client::{Modern, TASKS},
};

const USERS: &str = "auth = { mode = \"header\", header = \"x-user\", trusted_peers = [\"127.0.0.1\"] }\n";

/// Returns a client that can be asked.
fn able(http: Client) -> Modern {
    Modern { http, capabilities: json!({ "elicitation": {}, "extensions": { TASKS: {} } }) }
}

/// Makes a task, and returns its id and the server's end of its call.
async fn created(house: &House, client: &Modern) -> (String, Sse) {
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let slow = house.upstream.held("slow").await.sse();
    (soon(calling).await.unwrap()["taskId"].as_str().unwrap().to_owned(), slow)
}

/// Has the server ask something in the course of a call.
async fn ask(slow: &Sse) {
    let params = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    let question = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params });
    slow.event(&question.to_string()).await;
}

/// Answers the open question of a task.
async fn answer(client: &Modern, asked: &Value) {
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let answers = json!({ key: { "action": "accept", "content": {} } });
    client.result("tasks/update", json!({ "taskId": asked["taskId"], "inputResponses": answers })).await;
}

#[tokio::test]
async fn a_server_is_told_the_answer_to_its_question_or_that_none_came_while_the_disk_takes_nothing() {
    // A client of that revision sees the question before the disk has written that the task waits for its answer.
    for (input_timeout, fails_before) in [("1h", false), ("5s", false), ("5s", true)] {
        let house = House::with(&format!("tasks.input_timeout = \"{input_timeout}\"\n")).await;
        let client = able(Client::new(&house.url));
        let (id, slow) = created(&house, &client).await;
        if fails_before {
            house.shim.fail_all(CHANGES, Fault::Broken);
        }
        ask(&slow).await;
        let question = client.until(&id, "input_required").await;
        house.shim.fail_all(CHANGES, Fault::Broken);
        if input_timeout == "1h" {
            answer(&client, &question).await;
        }
        let told = house.upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q").await.json();
        assert_eq!(told["result"]["action"] == "accept", input_timeout == "1h", "{told}");
        house.shim.heal();
        client.until(&id, "working").await;
        drop(slow);
    }
}

#[tokio::test]
async fn a_task_works_again_whose_question_was_given_up_before_a_disk_that_hangs_wrote_that_it_waits_for_input() {
    let house = House::with(&format!("tasks.input_timeout = \"2s\"\n{USERS}")).await;
    let ann = Client::new(&house.url).with("x-user", "ann");
    let client = able(ann.clone());
    let (id, slow) = created(&house, &client).await;
    let session = ann.initialize("2025-11-25", json!({})).await;
    // Longer than the store is waited for.
    house.shim.delay(12_000, 0);
    ask(&slow).await;
    house.upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q").await;
    house.shim.delay(0, 0);
    // Its write comes after the one that hangs.
    let create = async || {
        let answer = client.answer("tools/call", json!({ "name": "slow" })).await.json();
        answer["result"]["taskId"].as_str().map(drop)
    };
    eventually(create).await;
    session.until(&id, "working").await;
}

#[tokio::test]
async fn a_call_whose_cancellation_the_disk_has_yet_to_take_is_not_sent_before() {
    let house = House::with("tasks.max_running = 1\n").await;
    let client = Client::connect(&house.url).await;
    let first = client.create_id("slow").await;
    let slow = house.upstream.held("slow").await.sse();
    let waits = client.create_id("slow").await;
    house.shim.fail_all(CHANGES, Fault::Broken);
    let refused = client.request("tasks/cancel", json!({ "taskId": waits })).await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    // By now it is tried again only after a pause, so that the turn comes first.
    tokio::time::sleep(Duration::from_secs(2)).await;
    slow.result(r#"{"content":[]}"#).await;
    house.shim.heal();
    client.until(&first, "completed").await;
    client.until(&waits, "cancelled").await;
    assert_eq!(house.upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_task_works_again_whose_question_was_answered_while_the_disk_wrote_that_it_waits_for_input() {
    let house = House::with(USERS).await;
    let ann = Client::new(&house.url).with("x-user", "ann");
    let client = able(ann.clone());
    let (id, slow) = created(&house, &client).await;
    let session = ann.initialize("2025-11-25", json!({})).await;
    let before = session.get(&id).await;
    house.shim.delay(5000, 0);
    ask(&slow).await;
    let asked = client.until(&id, "input_required").await;
    assert_eq!(session.get(&id).await, before, "the disk has not written it");
    answer(&client, &asked).await;
    house.upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q").await;
    house.shim.delay(0, 0);
    let works = |told: &Value| told["status"] == "working" && told["lastUpdatedAt"] != before["lastUpdatedAt"];
    session.until_task(&id, works).await;
}
