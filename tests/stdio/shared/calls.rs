//! Calls, progress and cancellations of sessions that share a child are kept apart.

use serde_json::json;

use super::{SERVER, call, shared};
use crate::kit::{Client, Script, status_of, text_in, text_of};

#[tokio::test]
async fn calls_of_two_sessions_with_the_same_ids_get_their_own_answers() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    // Both clients number their requests from 1.
    let of_ann = call(&ann, &child, "keep ann").await;
    let of_bob = call(&bob, &child, "keep bob").await;
    assert_eq!(text_of(&ann, "give bob").await, "given");
    assert_eq!(text_in(&of_bob.await.unwrap()), "for bob");
    assert_eq!(text_of(&bob, "give ann").await, "given");
    assert_eq!(text_in(&of_ann.await.unwrap()), "for ann");
}

#[tokio::test]
async fn progress_reaches_the_call_that_it_is_about_under_the_clients_own_token() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let with_token = |name: &str| json!({ "name": name, "_meta": { "progressToken": "mine" } });
    let (caller, params) = (ann.clone(), with_token("keep ann"));
    let of_ann = tokio::spawn(async move { caller.answer("tools/call", params).await });
    child.line("keep ann").await;
    let mut of_bob = bob.stream("tools/call", with_token("keep bob"));
    child.line("keep bob").await;
    text_of(&ann, "advance bob").await;
    text_of(&bob, "give bob").await;
    text_of(&bob, "give ann").await;
    assert_eq!(of_bob.message().await["params"], json!({ "progressToken": "mine", "progress": 1 }));
    assert_eq!(text_in(&of_bob.message().await["result"]), "for bob");
    let of_ann = of_ann.await.unwrap();
    assert!(!of_ann.is_stream(), "nothing but the answer: {of_ann:?}");
    assert_eq!(text_in(&of_ann.json()["result"]), "for ann");
}

#[tokio::test]
async fn progress_of_a_task_shows_in_its_own_status_only() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let with_token = |name: &str| json!({ "name": name, "task": {}, "_meta": { "progressToken": 1 } });
    let task = async |client: &Client, tool: &str| {
        let created = client.ask("tools/call", with_token(tool)).await;
        child.line(&format!("{tool:?}")).await;
        created["task"]["taskId"].as_str().unwrap().to_owned()
    };
    let (of_ann, of_bob) = (task(&ann, "keep ann").await, task(&bob, "keep bob").await);
    text_of(&ann, "advance bob").await;
    bob.until_task(&of_bob, |task| task["statusMessage"].as_str().is_some_and(|text| text.starts_with('1'))).await;
    assert!(!ann.get(&of_ann).await["statusMessage"].as_str().unwrap_or_default().starts_with('1'));
}

#[tokio::test]
async fn cancelling_names_the_call_as_the_child_knows_it_and_no_other() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let (of_ann, of_bob) = (ann.create_id("keep ann").await, bob.create_id("keep bob").await);
    child.line("keep ann").await;
    let call = child.message("keep bob").await;
    bob.cancel(&of_bob).await;
    let cancelled = child.message("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
    assert_eq!(status_of(&ann.get(&of_ann).await), "working");
    // A request id of another session means nothing.
    assert_eq!(bob.notify("notifications/cancelled", json!({ "requestId": 1 })).await, 202);
    text_of(&ann, "give ann").await;
    ann.until(&of_ann, "completed").await;
    assert_eq!(child.lines().iter().filter(|line| line.contains("notifications/cancelled")).count(), 1);
}

#[tokio::test]
async fn a_session_that_ends_cancels_its_calls_and_leaves_the_child_to_the_others() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    ann.create_id("keep ann").await;
    let call_of_ann = child.message("keep ann").await;
    let of_bob = call(&bob, &child, "keep bob").await;
    ann.delete().await;
    let cancelled = child.message("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], call_of_ann["id"]);
    text_of(&bob, "give bob").await;
    assert_eq!(text_in(&of_bob.await.unwrap()), "for bob");
    // A child that answers a call of an ended session changes nothing.
    assert_eq!(text_of(&bob, "give ann").await, "given");
    assert_eq!(child.lines().iter().filter(|line| line.contains("notifications/cancelled")).count(), 1);
}

#[tokio::test]
async fn a_line_that_is_too_long_ends_the_call_that_it_answers_and_no_other() {
    let tools = r#"*'"name":"too long"'*)
        printf '{"jsonrpc":"2.0","id":%s,"result":{"text":"' "$id"
        head -c 67200000 /dev/zero | tr '\0' x
        echo '"}}' ;;"#;
    let (children, gate) = shared(Script { tools, ..Script::default() }).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let of_bob = call(&bob, &child, "hold").await;
    let (_, message) = ann.error("tools/call", json!({ "name": "too long" })).await;
    assert!(message.contains("larger than the limit of 67108864 bytes"), "{message}");
    assert_eq!(text_of(&ann, "release").await, "done");
    assert_eq!(text_in(&of_bob.await.unwrap()), "released");
}

#[tokio::test]
async fn a_notification_that_is_too_long_ends_no_call() {
    let tools = r#"*'"name":"talks"'*)
        printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"'
        head -c 67200000 /dev/zero | tr '\0' x
        echo '"}}'
        text "$id" talked ;;"#;
    let (children, gate) = shared(Script { tools, ..Script::default() }).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let of_bob = call(&bob, &child, "hold").await;
    assert_eq!(text_of(&ann, "talks").await, "talked");
    assert_eq!(text_of(&ann, "release").await, "done");
    assert_eq!(text_in(&of_bob.await.unwrap()), "released");
}

#[tokio::test]
async fn an_error_without_an_id_ends_no_call_where_another_session_may_have_caused_it() {
    for code in [-32601, -32600] {
        let careless: &'static str = format!(
            r#"*'"method":"notifications/roots/list_changed"'*)
                echo '{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":"about the note"}}}}' ;;"#
        )
        .leak();
        let (children, gate) = shared(Script { tools: careless, ..Script::default() }).await;
        let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
        let child = children.only().await;
        let held = call(&ann, &child, "hold").await;
        bob.notify("notifications/roots/list_changed", json!({})).await;
        // The child answers in its order.
        assert_eq!(text_of(&bob, "release").await, "done");
        assert_eq!(text_in(&held.await.unwrap()), "released");
    }
}
