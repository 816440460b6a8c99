//! Servers without session ids: two calls may have one number in two sessions that no id tells apart.

use serde_json::json;

use crate::{
    House,
    kit::{Answers, Client, Options, Upstream},
    modern_client::{Modern, TASKS},
    resumed::{answer, event, text},
    written,
};

/// A server without sessions whose answers can be resumed.
async fn without_sessions() -> Upstream {
    Upstream::start(Options { answers: Answers::Sse, sessions: false, listens: true, ..Options::default() }).await
}

const USERS: &str = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";

#[tokio::test]
async fn calls_of_two_owners_with_one_number_are_resumed_apart_and_each_gets_its_own_answer() {
    let upstream = without_sessions().await;
    let config = format!("[tasks]\ntask_after = \"0s\"\n{USERS}");
    let mut house = House::before(&upstream.url(), &config).await;
    let client = |name: &str| {
        let capabilities = json!({ "extensions": { TASKS: {} } });
        Modern { http: Client::new(&house.url).with("x-user", name), capabilities }
    };
    // From here on it is known what the server is, and sessions begin alike.
    client("eve").call("echo").await;
    let mut calls = Vec::new();
    for name in ["ann", "bob"] {
        let client = client(name);
        let id = client.call("slow").await["taskId"].as_str().unwrap().to_owned();
        let stream = upstream.held("slow").await.sse();
        let number = stream.seen.id();
        event(&stream, name, "").await;
        calls.push((name, client, id, number, stream));
    }
    assert_eq!(calls[0].3, calls[1].3, "one number");
    written(&Client::new(&house.url).with("x-user", "eve").initialize("2025-11-25", json!({})).await).await;
    house.restart().await;
    for _ in &calls {
        let resumed = upstream.resumed().await;
        let name = resumed.seen.header("last-event-id").to_owned();
        let number = calls.iter().find(|call| call.0 == name).unwrap().3.clone();
        answer(resumed, &number, &text(&name)).await;
    }
    for (name, client, id, ..) in &calls {
        let task = client.until(id, "completed").await;
        assert_eq!(task["result"]["content"], text(name)["content"]);
    }
    assert_eq!(upstream.count("slow"), 2);
}

/// taskgate in front of a server, with a session for each task.
async fn apart(upstream: &Upstream) -> House {
    House::configured(&format!("[[upstream]]\nurl = \"{}\"\nsessions = \"request\"\n", upstream.url()), &[]).await
}

#[tokio::test]
async fn calls_of_one_client_with_one_number_are_resumed_apart_where_each_had_a_session_of_its_own() {
    let upstream = without_sessions().await;
    let mut house = apart(&upstream).await;
    let client = Client::connect(&house.url).await;
    let mut calls = Vec::new();
    for name in ["one", "two"] {
        let id = client.create_id("slow").await;
        let stream = upstream.held("slow").await.sse();
        event(&stream, name, "").await;
        calls.push((name, id, stream.seen.id(), stream));
    }
    assert_eq!(calls[0].2, calls[1].2, "one number");
    written(&client).await;
    house.restart().await;
    for _ in &calls {
        let resumed = upstream.resumed().await;
        let name = resumed.seen.header("last-event-id").to_owned();
        answer(resumed, &calls[0].2, &text(&name)).await;
    }
    for (name, id, ..) in &calls {
        client.until(id, "completed").await;
        assert_eq!(client.collect(id).await["result"]["content"], text(name)["content"]);
    }
}

#[tokio::test]
async fn what_a_server_says_in_the_session_of_a_task_reaches_the_clients_own_after_a_restart_too() {
    const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let upstream = Upstream::sse().await;
    let mut house = apart(&upstream).await;
    let client = Client::connect(&house.url).await;
    let id = client.create_id("slow").await;
    let stream = upstream.held("slow").await.sse();
    let call = stream.seen.id();
    let mut heard = client.get_stream().await;
    event(&stream, "e1", CHANGED).await;
    assert_eq!(heard.message().await["method"], "notifications/tools/list_changed");
    written(&client).await;
    house.restart().await;
    let resumed = upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "e1");
    let mut heard = client.get_stream().await;
    event(&resumed, "e2", CHANGED).await;
    assert_eq!(heard.message().await["method"], "notifications/tools/list_changed");
    answer(resumed, &call, &text("done")).await;
    client.until(&id, "completed").await;
}
