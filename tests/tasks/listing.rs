//! `tasks/list`: every task of the owner, page by page.

use serde_json::json;

use crate::kit::{Client, Gate, Upstream, house};

#[tokio::test]
async fn every_task_that_tasks_get_finds_is_listed_once_over_all_pages() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    let mut created = Vec::new();
    for _ in 0..123 {
        created.push(client.create_id("echo").await);
    }
    let page = client.ask("tasks/list", json!({})).await;
    assert!(page["tasks"].as_array().unwrap().len() < 123, "no pages");
    assert!(page["nextCursor"].is_string());
    let mut listed = client.list().await;
    listed.sort();
    created.sort();
    assert_eq!(listed, created);
}

#[tokio::test]
async fn a_short_list_has_no_next_cursor_and_its_tasks_are_as_tasks_get_has_them() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    assert_eq!(client.ask("tasks/list", json!({})).await, json!({ "tasks": [] }));
    let (done, failed, working) =
        (client.create_id("echo").await, client.create_id("fail").await, client.create_id("slow").await);
    client.until(&done, "completed").await;
    client.until(&failed, "failed").await;
    let page = client.ask("tasks/list", json!({})).await;
    assert_eq!(page.get("nextCursor"), None);
    for id in [done, failed, working] {
        let task = client.get(&id).await;
        assert!(page["tasks"].as_array().unwrap().contains(&task), "{task} not in {page}");
    }
    // Params may be missing altogether.
    let answer = client.post(r#"{"jsonrpc":"2.0","id":1,"method":"tasks/list"}"#).await;
    assert_eq!(answer.json()["result"], page);
}

#[tokio::test]
async fn pages_continue_where_they_ended_while_tasks_come_and_go() {
    let (_upstream, _gate, client) = house(Upstream::json()).await;
    let mut before = Vec::new();
    for _ in 0..60 {
        before.push(client.create_id("slow").await);
    }
    let page = client.ask("tasks/list", json!({})).await;
    client.create_id("echo").await;
    let first: Vec<_> = page["tasks"].as_array().unwrap().iter().map(|task| task["taskId"].clone()).collect();
    let rest = client.ask("tasks/list", json!({ "cursor": page["nextCursor"] })).await;
    let rest: Vec<_> = rest["tasks"].as_array().unwrap().iter().map(|task| task["taskId"].clone()).collect();
    for id in before {
        let times = first.iter().chain(&rest).filter(|listed| **listed == json!(id)).count();
        assert_eq!(times, 1);
    }
}

#[tokio::test]
async fn invalid_and_foreign_cursors_are_refused() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    for client in [&ann, &bob] {
        for _ in 0..51 {
            client.create_id("echo").await;
        }
    }
    let cursor = ann.ask("tasks/list", json!({})).await["nextCursor"].take();
    let mut altered = cursor.as_str().unwrap().to_owned();
    let first = if altered.starts_with('A') { "B" } else { "A" };
    altered.replace_range(..1, first);
    for cursor in [cursor, json!(altered), json!(""), json!("1"), json!("AAAA"), json!("ü"), json!(7), json!(null)] {
        let (code, message) = bob.error("tasks/list", json!({ "cursor": cursor })).await;
        assert_eq!(code, -32602, "{cursor}");
        assert!(message.contains("cursor"), "{message}");
    }
}
