//! Progress in the place of a server that is silent.

use serde_json::{Value, json};

use crate::{
    host::{House, next, text},
    kit::{Options, Stream},
};

const OFTEN: &str = r#"tasks.heartbeat = "40ms""#;

fn silent_call(house: &House) -> Stream {
    let params = json!({ "name": "slow", "arguments": {}, "_meta": { "progressToken": "tok" } });
    house.host.stream("tools/call", params)
}

async fn beat(calling: &mut Stream) -> (f64, Value) {
    let mut beat = next(calling, "notifications/progress").await;
    assert_eq!(beat["params"]["progressToken"], "tok");
    (beat["params"]["progress"].as_f64().unwrap(), beat["params"].take())
}

#[tokio::test]
async fn a_silent_call_with_a_progress_token_is_told_that_it_still_runs_until_its_result() {
    for options in [Options::default(), Options { answers: crate::kit::Answers::Sse, ..Options::default() }] {
        let house = House::of(options, OFTEN).await;
        let mut calling = silent_call(&house);
        let slow = house.upstream.held("slow").await;
        let mut last = 0.0;
        for _ in 0..3 {
            let (progress, params) = beat(&mut calling).await;
            assert!(progress > last, "{progress} after {last}");
            assert!(params["message"].as_str().unwrap().starts_with("\"slow\" has run for "), "{params}");
            last = progress;
        }
        slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#);
        assert_eq!(text(&calling.last().await["result"]), "done");
    }
}

#[tokio::test]
async fn heartbeats_grow_between_the_steps_of_the_server_which_pass_as_they_are() {
    let house = House::open(OFTEN).await;
    let mut calling = silent_call(&house);
    let slow = house.upstream.held("slow").await.sse();
    let mut told = Vec::new();
    for step in [1, 2, 3] {
        slow.progress(step).await;
        let mut seen = false;
        for _ in 0..2 {
            let (progress, params) = beat(&mut calling).await;
            seen |= params["progress"] == json!(step);
            told.push(progress);
        }
        while !seen {
            let (progress, params) = beat(&mut calling).await;
            seen = params["progress"] == json!(step);
            told.push(progress);
        }
        let (progress, params) = beat(&mut calling).await;
        assert!(progress < f64::from(step) + 0.001, "{progress}");
        assert!(params["message"].as_str().unwrap().contains("has run for"), "{params}");
        told.push(progress);
    }
    assert!(told.is_sorted_by(|a, b| a < b), "{told:?}");
    slow.result(r#"{"content":[]}"#).await;
    assert!(calling.last().await["result"].is_object());
}

#[tokio::test]
async fn a_call_without_a_token_or_of_another_tool_gets_none() {
    let toml = "[[upstream]]\n[upstream.tools.slow]\nheartbeat = \"20ms\"\n[upstream.tools.other]\nheartbeat = \"off\"";
    let house = House::open(toml).await;
    for params in [
        json!({ "name": "slow" }),
        json!({ "name": "other", "_meta": { "progressToken": 1 } }),
        json!({ "name": "third", "_meta": { "progressToken": 1 } }),
    ] {
        let mut calling = house.host.stream("tools/call", params.clone());
        let slow = house.upstream.held(params["name"].as_str().unwrap()).await;
        // A later call gets some.
        let mut witness = silent_call(&house);
        let _silent = house.upstream.held("slow").await;
        for _ in 0..3 {
            beat(&mut witness).await;
        }
        slow.result(r#"{"content":[]}"#);
        assert!(calling.message().await["result"].is_object(), "{params}");
    }
}

#[tokio::test]
async fn heartbeats_go_on_until_the_call_becomes_a_job() {
    let house = House::open("tasks.heartbeat = \"40ms\"\ntasks.job_after = \"2s\"").await;
    let mut calling = silent_call(&house);
    let slow = house.upstream.held("slow").await.sse();
    beat(&mut calling).await;
    let answer = calling.last().await;
    let job = crate::host::Job::in_words(&answer["result"]);
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&crate::host::wait(&house.host, &job, 50.0).await), "done");
}
