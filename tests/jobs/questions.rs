//! What the server asks in the course of a call that becomes a job.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    host::{House, Job, SOON, call, next, text, wait},
    kit::{Client, Sse, Stream, Upstream, soon},
};

async fn house(toml: &str) -> House {
    house_of(&format!("{SOON}\n{toml}")).await
}

async fn house_of(toml: &str) -> House {
    let able = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    House::with(Upstream::sse().await, toml, able).await
}

async fn asks(slow: &Sse, id: &str, method: &str) {
    let params = match method {
        "roots/list" => json!({}),
        "sampling/createMessage" => json!({ "messages": [], "maxTokens": 1 }),
        _ => json!({ "message": "Which account?", "requestedSchema": { "type": "object", "properties": {} } }),
    };
    slow.event(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()).await;
}

/// Makes a job that asks. Returns the server's end of its call, a stream that waits for it, and the question on it.
async fn asked(house: &House) -> (Sse, Stream, Value) {
    let (slow, job) = house.job().await;
    asks(&slow, "q", "elicitation/create").await;
    let mut waiting = house.host.stream("tools/call", job.waits(50.0));
    let question = next(&mut waiting, "elicitation/create").await;
    (slow, waiting, question)
}

async fn answer_to(house: &House, id: &str) -> Value {
    house.upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == id).await.json()
}

#[tokio::test]
async fn a_question_before_the_job_goes_to_the_client_as_ever_and_is_answered_after_it() {
    let house = house_of("tasks.job_after = \"2s\"").await;
    let mut calling = house.host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let slow = house.upstream.held("slow").await.sse();
    asks(&slow, "q", "elicitation/create").await;
    let question = next(&mut calling, "elicitation/create").await;
    assert_eq!(question["id"], "q", "as the server wrote it");
    let job = Job::in_words(&calling.last().await["result"]);
    house.host.respond(&json!("q"), json!({ "action": "accept", "content": {} })).await;
    assert_eq!(answer_to(&house, "q").await["result"]["action"], "accept");
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&wait(&house.host, &job, 50.0).await), "done");
}

#[tokio::test]
async fn a_question_of_a_job_is_asked_on_the_stream_of_a_call_that_waits_and_on_no_other() {
    let house = house("").await;
    let mut listener = house.host.get_stream().await;
    let (slow, job) = house.job().await;
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        asks(&slow, method, method).await;
        let mut waiting = house.host.stream("tools/call", job.waits(50.0));
        let question = next(&mut waiting, method).await;
        assert!(question["id"].as_str().unwrap().starts_with("taskgate:"), "{question}");
        assert!(question["params"].get("_meta").is_none(), "a host without tasks knows no related task: {question}");
        house.host.respond(&question["id"], json!({ "x": method })).await;
        assert_eq!(answer_to(&house, method).await["result"], json!({ "x": method }));
    }
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&wait(&house.host, &job, 50.0).await), "done");
    house.host.delete().await;
    assert_eq!(listener.next().await, None, "nothing came on the GET stream");
}

#[tokio::test]
async fn a_question_is_asked_once_in_a_session_and_can_be_answered_after_the_wait() {
    let house = house("").await;
    let (slow, job) = house.job().await;
    asks(&slow, "q", "elicitation/create").await;
    let mut first = house.host.stream("tools/call", job.waits(1.0));
    let question = next(&mut first, "elicitation/create").await;
    let words = text(&first.last().await["result"]);
    assert!(words.contains("waits for an answer: \"Which account?\"; the user was asked"), "{words}");
    let again = house.host.stream("tools/call", job.waits(0.0)).rest().await.0;
    assert!(!again.contains("elicitation/create"), "it was asked on the stream of an earlier call: {again}");
    house.host.respond(&question["id"], json!({ "action": "accept", "content": {} })).await;
    assert_eq!(answer_to(&house, "q").await["result"]["action"], "accept");
    slow.result(r#"{"content":[]}"#).await;
}

#[tokio::test]
async fn a_question_comes_before_the_answer_however_short_the_wait() {
    let house = house("").await;
    let (slow, job) = house.job().await;
    asks(&slow, "q", "elicitation/create").await;
    while !text(&call(&house.host, "list_jobs", json!({})).await).contains("waits for an answer") {}
    let mut waiting = house.host.stream("tools/call", job.waits(0.0));
    let question = waiting.message().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let words = text(&waiting.last().await["result"]);
    assert!(words.contains("the user was asked"), "{words}");
    house.host.respond(&question["id"], json!({ "action": "decline" })).await;
    assert_eq!(answer_to(&house, "q").await["result"]["action"], "decline");
    slow.result(r#"{"content":[]}"#).await;
}

#[tokio::test]
async fn a_question_that_its_client_has_answered_is_not_withdrawn_from_it() {
    let house = house("").await;
    let (slow, waiting, question) = asked(&house).await;
    house.host.respond(&question["id"], json!({ "action": "accept", "content": {} })).await;
    answer_to(&house, "q").await;
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    let rest = waiting.rest().await.0;
    assert!(rest.contains("done") && !rest.contains("notifications/cancelled"), "{rest}");
}

#[tokio::test]
async fn a_question_whose_stream_breaks_can_still_be_answered() {
    let house = house("").await;
    let (slow, waiting, question) = asked(&house).await;
    drop(waiting);
    house.host.respond(&question["id"], json!({ "action": "decline" })).await;
    assert_eq!(answer_to(&house, "q").await["result"]["action"], "decline");
    slow.result(r#"{"content":[]}"#).await;
}

#[tokio::test]
async fn a_question_whose_stream_breaks_is_asked_again_by_the_next_wait() {
    let house = house("").await;
    // Streams of the second one are kept for its return.
    for version in ["2025-06-18", "2025-11-25"] {
        let host = Client::connect_as(&house.gate.url, version, json!({ "elicitation": {} })).await;
        let (slow, job) = house.job_of(&host, "slow").await;
        asks(&slow, version, "elicitation/create").await;
        let mut waiting = host.stream("tools/call", job.waits(50.0));
        next(&mut waiting, "elicitation/create").await;
        drop(waiting);
        // Once taskgate has noticed, and not only when as many other streams are kept as there may be.
        let mut asked = None;
        for _ in 0..25 {
            let again = host.stream("tools/call", job.waits(0.0)).rest().await.0;
            asked = again.lines().find(|line| line.contains("elicitation/create")).map(str::to_owned);
            if asked.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let asked = asked.expect("a question");
        let question: Value = serde_json::from_str(asked.trim_start_matches("data: ")).unwrap();
        host.respond(&question["id"], json!({ "action": "decline" })).await;
        assert_eq!(answer_to(&house, version).await["result"]["action"], "decline");
        slow.result(r#"{"content":[]}"#).await;
    }
}

#[tokio::test]
async fn one_wait_asks_as_many_questions_as_a_job_can_have_before_its_answer() {
    for seconds in [0.0, 2.0] {
        let house = house("").await;
        let (slow, job) = house.job().await;
        for number in 0..=64 {
            asks(&slow, &format!("q{number}"), "elicitation/create").await;
        }
        assert!(answer_to(&house, "q64").await["error"].is_object(), "one too many");
        let all = house.host.stream("tools/call", job.waits(seconds)).rest().await.0;
        let (asked, answer) = (all.matches("elicitation/create").count(), all.find("\"result\""));
        assert!(asked == 64 && all.rfind("elicitation/create") < answer, "{asked} in {all}");
        slow.result(r#"{"content":[]}"#).await;
    }
}

#[tokio::test]
async fn a_question_that_need_not_be_answered_any_more_is_withdrawn() {
    let house = house("").await;
    let (slow, mut waiting, question) = asked(&house).await;
    slow.notify("notifications/cancelled", json!({ "requestId": "q" })).await;
    let withdrawal = next(&mut waiting, "notifications/cancelled").await;
    assert_eq!(withdrawal["params"]["requestId"], question["id"]);
    slow.result(r#"{"content":[]}"#).await;
    assert!(waiting.last().await["result"].is_object());
}

#[tokio::test]
async fn a_question_that_is_not_answered_in_time_is_given_up_and_the_job_goes_on() {
    let house = house("tasks.input_timeout = \"300ms\"").await;
    let (slow, job) = house.job().await;
    asks(&slow, "q", "elicitation/create").await;
    let waiting = tokio::spawn({
        let (host, job) = (house.host.clone(), job.clone());
        async move { wait(&host, &job, 50.0).await }
    });
    let refused = answer_to(&house, "q").await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("input_timeout = 300ms"), "{refused}");
    slow.result(r#"{"content":[{"type":"text","text":"without"}],"isError":true}"#).await;
    let result = soon(waiting).await.unwrap();
    assert_eq!((text(&result).as_str(), &result["isError"]), ("without", &json!(true)));
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_not_asked() {
    let house = House::open(SOON).await;
    let (slow, job) = house.job().await;
    asks(&slow, "q", "elicitation/create").await;
    assert!(answer_to(&house, "q").await["error"].is_object());
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&wait(&house.host, &job, 50.0).await), "done");
}
