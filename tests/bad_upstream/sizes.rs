//! Answers that are large, too large, or endless. Memory is measured on taskgate as a process of its own.

use serde_json::json;

use crate::{
    House, call_of,
    kit::{
        BadUpstream, Binary, Client,
        bad::{DONE, Step, chunk, end, event, json_answer, stream},
        soon,
    },
    outcome_in,
};

const MIB: usize = 1024 * 1024;

/// Returns a result with a text of so many MiB.
fn large(mib: usize) -> String {
    DONE.replace("done", &"x".repeat(mib * MIB))
}

#[tokio::test]
async fn a_message_of_32_mib_passes_in_a_plain_call_and_fails_a_task_that_names_max_result() {
    let house = House::new().await;
    let document = large(32);
    for (tool, answer) in [
        ("event", vec![stream(), event(&document), end()]),
        ("json", vec![json_answer(&document)]),
        ("chunked json", vec![head("application/json"), chunk(&document), end()]),
    ] {
        house.bad.on_call(tool, answer);
        let [plain, task] = house.both(tool).await;
        assert_eq!(plain.unwrap().len(), 32 * MIB, "{tool}");
        let why = task.unwrap_err();
        assert!(why.contains("max_result = 16777216 bytes"), "{tool}: {why}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_message_of_more_than_64_mib_is_refused_and_the_limit_is_named() {
    let house = House::new().await;
    let document = large(65);
    for (tool, answer) in [
        ("event", vec![stream(), event(&document), end()]),
        ("chunked json", vec![head("application/json"), chunk(&document), end()]),
    ] {
        house.bad.on_call(tool, answer);
        let [plain, task] = house.both(tool).await;
        let why = plain.unwrap_err();
        assert!(why.contains("larger than the limit of 67108864 bytes"), "{tool}: {why}");
        assert!(task.unwrap_err().contains("max_result = 16777216 bytes"), "{tool}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_larger_json_answer_with_a_length_passes_while_it_arrives() {
    let house = House::new().await;
    house.bad.on_call("huge", vec![json_answer(&large(65))]);
    let [plain, task] = house.both("huge").await;
    assert_eq!(plain.unwrap().len(), 65 * MIB);
    assert!(task.unwrap_err().contains("max_result = 16777216 bytes"));
    house.still_works().await;
}

fn head(content_type: &str) -> Step {
    Step::Raw(format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n"))
}

/// Answers that never end, each in another way.
fn endless() -> Vec<(&'static str, Vec<Step>)> {
    let filler = || Step::Times(usize::MAX, "x".repeat(256 * 1024));
    let begun = |head: Step, text: &str| vec![head, chunk(text), filler()];
    let events = "text/event-stream";
    vec![
        ("an event's data", begun(head(events), "data: ")),
        ("an event's name", begun(head(events), "event: ")),
        ("an event's id", begun(head(events), "id: ")),
        ("a comment", begun(head(events), ": ")),
        ("a field name", begun(head(events), "")),
        (
            "lines of data",
            vec![head(events), Step::Times(usize::MAX, format!("data: {}\n", "x".repeat(1000)).repeat(256))],
        ),
        ("JSON", begun(head("application/json"), "{\"a\":\"")),
        ("JSON white space", vec![head("application/json"), Step::Times(usize::MAX, " ".repeat(256 * 1024))]),
    ]
}

#[tokio::test]
async fn an_endless_answer_is_refused_at_its_limit_and_costs_no_more_memory_than_that() {
    let bad = BadUpstream::start().await;
    let taskgate = Binary::start(&["serve", "--upstream", &bad.url(), "--listen", "127.0.0.1:0"], &[]);
    let client = Client::connect(&taskgate.url().await).await;
    let before = taskgate.peak_memory();
    for (tool, answer) in endless() {
        bad.on_call(tool, answer);
        let response = crate::within(crate::PATIENCE, client.stream("tools/call", call_of(tool)).last()).await;
        let why = outcome_in(&response).unwrap_err();
        assert!(why.contains("larger than the limit of 67108864 bytes"), "{tool}: {why}");
        let id = client.create_id(tool).await;
        let task = client.until(&id, "failed").await;
        assert!(task["statusMessage"].as_str().unwrap().contains("max_result = 16777216 bytes"), "{task}");
        // The connections are given up, so that the upstream ends, too.
        bad.ended(tool, 2).await;
        assert_eq!(bad.runs(tool), 2);
        let grown = taskgate.peak_memory() - before;
        // A buffer that is moved once, and freed memory that has not gone back to the system yet.
        assert!(grown < 5 * 64 * MIB, "{tool}: {} MiB", grown / MIB);
    }
    assert_eq!(soon(client.ask("ping", json!({}))).await, json!({}));
}
