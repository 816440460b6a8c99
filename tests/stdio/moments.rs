//! Children that end at each moment of a task: it reaches the right end, other sessions go on, and no process stays.

use serde_json::{Value, json};

use crate::kit::{Children, Client, Script, eventually, status_of, text_of};

/// Ends at the moment that the tool's name says; what it has started holds its pipes open.
const DYING: Script = Script {
    setup: "sleep 60 & end() { echo \"$1\" >&2; exit 3; }",
    tools: r#"*'"name":"before the answer"'*) end 'no answer' ;;
    *'"name":"half a line"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[' "$id"; end 'half a line' ;;
    *'"name":"after the answer"'*) text "$id" 'in time'; end 'after the answer' ;;
    *'"name":"killed"'*) kill -9 $$ ;;"#,
    after: "",
};

/// Runs a task on a tool while another session has a call in flight on its own child; returns how the task ended.
async fn outcome_of(tool: &str) -> (Value, Value) {
    let children = Children::new(DYING);
    let gate = children.gate("").await;
    let bystander = Client::connect(&gate.url).await;
    let held = bystander.create_id("hold").await;
    let other = children.only().await;
    other.line(r#""hold""#).await;
    let client = Client::connect(&gate.url).await;
    let pid = text_of(&client, "pid").await;
    let child = children.started().into_iter().find(|child| child.pid == pid).unwrap();
    let id = client.create_id(tool).await;
    let task = client.until_task(&id, |task| status_of(task) != "working").await;
    let collected = client.collect(&id).await;
    child.gone().await;
    // The other session has noticed nothing.
    assert_eq!(status_of(&bystander.get(&held).await), "working");
    text_of(&bystander, "release").await;
    bystander.until(&held, "completed").await;
    assert!(other.is_alive());
    gate.stop().await;
    assert!(!other.is_alive());
    (task, collected)
}

async fn fails_with(tool: &str, why: &str) {
    let (task, collected) = outcome_of(tool).await;
    assert_eq!(status_of(&task), "failed");
    let message = task["statusMessage"].as_str().unwrap();
    assert!(message.contains("the MCP server process behind taskgate has ended") && message.contains(why), "{message}");
    assert_eq!(collected["error"]["message"], message);
}

#[tokio::test]
async fn a_task_whose_child_ends_before_the_answer_fails_with_its_last_words() {
    fails_with("before the answer", "exit status: 3; its last words: no answer").await;
}

#[tokio::test]
async fn a_task_whose_child_ends_after_half_a_line_fails_with_its_last_words() {
    fails_with("half a line", "exit status: 3; its last words: half a line").await;
}

#[tokio::test]
async fn a_task_whose_child_is_killed_fails_with_the_signal() {
    fails_with("killed", "signal: 9 (SIGKILL)").await;
}

#[tokio::test]
async fn a_task_whose_child_ends_right_after_the_answer_is_completed() {
    let (task, collected) = outcome_of("after the answer").await;
    assert_eq!(status_of(&task), "completed");
    assert_eq!(collected["result"]["content"][0]["text"], "in time");
}

#[tokio::test]
async fn the_error_of_a_child_that_ends_at_its_start_has_its_last_words_and_no_process_stays() {
    let children = Children::new(Script { setup: "sleep 60 & echo 'no licence' >&2; exit 4", ..Script::default() });
    let gate = children.gate("").await;
    let (_, _, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert!(message.ends_with("exit status: 4; its last words: no licence"), "{message}");
    children.only().await.gone().await;
}

#[tokio::test]
async fn a_session_whose_child_ends_right_after_initialize_ends_and_no_task_is_acknowledged() {
    let tools = r"*'notifications/initialized'*) echo 'bad start' >&2; exit 4 ;;";
    let children = Children::new(Script { setup: "sleep 60 &", tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    children.only().await.gone().await;
    let refused = eventually(async || {
        let answer = client.answer("tools/call", json!({ "name": "pid", "task": {} })).await;
        (answer.status == 404).then_some(answer)
    });
    assert!(refused.await.refusal().2.contains("initialize"));
}

#[tokio::test]
async fn a_result_can_be_collected_after_the_child_was_killed_while_idle() {
    let children = Children::new(DYING);
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let id = client.create_id("pid").await;
    client.until(&id, "completed").await;
    let child = children.only().await;
    let pid = rustix::process::Pid::from_raw(child.pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    child.gone().await;
    let lost = eventually(async || Some(client.answer("ping", json!({})).await).filter(|answer| answer.status == 404));
    lost.await;
    assert_eq!(client.collect(&id).await["result"]["content"][0]["text"], child.pid);
}
