//! A user with several sessions: which of them hears what of a task, and which is asked when one of them ends.

use serde_json::{Value, json};

use super::input::{next, question};
use crate::kit::{Client, Gate, Sse, Stream, Upstream, status_of};

const RELATED: &str = "io.modelcontextprotocol/related-task";
const HEADER: &str = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]";

/// Starts a server, and taskgate that knows its users.
async fn house() -> (Upstream, Gate) {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, HEADER).await;
    (upstream, gate)
}

/// Opens one more session of the same user.
async fn session(gate: &Gate, version: &str, capabilities: Value) -> Client {
    Client::new(&gate.url).with("x-user", "ann").initialize(version, capabilities).await
}

async fn able(gate: &Gate) -> Client {
    session(gate, "2025-11-25", json!({ "elicitation": {} })).await
}

/// Creates a task whose client wants progress under the token "t"; returns it with the stream on which its server sends
/// progress.
async fn task(client: &Client, upstream: &Upstream) -> (String, Sse) {
    let params = json!({ "name": "slow", "task": {}, "_meta": { "progressToken": "t" } });
    let created = client.ask("tools/call", params).await;
    (created["task"]["taskId"].as_str().unwrap().to_owned(), upstream.held("slow").await.sse())
}

async fn asks(slow: &Sse, method: &str, params: &Value) {
    slow.event(&json!({ "jsonrpc": "2.0", "id": "ask", "method": method, "params": params }).to_string()).await;
}

/// Returns what came on a stream until its session ended.
async fn until_its_end(client: &Client, mut stream: Stream) -> Vec<Value> {
    assert_eq!(client.delete().await.status, 200);
    let mut all = Vec::new();
    while let Some(event) = stream.next().await {
        all.push(event.json());
    }
    all
}

#[tokio::test]
async fn a_question_waits_for_a_session_whose_client_can_be_asked_exactly_that() {
    let form = json!({ "elicitation": { "form": {} } });
    for (method, params, able, unable) in [
        ("elicitation/create", json!({ "message": "?" }), form.clone(), json!({ "elicitation": { "url": {} } })),
        ("elicitation/create", json!({ "mode": "url" }), json!({ "elicitation": { "url": {} } }), form),
        ("sampling/createMessage", json!({}), json!({ "sampling": {} }), json!({ "elicitation": {}, "roots": {} })),
        (
            "sampling/createMessage",
            json!({ "tools": [] }),
            json!({ "sampling": { "tools": {} } }),
            json!({ "sampling": {} }),
        ),
        ("roots/list", json!({}), json!({ "roots": {} }), json!({ "sampling": {} })),
    ] {
        let (upstream, gate) = house().await;
        let creator = session(&gate, "2025-11-25", able.clone()).await;
        let (id, slow) = task(&creator, &upstream).await;
        let unable = session(&gate, "2025-11-25", unable).await;
        let older = session(&gate, "2025-06-18", able.clone()).await;
        let (listening, heard_by_older) = (unable.get_stream().await, older.get_stream().await);
        let mut waiting = unable.stream("tasks/result", json!({ "taskId": id }));
        waiting.head().await;
        asks(&slow, method, &params).await;
        creator.until(&id, "input_required").await;
        let another = session(&gate, "2025-11-25", able).await;
        let mut listener = another.get_stream().await;
        let asked = question(&mut listener).await;
        assert_eq!(asked["method"], method);
        assert_eq!(another.respond(&asked["id"], json!({})).await, 202);
        slow.result(r#"{"content":[]}"#).await;
        // A session whose client cannot be asked hears of the task's status; one whose revision has no tasks hears
        // nothing.
        assert!(waiting.message().await["result"].is_object(), "{method}");
        let heard = until_its_end(&unable, listening).await;
        assert!(heard.iter().all(|message| message["method"] == "notifications/tasks/status"), "{heard:?}");
        assert_eq!(until_its_end(&older, heard_by_older).await, [] as [Value; 0], "{method}");
    }
}

#[tokio::test]
async fn a_session_of_an_older_revision_hears_nothing_of_tasks() {
    let (upstream, gate) = house().await;
    let older = session(&gate, "2025-06-18", json!({ "elicitation": {} })).await;
    let listening = older.get_stream().await;
    let creator = able(&gate).await;
    let (id, slow) = task(&creator, &upstream).await;
    slow.progress(1).await;
    slow.notify("notifications/message", json!({ "level": "info", "data": "x" })).await;
    slow.result(r#"{"content":[]}"#).await;
    creator.until(&id, "completed").await;
    assert_eq!(until_its_end(&older, listening).await, [] as [Value; 0]);
}

#[tokio::test]
async fn progress_goes_to_the_session_that_gave_the_token_and_log_messages_may_go_to_another() {
    let (upstream, gate) = house().await;
    let (creator, another) = (able(&gate).await, able(&gate).await);
    let mut listener = another.get_stream().await;
    let mut elsewhere = {
        let (id, slow) = task(&creator, &upstream).await;
        slow.progress(1).await;
        another.until_task(&id, |task| task["statusMessage"] == "1").await;
        slow.notify("notifications/message", json!({ "level": "info", "data": "x" })).await;
        // In that session the token belongs to another request, if to any.
        let told = listener.message().await;
        assert_eq!((&told["method"], &told["params"]["data"]), (&json!("notifications/message"), &json!("x")));
        assert_eq!(told["params"]["_meta"][RELATED]["taskId"], json!(id));
        let mut elsewhere = another.stream("tasks/result", json!({ "taskId": id }));
        elsewhere.head().await;
        let mut waiting = creator.stream("tasks/result", json!({ "taskId": id }));
        waiting.head().await;
        slow.progress(2).await;
        let progress = waiting.message().await;
        assert_eq!((&progress["params"]["progressToken"], &progress["params"]["progress"]), (&json!("t"), &json!(2)));
        slow.result(r#"{"content":[]}"#).await;
        assert!(waiting.message().await["result"].is_object());
        elsewhere
    };
    assert!(elsewhere.message().await["result"].is_object());
    assert_eq!(listener.message().await["params"]["status"], "completed");
}

#[tokio::test]
async fn a_question_whose_session_ends_is_asked_in_another_one_at_once() {
    let (upstream, gate) = house().await;
    let (creator, another) = (able(&gate).await, able(&gate).await);
    let (mut listener, mut other) = (creator.get_stream().await, another.get_stream().await);
    let (id, slow) = task(&creator, &upstream).await;
    asks(&slow, "elicitation/create", &json!({ "message": "?" })).await;
    let asked = question(&mut listener).await;
    assert_eq!(creator.delete().await.status, 200);
    let again = question(&mut other).await;
    assert_eq!(again, asked);
    // And if that session ends as well, in the next: no client can answer in an ended session.
    assert_eq!(another.delete().await.status, 200);
    let last = able(&gate).await;
    assert_eq!(status_of(&last.get(&id).await), "input_required");
    let mut waiting = last.stream("tasks/result", json!({ "taskId": id }));
    assert_eq!(question(&mut waiting).await, asked);
    assert_eq!(last.respond(&asked["id"], json!({ "action": "accept" })).await, 202);
    upstream.wait_for(|seen| seen.json()["result"]["action"] == "accept").await;
    slow.result("{}").await;
    assert!(waiting.message().await["result"].is_object());
}

#[tokio::test]
async fn a_waiting_stream_of_an_ended_session_is_asked_nothing() {
    let (upstream, gate) = house().await;
    let (creator, another) = (able(&gate).await, able(&gate).await);
    let (id, slow) = task(&creator, &upstream).await;
    let mut waiting = creator.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    assert_eq!(creator.delete().await.status, 200);
    asks(&slow, "elicitation/create", &json!({ "message": "?" })).await;
    another.until(&id, "input_required").await;
    let mut listener = another.get_stream().await;
    question(&mut listener).await;
    slow.result("{}").await;
    assert!(waiting.message().await["result"].is_object());
}

#[tokio::test]
async fn a_question_on_a_stream_that_the_client_cancels_is_asked_on_another_at_once() {
    let (upstream, gate) = house().await;
    let (creator, another) = (able(&gate).await, able(&gate).await);
    let mut other = another.get_stream().await;
    let (id, slow) = task(&creator, &upstream).await;
    let mut waiting = creator.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    asks(&slow, "elicitation/create", &json!({ "message": "?" })).await;
    let asked = question(&mut waiting).await;
    let request = creator.next_id() - 1;
    assert_eq!(creator.notify("notifications/cancelled", json!({ "requestId": request })).await, 202);
    assert_eq!(question(&mut other).await, asked);
    another.respond(&asked["id"], json!({ "action": "accept" })).await;
    assert_eq!(next(&mut other, "notifications/tasks/status").await["status"], "working");
}

#[tokio::test]
async fn a_question_that_is_answered_in_one_session_is_withdrawn_in_the_other() {
    let (upstream, gate) = house().await;
    let (creator, another) = (able(&gate).await, able(&gate).await);
    let (mut listener, mut other) = (creator.get_stream().await, another.get_stream().await);
    let (_id, slow) = task(&creator, &upstream).await;
    asks(&slow, "elicitation/create", &json!({ "message": "?" })).await;
    let asked = question(&mut listener).await;
    drop(listener);
    assert_eq!(question(&mut other).await, asked);
    assert_eq!(creator.respond(&asked["id"], json!({ "action": "accept" })).await, 202);
    assert_eq!(next(&mut other, "notifications/cancelled").await["requestId"], asked["id"]);
    slow.result("{}").await;
}

#[tokio::test]
async fn a_question_that_ended_sessions_were_asked_in_a_wait_is_asked_on_the_next_stream() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, &format!("{HEADER}\n[tasks]\njob_after = \"50m\"")).await;
    let creator = able(&gate).await;
    let (id, slow) = task(&creator, &upstream).await;
    asks(&slow, "elicitation/create", &json!({ "message": "?" })).await;
    let waits = json!({ "name": "wait_for_job", "arguments": { "job_ids": [id], "seconds": 50 } });
    for _ in 0..2 {
        let host = session(&gate, "2025-06-18", json!({ "elicitation": {} })).await;
        question(&mut host.stream("tools/call", waits.clone())).await;
        assert_eq!(host.delete().await.status, 200);
    }
    let asked = question(&mut creator.get_stream().await).await;
    assert_eq!(creator.respond(&asked["id"], json!({ "action": "accept" })).await, 202);
    upstream.wait_for(|seen| seen.json()["result"]["action"] == "accept").await;
    slow.result("{}").await;
}
