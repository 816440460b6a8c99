//! Results of tasks that were cut from large answers and are kept.

use serde_json::json;

use super::{CONNECTION, House, ITSELF, KIB, MIB, SESSION};
use crate::kit::{Client, Upstream, status_of};

const TOTAL: usize = 16 * MIB;

/// Fills the room for results with what `answer` makes of each result of so many bytes, and returns how many there are.
async fn fill(what: &str, upstream: Upstream, size: usize, answer: impl Fn(&str) -> String) -> usize {
    let limits = format!("max_result_bytes = {TOTAL}\nmax_result_bytes_per_owner = {TOTAL}");
    let house = House::before(&upstream.url(), "", &format!("[tasks]\n{limits}\nmax_tasks_per_owner = 10000")).await;
    let client = Client::connect(&house.url).await;
    let result = json!({ "content": [{ "type": "text", "text": "x".repeat(size) }], "isError": true }).to_string();
    let answer = answer(&format!("\"result\":{result}"));
    let mut kept = 0;
    let refused = loop {
        let created = client.request("tools/call", json!({ "name": "slow", "task": {} })).await;
        let Some(id) = created["result"]["task"]["taskId"].as_str() else { break created };
        let held = upstream.held("slow").await;
        let document = answer.replace("$ID", &held.seen.id());
        let media_type = if document.starts_with('{') { "application/json" } else { "text/event-stream" };
        held.status(200, &[("content-type", media_type)], &document);
        client.until_task(id, |task| status_of(task) == "failed").await;
        upstream.forget();
        kept += 1;
    };
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains(&format!("tasks.max_result_bytes = {TOTAL}")), "{why}");
    // An answer that is arriving.
    let arriving = 5 * answer.len();
    house.holds(what, TOTAL + arriving + kept * KIB + SESSION + 2 * CONNECTION + ITSELF);
    kept
}

#[tokio::test]
async fn results_do_not_keep_the_large_answer_that_they_were_cut_from() {
    let spaces = " ".repeat(512 * KIB);
    let kept = fill("answers with white space", Upstream::json().await, 200 * KIB, |result| {
        format!(r#"{{"jsonrpc":"2.0",{spaces}"id":$ID,{result}{spaces}}}"#)
    });
    assert!((70..90).contains(&kept.await));
    let kept = fill("events with another member", Upstream::sse().await, 200 * KIB, |result| {
        let lines = format!("\"{}\",\ndata: ", "x".repeat(128 * KIB)).repeat(8);
        format!("data: {{\"jsonrpc\":\"2.0\",\"id\":$ID,\"x\":[{lines}0],{result}}}\n\n")
    });
    assert!((70..90).contains(&kept.await));
}

#[tokio::test]
async fn small_results_take_what_they_count_besides_their_tasks() {
    let kept = fill("small results", Upstream::json().await, 8 * KIB, |result| {
        format!(r#"{{"jsonrpc":"2.0","id":$ID,{result}{}}}"#, " ".repeat(64 * KIB))
    });
    assert!((1900..2100).contains(&kept.await));
}
