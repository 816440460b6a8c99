//! Clients that stop reading cost their outbox and no more, and other clients do not notice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use http::Method;
use kit::{
    BadUpstream, Binary, Client, Gate, SMALL, Stalled, TINY, Upstream,
    bad::{DONE, PROGRESS, Step, end, event, stream},
    eventually, within,
};
use serde_json::{Value, json};
use std::{io::Write, time::Duration};

const MIB: usize = 1024 * 1024;
/// How many clients stop reading.
const STALLED: usize = 100;
/// How many notifications of 4 KiB each of them gets: more than twice what may be kept.
const SENT: usize = 1250;
/// What may wait for one reader (1 MiB), what is kept for resumption, and the buffers of the connections.
const COST: usize = 5 * MIB / 2;
/// How long it may take to read what has waited.
const PATIENCE: Duration = Duration::from_secs(30);

fn call(tool: &str) -> Value {
    let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": "t" } });
    json!({ "jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": params })
}

/// Starts taskgate as a process, so that its memory is its own, in front of a bad upstream.
async fn outside(bad: &BadUpstream) -> (Binary, String) {
    let taskgate = Binary::start(&["serve", "--upstream", &bad.url(), "--listen", "127.0.0.1:0"], &[]);
    let url = taskgate.url().await;
    (taskgate, url)
}

/// Returns a flood of a notification.
fn flood(notification: &str) -> Step {
    let padded = notification.replace("PADDING", &"x".repeat(4000));
    Step::Times(SENT, format!("data: {padded}\n\n"))
}

fn padded_progress() -> String {
    PROGRESS.replace("$N", "$N,\"message\":\"PADDING\"")
}

/// Scripts the tool that floods its client with progress, and ends after the flood.
fn floods(bad: &BadUpstream) {
    bad.on_call("flood", vec![stream(), flood(&padded_progress()), event(DONE), Step::Wait("all over"), end()]);
}

/// Starts so many clients, each in a session of its own, that call this tool and do not read the answer.
async fn stalled(url: &str, count: usize) -> Vec<Stalled> {
    let mut stalled = Vec::new();
    for _ in 0..count {
        let client = Client::connect(url).await;
        stalled.push(Stalled::open(&client, Method::POST, &call("flood").to_string(), TINY).await);
    }
    stalled
}

/// Checks that calls of another client are answered, each before the next is made.
async fn goes_on(client: &Client) {
    for _ in 0..20 {
        let result = client.ask("tools/call", json!({ "name": "quick", "arguments": {} })).await;
        assert_eq!(result["content"][0]["text"], "done");
    }
    let id = client.create_id("quick").await;
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn a_hundred_clients_that_do_not_read_their_answers_cost_one_outbox_each() {
    let bad = BadUpstream::start().await;
    let (taskgate, url) = outside(&bad).await;
    floods(&bad);
    let other = Client::connect(&url).await;
    goes_on(&other).await;
    let before = taskgate.peak_memory();
    let stalled = stalled(&url, STALLED).await;
    // In the middle of the flood, with a hundred unread streams.
    goes_on(&other).await;
    bad.signal("all over");
    bad.ended("flood", STALLED).await;
    goes_on(&other).await;
    let grown = taskgate.peak_memory() - before;
    assert!(grown < STALLED * COST, "{} KiB for each", grown / STALLED / 1024);
    // What was kept is the newest progress and the answer.
    for stalled in stalled.into_iter().take(2) {
        let rest = within(PATIENCE, stalled.rest()).await;
        assert!(rest.contains(r#""id":"call","result""#), "{} bytes", rest.len());
        assert!(rest.matches("notifications/progress").count() < SENT * 3 / 4, "it did not stall");
    }
    assert_eq!(bad.runs("flood"), STALLED);
}

#[tokio::test]
async fn unread_outboxes_together_cost_at_most_max_outbox_total() {
    const FEW: usize = 40;
    const TOTAL: usize = 2 * MIB;
    /// What is kept for resumption, and the buffers of the connections.
    const BESIDES: usize = MIB;
    let bad = BadUpstream::start().await;
    let mut config = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let (server, upstream) = (format!("[server]\nmax_outbox_total = {TOTAL}"), format!("url = \"{}\"", bad.url()));
    write!(config, "{server}\nlisten = \"127.0.0.1:0\"\n[[upstream]]\n{upstream}").unwrap();
    let taskgate = Binary::start(&["serve", "--config", config.path().to_str().unwrap()], &[]);
    let url = taskgate.url().await;
    floods(&bad);
    let other = Client::connect(&url).await;
    goes_on(&other).await;
    let before = taskgate.peak_memory();
    let mut stalled = stalled(&url, FEW).await;
    goes_on(&other).await;
    bad.signal("all over");
    bad.ended("flood", FEW).await;
    let grown = taskgate.peak_memory() - before;
    assert!(grown < TOTAL + FEW * BESIDES, "{} KiB for each", grown / FEW / 1024);
    // The answer itself is not dropped.
    let rest = within(PATIENCE, stalled.swap_remove(FEW - 1).rest()).await;
    assert!(rest.contains(r#""id":"call","result""#), "{} bytes", rest.len());
}

#[tokio::test]
async fn a_hundred_clients_that_do_not_read_their_get_stream_cost_one_outbox_each() {
    let bad = BadUpstream::start().await;
    let (taskgate, url) = outside(&bad).await;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"PADDING"}}"#;
    bad.on_listen(vec![stream(), flood(log), Step::Note("flooded"), Step::Gone]);
    let other = Client::connect(&url).await;
    goes_on(&other).await;
    let before = taskgate.peak_memory();
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        let client = Client::connect(&url).await;
        let stream = Stalled::open(&client, Method::GET, "", TINY).await;
        stalled.push((client, stream));
    }
    goes_on(&other).await;
    bad.ended("flooded", STALLED).await;
    // A session whose stream is not read works all the same.
    for (client, _) in &stalled {
        assert_eq!(client.ask("ping", json!({})).await, json!({}));
        assert_eq!(client.delete().await.status, 200);
    }
    for (_, stalled) in stalled.into_iter().take(2) {
        let rest = within(PATIENCE, stalled.rest()).await;
        assert!(rest.matches("notifications/message").count() < SENT * 3 / 4, "it did not stall");
    }
    // The upstream's stream is ended with its session.
    bad.ended("GET", STALLED).await;
    let grown = taskgate.peak_memory() - before;
    assert!(grown < STALLED * COST, "{} KiB for each", grown / STALLED / 1024);
    eventually(async || (bad.deletes() == STALLED).then_some(())).await;
    goes_on(&other).await;
}

#[tokio::test]
async fn a_question_for_a_full_get_stream_gets_an_error() {
    const ASKED: usize = 1000;
    let bad = BadUpstream::start().await;
    let gate = Gate::to(&bad.url(), "").await;
    let question = r#"{"jsonrpc":"2.0","id":"q$N","method":"roots/list","params":{"x":"PADDING"}}"#;
    let question = format!("data: {}\n\n", question.replace("PADDING", &"x".repeat(10_000)));
    // Asked only when the client listens.
    bad.on_listen(vec![
        stream(),
        Step::Wait("listening"),
        Step::Times(ASKED, question),
        Step::Note("asked"),
        Step::Gone,
    ]);
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "roots": {} })).await;
    let mut stalled = Stalled::open(&client, Method::GET, "", SMALL).await;
    let mut came = Vec::new();
    stalled.read(&mut came).await;
    bad.signal("listening");
    bad.ended("asked", 1).await;
    let delivered = |came: &[u8]| String::from_utf8_lossy(came).matches(r#""id":"q"#).count();
    // Each question is either asked or answered.
    within(PATIENCE, async {
        while delivered(&came) + bad.responses() < ASKED {
            let _ = tokio::time::timeout(Duration::from_millis(10), stalled.read(&mut came)).await;
        }
    })
    .await;
    assert_eq!(delivered(&came) + bad.responses(), ASKED);
    assert!(bad.responses() > 0 && delivered(&came) > 10, "{} answered", bad.responses());
    let answered = bad.wait_for(|seen| seen.json().get("error").is_some()).await;
    assert!(answered.text().contains("limit reached: the client does not read what it is asked"), "{answered:?}");
    goes_on(&client).await;
}

#[tokio::test]
async fn an_outbox_of_tiny_messages_costs_no_more_than_one_of_large_ones() {
    const FEW: usize = 10;
    let bad = BadUpstream::start().await;
    let (taskgate, url) = outside(&bad).await;
    let tiny = "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n";
    bad.on_call("flood", vec![stream(), Step::Times(2000, tiny.repeat(100)), event(DONE), end()]);
    let other = Client::connect(&url).await;
    goes_on(&other).await;
    let before = taskgate.peak_memory();
    let _stalled = stalled(&url, FEW).await;
    bad.ended("flood", FEW).await;
    let grown = taskgate.peak_memory() - before;
    assert!(grown < FEW * COST, "{} KiB for each", grown / FEW / 1024);
}

#[tokio::test]
async fn questions_of_a_task_wait_for_room_until_the_client_has_read_the_others() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    let mut listener = Stalled::open(&client, Method::GET, "", SMALL).await;
    // More than the outbox and the system hold.
    let (count, filler) = (12, "x".repeat(700 * 1024));
    for number in 0..count {
        let params = json!({ "message": format!("{number}.{filler}"), "requestedSchema": {} });
        let question = json!({ "jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": params });
        slow.event(&question.to_string()).await;
        let asked = format!("Input required: {number}.");
        client.until_task(&id, |task| task["statusMessage"].as_str().unwrap_or("").starts_with(&asked)).await;
    }
    let (mut text, last) = (Vec::new(), format!("\"{}.", count - 1));
    within(PATIENCE, async {
        // Only new messages are searched.
        while memchr::memmem::find(&text, last.as_bytes()).is_none() {
            let seen = text.len().saturating_sub(last.len());
            text.drain(..seen);
            listener.read(&mut text).await;
        }
    })
    .await;
}
