//! How a shared child starts, is initialised and ends.

use serde_json::json;

use super::{SERVER, shared};
use crate::kit::{Client, Script, eventually, status_of, text_of};

#[tokio::test]
async fn all_sessions_have_one_child_which_is_initialized_once_and_by_taskgate() {
    let (children, gate) = shared(Script::default()).await;
    assert!(children.started().is_empty(), "it is started for a session, not before");
    let (ann, bob) = tokio::join!(Client::connect(&gate.url), Client::connect_as(&gate.url, "2025-03-26", json!({})));
    let child = children.only().await;
    assert_eq!((text_of(&ann, "pid").await, text_of(&bob, "pid").await), (child.pid.clone(), child.pid.clone()));
    let initialize = child.message(r#""initialize""#).await;
    let info = json!({ "name": "taskgate", "version": env!("CARGO_PKG_VERSION") });
    assert_eq!(
        (&initialize["params"]["clientInfo"], &initialize["params"]["protocolVersion"]),
        (&info, &json!("2025-11-25"))
    );
    let capabilities = &initialize["params"]["capabilities"];
    assert_eq!(capabilities["elicitation"], json!({ "form": {}, "url": {} }));
    assert!(capabilities["roots"].is_object() && capabilities["sampling"].is_object());
    let greetings: Vec<_> = child.lines().into_iter().filter(|line| line.contains("initialize")).collect();
    assert_eq!(greetings.len(), 2, "initialize and initialized, once each: {greetings:?}");
}

#[tokio::test]
async fn each_session_agrees_on_its_own_revision_and_sees_the_childs_answer() {
    let (_children, gate) = shared(Script::default()).await;
    let ann = Client::connect(&gate.url).await;
    let bob = Client::connect_as(&gate.url, "2024-11-05", json!({})).await;
    for (client, version) in [(&ann, "2025-11-25"), (&bob, "2024-11-05")] {
        assert_eq!(client.initialized["protocolVersion"], version);
        assert_eq!(client.initialized["serverInfo"], json!({ "name": "sh", "version": "1" }));
    }
    assert!(ann.initialized["capabilities"]["tasks"].is_object());
    assert_eq!(bob.initialized["capabilities"].get("tasks"), None);
}

#[tokio::test]
async fn a_child_that_refuses_a_revision_and_names_an_older_one_is_asked_again() {
    let tools = r#"*'"method":"initialize"'*2025-11-25*)
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no","data":{"supported":["2024-11-05"]}}}\n' "$id" ;;"#;
    let (children, gate) = shared(Script { tools, ..Script::default() }).await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "pid").await, children.only().await.pid);
}

#[tokio::test]
async fn a_child_that_dies_fails_the_calls_of_all_sessions_and_the_next_session_starts_another() {
    let (children, gate) = shared(Script::default()).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let task = ann.create_id("hold").await;
    child.line(r#""hold""#).await;
    let (_, message) = bob.error("tools/call", json!({ "name": "die" })).await;
    assert!(message.ends_with("exit status: 3; its last words: the disk is on fire"), "{message}");
    let failed = ann.until(&task, "failed").await;
    assert_eq!(failed["statusMessage"], message);
    child.gone().await;
    for client in [&ann, &bob] {
        let lost = async || Some(client.answer("ping", json!({})).await.status).filter(|status| *status == 404);
        eventually(lost).await;
    }
    let anew = Client::connect(&gate.url).await;
    assert_ne!(text_of(&anew, "pid").await, child.pid);
    assert_eq!(children.started().len(), 2);
    // An acknowledged task can still be polled.
    assert_eq!(status_of(&ann.get(&task).await), "failed");
}

#[tokio::test]
async fn every_waiting_session_gets_the_error_of_a_child_that_ends_before_it_is_initialized() {
    let (children, gate) =
        shared(Script { setup: "echo 'no licence' >&2; sleep 0.2; exit 4", ..Script::default() }).await;
    let (ann, bob) = (Client::new(&gate.url), Client::new(&gate.url));
    let (ann, bob) =
        tokio::join!(ann.ask_to_initialize("2025-11-25", json!({})), bob.ask_to_initialize("2025-11-25", json!({})));
    for answer in [ann, bob] {
        let (status, code, message) = answer.refusal();
        assert_eq!((status, code), (200, -32603));
        assert!(message.ends_with("exit status: 4; its last words: no licence"), "{message}");
    }
    assert_eq!(children.started().len(), 1);
}

#[tokio::test]
async fn a_child_that_refuses_to_initialize_gives_its_own_error_and_ends() {
    let refusing = r#"*'"method":"initialize"'*)
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"closed"}}\n' "$id" ;;"#;
    let (children, gate) = shared(Script { tools: refusing, ..Script::default() }).await;
    let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
    assert_eq!(answer.refusal(), (200, -32000, "closed".to_owned()));
    assert_eq!(answer.json()["id"], 0);
    children.only().await.gone().await;
}

#[tokio::test]
async fn the_child_outlives_a_pause_between_sessions_and_ends_with_taskgate() {
    let (children, gate) = shared(SERVER).await;
    let client = Client::connect(&gate.url).await;
    let child = children.only().await;
    client.delete().await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "pid").await, child.pid);
    client.delete().await;
    gate.stop().await;
    assert!(!child.is_alive());
    child.line("end of stdin").await;
}

#[tokio::test]
async fn a_client_that_leaves_while_the_child_starts_does_not_hold_up_others() {
    let (children, gate) =
        shared(Script { setup: "while [ ! -e \"$dir/go\" ]; do sleep 0.01; done", ..Script::default() }).await;
    let first = Client::new(&gate.url);
    let asking = tokio::spawn(async move { first.ask_to_initialize("2025-11-25", json!({})).await });
    let child = children.only().await;
    let url = gate.url.clone();
    let second = tokio::spawn(async move { Client::connect(&url).await });
    asking.abort();
    children.touch("go");
    assert_eq!(text_of(&second.await.unwrap(), "pid").await, child.pid);
}
