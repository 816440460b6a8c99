//! Children that do not read: what waits for them, and against whose limits it counts.

use futures_util::future::select_all;
use serde_json::{Value, json};

use crate::kit::{Children, Client, Gate, Process, Script, eventually, soon, status_of, text_in, text_of};

/// Stops reading when the test says so; told to go on, it skips a line.
const STALLING: Script = Script {
    setup: "",
    tools: r#"*'"name":"doze"'*) text "$id" zzz; while [ ! -e "$dir/awake" ]; do sleep 0.05; done; sed -u 1q >/dev/null ;;"#,
    after: "",
};

/// Fills the pipe to a child that does not read, so that everything from now on waits.
async fn stop_reading(client: &Client) {
    assert_eq!(text_of(client, "doze").await, "zzz");
    assert_eq!(client.notify("notifications/long", json!({ "text": "x".repeat(200_000) })).await, 202);
}

/// Sends more pings than may wait.
fn send_too_many_pings(client: &Client) -> Vec<tokio::task::JoinHandle<Value>> {
    let ping = |_| {
        let client = client.clone();
        tokio::spawn(async move { client.request("ping", json!({})).await })
    };
    (0..300).map(ping).collect()
}

/// Waits until a plain call is refused because the queue is full; returns the reason.
async fn refused(client: &Client) -> String {
    let (code, message) = client.error("tools/call", json!({ "name": "pid" })).await;
    assert_eq!(code, -32603);
    message
}

async fn stalled(toml: &str) -> (Children, Gate, Client, Process) {
    let children = Children::new(STALLING);
    let gate = children.gate(toml).await;
    let client = Client::connect(&gate.url).await;
    let child = children.only().await;
    stop_reading(&client).await;
    (children, gate, client, child)
}

#[tokio::test]
async fn one_owner_who_fills_the_queue_of_a_shared_child_is_refused_alone() {
    let (children, gate, ann, child) = stalled("[[upstream]]\nshared = true").await;
    let bob = Client::connect(&gate.url).await;
    // The first one that is answered at all is one too many.
    let (refused, ..) = soon(select_all(send_too_many_pings(&ann))).await;
    let refused = refused.unwrap();
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("limit reached: 256 messages of this session wait"), "{why}");
    let (of_ann, of_bob) = (ann.create_id("pid").await, bob.create_id("pid").await);
    let caller = bob.clone();
    let plain = tokio::spawn(async move { text_of(&caller, "pid").await });
    for (client, task) in [(&ann, &of_ann), (&bob, &of_bob)] {
        assert_eq!(status_of(&client.get(task).await), "working");
    }
    children.touch("awake");
    for (client, task) in [(&bob, &of_bob), (&ann, &of_ann)] {
        client.until(task, "completed").await;
        assert_eq!(text_in(&client.collect(task).await["result"]), child.pid);
    }
    assert_eq!(soon(plain).await.unwrap(), child.pid);
}

#[tokio::test]
async fn a_child_that_does_not_read_stalls_no_other_session_and_is_bounded() {
    let (_children, gate, stalled, _child) = stalled("").await;
    let awake = Client::connect(&gate.url).await;
    for _ in 0..300 {
        assert_eq!(stalled.notify("notifications/short", json!({})).await, 202);
    }
    let message = refused(&stalled).await;
    assert!(
        message.contains("256 messages of this session wait") && message.contains("to read its stdin"),
        "{message}"
    );
    assert!(!text_of(&awake, "pid").await.is_empty());
    assert_eq!(status_of(&awake.create("pid", json!({})).await), "working");
    assert_eq!(soon(stalled.delete()).await.status, 200);
}

#[tokio::test]
async fn the_call_of_a_task_waits_for_a_child_that_does_not_read_until_it_does() {
    let (children, _gate, client, child) = stalled("").await;
    for _ in 0..300 {
        client.notify("notifications/short", json!({})).await;
    }
    let task = client.create_id("pid").await;
    refused(&client).await;
    assert_eq!(status_of(&client.get(&task).await), "working");
    children.touch("awake");
    client.until(&task, "completed").await;
    assert_eq!(text_in(&client.collect(&task).await["result"]), child.pid);
}

#[tokio::test]
async fn a_task_that_waits_for_a_child_that_does_not_read_ends_with_its_timeout_and_is_neither_called_nor_cancelled_there()
 {
    for shared in ["", "[[upstream]]\nshared = true"] {
        let (children, _gate, client, child) = stalled(&format!("[tasks]\ntimeout = \"300ms\"\n{shared}")).await;
        let task = client.create_id("hold").await;
        let failed = client.until(&task, "failed").await;
        assert!(failed["statusMessage"].as_str().unwrap().contains("timeout = 300ms is over"), "{failed}");
        children.touch("awake");
        assert_eq!(text_of(&client, "pid").await, child.pid);
        let lines = child.lines();
        assert!(!lines.iter().any(|line| line.contains("hold") || line.contains("cancelled")), "{:?}", lines.len());
    }
}

#[tokio::test]
async fn a_call_that_its_client_cancels_before_the_child_has_got_it_ends_at_once_and_the_child_hears_nothing_of_it() {
    for shared in ["", "[[upstream]]\nshared = true"] {
        let (children, _gate, client, child) = stalled(shared).await;
        let caller = client.clone();
        let call = json!({ "jsonrpc": "2.0", "id": "mine", "method": "tools/call", "params": { "name": "hold" } });
        let calling = tokio::spawn(async move { caller.post(call.to_string()).await });
        eventually(async || {
            client.notify("notifications/cancelled", json!({ "requestId": "mine" })).await;
            calling.is_finished().then_some(())
        })
        .await;
        children.touch("awake");
        assert_eq!(text_of(&client, "pid").await, child.pid);
        assert!(!child.lines().iter().any(|line| line.contains("hold") || line.contains("cancelled")));
    }
}

#[tokio::test]
async fn what_waits_for_a_child_that_does_not_read_is_bounded_in_bytes_too() {
    let (_children, _gate, client, _child) = stalled("").await;
    let text = "x".repeat(3_000_000);
    for _ in 0..7 {
        assert_eq!(client.notify("notifications/long", json!({ "text": text })).await, 202);
    }
    let (code, message) = client.error("tools/call", json!({ "name": "pid", "arguments": { "text": text } })).await;
    assert_eq!(code, -32603);
    assert!(message.contains("more than 16777216 bytes of this session would wait"), "{message}");
}

#[tokio::test]
async fn a_message_larger_than_what_may_wait_reaches_a_child_that_reads() {
    let counting = r#"read -r line
        echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
        read -r line; bytes=$(head -n 1 | wc -c)
        printf '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"%s"}]}}\n' "$bytes"
        cat >/dev/null"#;
    let gate = Gate::with_command("sh", &["-c", counting], "[server]\nmax_body = \"32MiB\"").await;
    let client = Client::connect(&gate.url).await;
    let text = "x".repeat(20 << 20);
    let counted = client.ask("tools/call", json!({ "name": "count", "arguments": { "text": text } })).await;
    assert!(text_in(&counted).parse::<usize>().unwrap() > 20 << 20, "{counted}");
}
