//! The bytes of open questions are counted and bounded: of one task, of one owner, and in total.

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Sse, Upstream, eventually};

const LIMITS: &str = "[server]\nadmin = \"127.0.0.1:0\"\nmax_outbox_total = \"1MiB\"";
/// Counted twice, four of these are just less than half of the total.
const SIZE: usize = 60 * 1024;

async fn client(gate: &Gate) -> Client {
    Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await
}

async fn task(client: &Client, upstream: &Upstream) -> (String, Sse) {
    let id = client.create_id("slow").await;
    (id, upstream.held("slow").await.sse())
}

async fn asks(slow: &Sse, id: &str, size: usize) {
    let params = json!({ "message": format!("{id}.{}", "x".repeat(size)), "requestedSchema": {} });
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params });
    slow.event(&request.to_string()).await;
}

/// Asks, and waits until the task shows it.
async fn is_asked(client: &Client, (task, slow): &(String, Sse), id: &str) {
    asks(slow, id, SIZE).await;
    let asked = format!("Input required: {id}.");
    client.until_task(task, |task| task["statusMessage"].as_str().unwrap_or_default().starts_with(&asked)).await;
}

/// Asks, and waits for the immediate answer to the server.
async fn is_refused(upstream: &Upstream, slow: &Sse, id: &str, size: usize) -> String {
    asks(slow, id, size).await;
    let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == id).await.json();
    assert_eq!(answer["error"]["code"], -32603);
    answer["error"]["message"].as_str().unwrap().to_owned()
}

async fn metric(gate: &Gate, name: &str) -> usize {
    let admin = Client::new(&format!("{}/metrics", gate.admin.as_ref().unwrap()));
    let text = admin.send(http::Method::GET, "").await.text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn questions_of_one_task_over_a_quarter_of_max_outbox_total_are_refused_and_the_limit_is_named() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, LIMITS).await;
    let client = client(&gate).await;
    let task = task(&client, &upstream).await;
    is_asked(&client, &task, "a").await;
    is_asked(&client, &task, "b").await;
    let kept = metric(&gate, "taskgate_question_bytes").await;
    assert!(kept > 4 * SIZE, "{kept}");
    let why = is_refused(&upstream, &task.1, "c", SIZE).await;
    assert!(
        why.contains("limit reached") && why.contains("262144 bytes, a quarter of server.max_outbox_total"),
        "{why}"
    );
    assert_eq!(metric(&gate, r#"taskgate_questions_refused_total{reason="question_bytes_of_task"}"#).await, 1);
    // A small one finds room, and one that is answered makes room.
    asks(&task.1, "d", 10).await;
    client.until_task(&task.0, |task| task["statusMessage"] == format!("Input required: d.{}", "x".repeat(10))).await;
    let mut waiting = client.stream("tasks/result", json!({ "taskId": task.0 }));
    let asked: Value = super::input::question(&mut waiting).await;
    assert_eq!(client.respond(&asked["id"], json!({ "action": "accept" })).await, 202);
    upstream.wait_for(|seen| seen.json()["result"]["action"] == "accept").await;
    is_asked(&client, &task, "e").await;
    // The end of the task gives all bytes back.
    client.cancel(&task.0).await;
    eventually(async || (metric(&gate, "taskgate_question_bytes").await == 0).then_some(())).await;
}

#[tokio::test]
async fn questions_of_one_owner_over_half_of_max_outbox_total_are_refused_and_another_owner_may_use_the_rest() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, LIMITS).await;
    let (ann, bob, carl) = (client(&gate).await, client(&gate).await, client(&gate).await);
    let mut tasks = Vec::new();
    for owner in [&ann, &bob] {
        for _ in 0..2 {
            let task = task(owner, &upstream).await;
            for id in ["a", "b"] {
                is_asked(owner, &task, id).await;
            }
            tasks.push(task);
        }
        let last = task(owner, &upstream).await;
        let why = is_refused(&upstream, &last.1, &format!("c{}", tasks.len()), SIZE).await;
        assert!(why.contains("524288 bytes, half of server.max_outbox_total"), "{why}");
        tasks.push(last);
    }
    let of_carl = task(&carl, &upstream).await;
    let why = is_refused(&upstream, &of_carl.1, "d", SIZE).await;
    assert!(why.contains("server.max_outbox_total = 1048576 bytes"), "{why}");
    // The end of a session ends its questions.
    ann.delete().await;
    eventually(async || (metric(&gate, "taskgate_question_bytes").await < 500_000).then_some(())).await;
    is_asked(&carl, &of_carl, "e").await;
}
