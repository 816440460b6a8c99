//! Children that write what they should not, or do not read: the call, the session and the others go on.

use serde_json::json;

use crate::kit::{Children, Client, Script, soon, status_of, text_of};

/// Stops reading at the test's command.
const DOZING: Script =
    Script { setup: "", tools: r#"*'"name":"doze"'*) text "$id" zzz; while :; do sleep 1; done ;;"#, after: "" };

#[tokio::test]
async fn a_flood_on_stderr_does_not_hold_up_an_answer() {
    // A line without end, and many lines: each more than a pipe holds.
    let tools = r#"*'"name":"flood"'*)
        head -c 1000000 /dev/zero | tr '\0' x >&2
        yes 'still here' | head -n 50000 >&2
        text "$id" dry ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "flood").await, "dry");
}

#[tokio::test]
async fn a_flood_on_stderr_from_the_first_moment_does_not_hold_up_the_start() {
    let children = Children::new(Script { setup: "yes wait | head -n 100000 >&2", ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "pid").await, children.only().await.pid);
}

#[tokio::test]
async fn lines_that_are_no_messages_are_skipped() {
    let setup = "echo 'Welcome to the server!'";
    let tools = r#"*'"name":"babble"'*)
        printf 'Debugger attached.\n\n   \n{"half":\n[]\n7\nnull\n"text"\n{}\n'
        printf '\377\376 no UTF-8\n\000\n'
        printf '{"level":"info","id":%s,"msg":"a line of a log"}\n' "$id"
        printf '{"id":%s,"method":"GET","path":"/"}\n' "$id"
        printf '{"jsonrpc":"2.0","id":99999,"result":{"of":"nobody"}}\n'
        text "$id" 'to the point' ;;"#;
    let children = Children::new(Script { setup, tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "babble").await, "to the point");
    let id = client.create_id("babble").await;
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn lines_may_end_as_on_windows_and_arrive_in_pieces() {
    let tools = r#"*'"name":"slowly"'*)
        printf '{"jsonrpc":"2.0","id":%s,' "$id"
        sleep 0.1
        printf '"result":{"content":[{"type":"text","text":"at last"}]}}\r\n' ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "slowly").await, "at last");
}

#[tokio::test]
async fn a_long_answer_arrives_whole() {
    let tools = r#"*'"name":"long"'*) text "$id" "$(head -c 3000000 /dev/zero | tr '\0' x)" ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "long").await.len(), 3_000_000);
    let id = client.create_id("long").await;
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn a_child_that_does_not_read_stalls_no_other_session_and_is_bounded() {
    let children = Children::new(DOZING);
    let gate = children.gate("").await;
    let (dozing, awake) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    assert_eq!(text_of(&dozing, "doze").await, "zzz");
    // More than a pipe holds, and then more messages than may wait.
    let text = "x".repeat(200_000);
    assert_eq!(dozing.notify("notifications/long", json!({ "text": text })).await, 202);
    for _ in 0..300 {
        assert_eq!(dozing.notify("notifications/short", json!({})).await, 202);
    }
    let (code, message) = dozing.error("tools/call", json!({ "name": "pid" })).await;
    assert_eq!(code, -32603);
    assert!(message.contains("does not read its stdin; 256 messages or"), "{message}");
    let task = dozing.create_id("pid").await;
    let failed = dozing.until(&task, "failed").await;
    assert!(failed["statusMessage"].as_str().unwrap().contains("does not read its stdin"), "{failed}");
    assert!(!text_of(&awake, "pid").await.is_empty());
    assert_eq!(soon(dozing.delete()).await.status, 200);
    assert_eq!(status_of(&awake.create("pid", json!({})).await), "working");
}

#[tokio::test]
async fn what_waits_for_a_child_that_does_not_read_is_bounded_in_bytes_too() {
    let children = Children::new(DOZING);
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "doze").await, "zzz");
    let text = "x".repeat(3_000_000);
    for _ in 0..7 {
        assert_eq!(client.notify("notifications/long", json!({ "text": text })).await, 202);
    }
    let (code, message) = client.error("tools/call", json!({ "name": "pid", "arguments": { "text": text } })).await;
    assert_eq!(code, -32603);
    assert!(message.contains("or 16.0 MiB may wait"), "{message}");
}

#[tokio::test]
async fn sessions_whose_child_does_not_answer_initialize_count_towards_max_sessions() {
    let children = Children::new(Script { setup: "exec sleep 60", ..Script::default() });
    let gate = children.gate("[server]\nmax_sessions = 1").await;
    let first = Client::new(&gate.url);
    let asking = tokio::spawn(async move { first.ask_to_initialize("2025-11-25", json!({})).await });
    let child = children.only().await;
    let (status, code, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32603));
    assert!(message.contains("server.max_sessions = 1"), "{message}");
    assert_eq!(children.started().len(), 1);
    asking.abort();
    child.gone().await;
}

#[tokio::test]
async fn many_megabytes_on_stderr_hold_up_neither_the_task_nor_another_session() {
    let tools =
        r#"*'"name":"flood"'*) yes "$(head -c 1000 /dev/zero | tr '\0' x)" | head -c 20000000 >&2; text "$id" dry ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let (flooding, other) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let id = flooding.create_id("flood").await;
    assert!(!soon(text_of(&other, "pid")).await.is_empty());
    flooding.until(&id, "completed").await;
    assert_eq!(flooding.collect(&id).await["result"]["content"][0]["text"], "dry");
}

#[tokio::test]
async fn a_line_that_is_too_long_ends_the_task_that_it_answers_and_the_next_line_is_read() {
    let tools = r#"*'"name":"too long"'*)
        printf '{"jsonrpc":"2.0","id":%s,"result":{"text":"' "$id"
        head -c 67200000 /dev/zero | tr '\0' x
        echo '"}}' ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let held = client.create_id("hold").await;
    let id = client.create_id("too long").await;
    let failed = client.until(&id, "failed").await;
    assert!(failed["statusMessage"].as_str().unwrap().contains("max_result = 16777216 bytes"), "{failed}");
    assert_eq!(text_of(&client, "release").await, "done");
    client.until(&held, "completed").await;
}
