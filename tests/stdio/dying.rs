//! Children that end by themselves, or never start.

use serde_json::json;

use crate::kit::{Children, Client, Gate, Script, eventually, status_of, text_of};

const WORDS: &str = "exit status: 3; its last words: the disk is on fire";

#[tokio::test]
async fn a_command_that_does_not_exist_is_an_error_that_names_it() {
    let gate = Gate::with_command("no-such-command-anywhere", &[], "").await;
    let (status, code, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32603));
    assert!(message.contains("cannot start \"no-such-command-anywhere\": No such file"), "{message}");
}

#[tokio::test]
async fn a_child_that_ends_at_once_is_an_error_with_its_last_words() {
    let gate = Gate::with_command("sh", &["-c", "echo first >&2; echo 'no licence found' >&2; exit 5"], "").await;
    let (status, code, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32603));
    assert!(message.ends_with("exit status: 5; its last words: no licence found"), "{message}");
}

#[tokio::test]
async fn a_child_that_refuses_to_initialize_gives_its_own_error_and_ends() {
    let refusing = r#"*'"method":"initialize"'*)
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"closed"}}\n' "$id" ;;"#;
    let children = Children::new(Script { tools: refusing, ..Script::default() });
    let gate = children.gate("").await;
    let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
    assert_eq!(answer.refusal(), (200, -32000, "closed".to_owned()));
    children.only().await.gone().await;
}

#[tokio::test]
async fn a_call_whose_child_dies_fails_with_its_last_words() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let (code, message) = client.error("tools/call", json!({ "name": "die" })).await;
    assert_eq!(code, -32603);
    assert!(message.ends_with(WORDS), "{message}");
    children.only().await.gone().await;
}

#[tokio::test]
async fn every_call_of_a_killed_child_fails_with_the_signal() {
    let children = Children::new(Script { tools: r#"*'"name":"fall"'*) kill -9 $$ ;;"#, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let caller = client.clone();
    let held = tokio::spawn(async move { caller.error("tools/call", json!({ "name": "hold" })).await });
    children.only().await.line(r#""hold""#).await;
    let fallen = client.error("tools/call", json!({ "name": "fall" })).await;
    assert!(fallen.1.contains("signal: 9 (SIGKILL)"), "{}", fallen.1);
    assert_eq!(held.await.unwrap(), fallen);
}

#[tokio::test]
async fn a_task_whose_child_dies_fails_with_its_last_words() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let id = client.create_id("die").await;
    let failed = client.until(&id, "failed").await;
    let why = failed["statusMessage"].as_str().unwrap();
    assert!(why.ends_with(WORDS), "{why}");
    let collected = client.collect(&id).await;
    assert_eq!((&collected["error"]["code"], collected["error"]["message"].as_str().unwrap()), (&json!(-32603), why));
}

#[tokio::test]
async fn tasks_that_have_ended_outlive_the_child_and_other_requests_get_404() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let done = client.create_id("pid").await;
    let task = client.until(&done, "completed").await;
    let died = client.create_id("die").await;
    client.until(&died, "failed").await;
    let child = children.only().await;
    // The failed task reports the end; the child counts as gone once its process group is.
    let refused = eventually(async || {
        let answer = client.answer("tools/call", json!({ "name": "pid" })).await;
        (answer.status != 200).then_some(answer)
    });
    assert_eq!(refused.await.status, 404);
    assert_eq!(client.notify("notifications/roots/list_changed", json!({})).await, 404);
    assert_eq!(client.answer("tools/call", json!({ "name": "pid", "task": {} })).await.status, 404);
    assert_eq!(client.get(&done).await, task);
    assert_eq!(client.collect(&done).await["result"]["content"][0]["text"], child.pid);
    assert_eq!(client.list().await.len(), 2);
    let anew = Client::connect(&gate.url).await;
    assert_ne!(text_of(&anew, "pid").await, child.pid);
}

#[tokio::test]
async fn a_session_without_tasks_ends_with_its_child() {
    let children = Children::new(Script::default());
    let gate = children.gate("").await;
    let (client, other) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    client.error("tools/call", json!({ "name": "die" })).await;
    for _ in 0..2 {
        let (status, _, message) = client.answer("ping", json!({})).await.refusal();
        assert_eq!((status, message.contains("initialize")), (404, true), "{message}");
    }
    assert_eq!(client.answer("tasks/list", json!({})).await.status, 404);
    // Another session has another child.
    assert_eq!(other.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn an_answer_before_the_end_counts_even_without_a_newline() {
    let tools = r#"*'"name":"last"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}' "$id"; exit 0 ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let id = client.create_id("last").await;
    client.until_task(&id, |task| status_of(task) != "working").await;
    assert_eq!(client.collect(&id).await["result"]["content"], json!([]));
}

#[tokio::test]
async fn a_child_that_closes_its_stdin_and_lives_on_is_ended_and_replaced() {
    let deaf = Script {
        setup: "",
        tools: r#"*'"name":"deaf"'*) exec <&-; text "$id" deaf ;;"#,
        after: "while :; do sleep 1; done",
    };
    for keys in ["", "[[upstream]]\nshared = true"] {
        let children = Children::new(deaf);
        let gate = children.gate(keys).await;
        let client = Client::connect(&gate.url).await;
        text_of(&client, "deaf").await;
        let child = children.only().await;
        client.error("tools/call", json!({ "name": "pid" })).await;
        child.gone().await;
        let anew = Client::connect(&gate.url).await;
        assert_ne!(text_of(&anew, "pid").await, child.pid);
    }
}
