//! Calls that waited for their turns when the process was killed wait again, and are sent once.

use serde_json::json;

use crate::{
    House,
    kit::{Children, Client, Script, Upstream, status_of},
};

/// The first call of this tool is not answered.
const ONCE: &str = r#"*'"name":"once"'*) if mkdir "$dir/ran" 2>/dev/null; then held=$id; else text "$id" ran; fi ;;"#;
const ONE_AT_A_TIME: &str = "[tasks]\nmax_running = 1\n";
const DONE: &str = r#"{"content":[]}"#;

#[tokio::test]
async fn calls_that_waited_are_sent_once_and_in_their_order() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), ONE_AT_A_TIME).await;
    let client = Client::connect(&house.url).await;
    let mut ids = Vec::new();
    for n in 0..4 {
        let call = json!({ "name": "slow", "arguments": { "n": n }, "task": {} });
        ids.push(client.ask("tools/call", call).await["task"]["taskId"].as_str().unwrap().to_owned());
    }
    let first = upstream.held("slow").await;
    house.restart().await;
    drop(first);
    assert_eq!(status_of(&client.get(&ids[0]).await), "failed");
    for (n, id) in ids.iter().enumerate().skip(1) {
        let held = upstream.held("slow").await;
        assert_eq!(held.seen.json()["params"]["arguments"]["n"], n);
        assert_eq!(held.seen.json()["params"].get("task"), None);
        assert_eq!(upstream.count("slow"), n + 1);
        held.result(DONE);
        client.until(id, "completed").await;
    }
}

#[tokio::test]
async fn a_call_that_waited_through_several_starts_is_sent_once() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), ONE_AT_A_TIME).await;
    let client = Client::connect(&house.url).await;
    let [first, second, third] =
        [client.create_id("slow").await, client.create_id("slow").await, client.create_id("slow").await];
    let held = upstream.held("slow").await;
    house.restart().await;
    let second_held = upstream.held("slow").await;
    house.restart().await;
    drop((held, second_held));
    upstream.held("slow").await.result(DONE);
    client.until(&third, "completed").await;
    for id in [first, second] {
        assert_eq!(status_of(&client.get(&id).await), "failed");
    }
    assert_eq!(upstream.count("slow"), 3);
}

#[tokio::test]
async fn a_call_that_waited_in_a_session_whose_server_was_a_process_gets_a_new_process() {
    let children = Children::new(Script { tools: ONCE, ..Script::default() });
    let config = format!("{ONE_AT_A_TIME}[[upstream]]\ncommand = {}\n", json!(children.command()));
    let mut house = House::configured(&config, &[]).await;
    let client = Client::connect(&house.url).await;
    let (blocked, waits) = (client.create_id("once").await, client.create_id("once").await);
    children.only().await.line("once").await;
    house.restart().await;
    client.until(&waits, "completed").await;
    assert_eq!(status_of(&client.get(&blocked).await), "failed");
}

#[tokio::test]
async fn a_call_that_waited_is_sent_in_a_new_session_where_the_server_was_restarted_too() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), ONE_AT_A_TIME).await;
    let client = Client::connect(&house.url).await;
    let (running, waits) = (client.create_id("slow").await, client.create_id("slow").await);
    let held = upstream.held("slow").await;
    house.end(rustix::process::Signal::KILL).await;
    upstream.forget_sessions();
    house.start_again().await;
    drop(held);
    let held = upstream.held("slow").await;
    assert_eq!(held.seen.header("mcp-session-id"), "upstream-2");
    held.result(DONE);
    client.until(&waits, "completed").await;
    assert_eq!((status_of(&client.get(&running).await), upstream.count("slow")), ("failed", 2));
    assert_eq!(client.answer("tools/list", json!({})).await.status, 404, "its own session is lost");
}

const FORWARDS: &str = "[tasks]\nmax_running = 1\n[auth]\nmode = \"bearer\"\n";

async fn with_credentials(store: &str, env: &[(&str, &str)]) -> (Upstream, House, Client, String) {
    let upstream = Upstream::json().await;
    let config =
        format!("{FORWARDS}{store}\n[[upstream]]\nurl = \"{}\"\nforward_authorization = true\n", upstream.url());
    let mut house = House::configured(&config, env).await;
    let client = Client::new(&house.url).with("authorization", "Bearer ann");
    let client = client.initialize("2025-11-25", json!({})).await;
    client.create_id("slow").await;
    let waits = client.create_id("slow").await;
    let first = upstream.held("slow").await;
    house.restart().await;
    drop(first);
    (upstream, house, client, waits)
}

#[tokio::test]
async fn a_call_whose_credentials_were_not_kept_fails_and_says_so() {
    let (upstream, house, client, waits) = with_credentials("", &[]).await;
    let task = client.until(&waits, "failed").await;
    let why = task["statusMessage"].as_str().unwrap();
    assert!(why.contains("was not sent") && why.contains("credentials were not kept"), "{why}");
    assert_eq!(upstream.count("slow"), 1);
    let file = std::fs::read(house.folder.path().join("store.db")).unwrap();
    let log = std::fs::read(house.folder.path().join("store.db-wal")).unwrap_or_default();
    assert!([file, log].iter().all(|bytes| memchr::memmem::find(bytes, b"Bearer ann").is_none()));
}

#[tokio::test]
async fn a_call_is_sent_with_its_credentials_where_the_store_has_a_key() {
    let env = [("STORE_KEY", "a-key-of-many-characters-0123456789")];
    let (upstream, _house, client, waits) = with_credentials("[store]\nkey = { env = \"STORE_KEY\" }", &env).await;
    let held = upstream.held("slow").await;
    assert_eq!(held.seen.header("authorization"), "Bearer ann");
    held.result(DONE);
    client.until(&waits, "completed").await;
}
