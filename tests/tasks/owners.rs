//! Only the owner of a task can reach it, and no other client can tell that it exists.

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Upstream, status_of};

const HEADER: &str = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]";

async fn as_user(gate: &Gate, user: &str) -> Client {
    Client::new(&gate.url).with("x-user", user).initialize("2025-11-25", json!({})).await
}

/// Checks that every task method finds nothing, in the words it has for an id that never was.
async fn finds_nothing(client: &Client, id: &str) {
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let foreign = client.error(method, json!({ "taskId": id })).await;
        let unknown = client.error(method, json!({ "taskId": uuid::Uuid::new_v4().to_string() })).await;
        assert_eq!(foreign, unknown, "{method}");
        assert_eq!(foreign.0, -32602);
    }
    assert!(!client.list().await.contains(&id.to_owned()));
}

#[tokio::test]
async fn a_session_without_a_principal_sees_its_own_tasks_only() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let (working, done) = (ann.create_id("slow").await, ann.create_id("echo").await);
    ann.until(&done, "completed").await;
    finds_nothing(&bob, &working).await;
    finds_nothing(&bob, &done).await;
    assert_eq!(bob.list().await, Vec::<String>::new());
    assert_eq!(status_of(&ann.get(&working).await), "working");
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_anonymous_tasks() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let id = ann.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let mut waiting = ann.stream("tasks/result", json!({ "taskId": id }));
    waiting.head().await;
    ann.delete().await;
    // The waiter is answered, and the call does not go on.
    assert_eq!(waiting.message().await["error"]["code"], -32602);
    slow.abandoned().await;
    finds_nothing(&bob, &id).await;
}

#[tokio::test]
async fn a_principal_sees_its_tasks_in_every_session() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, HEADER).await;
    let (here, there) = (as_user(&gate, "ann").await, as_user(&gate, "ann").await);
    let id = here.create_id("slow").await;
    assert_eq!(status_of(&there.get(&id).await), "working");
    assert_eq!(there.list().await, std::slice::from_ref(&id));
    let slow = upstream.held("slow").await;
    slow.result(r#"{"content":[]}"#);
    assert_eq!(there.collect(&id).await["result"]["content"], json!([]));
}

#[tokio::test]
async fn a_principals_tasks_outlive_the_session_and_go_on_running() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, HEADER).await;
    let first = as_user(&gate, "ann").await;
    let (id, done) = (first.create_id("slow").await, first.create_id("echo").await);
    first.until(&done, "completed").await;
    let slow = upstream.held("slow").await;
    assert_eq!(first.delete().await.status, 200);
    let later = as_user(&gate, "ann").await;
    assert_eq!(status_of(&later.get(&id).await), "working");
    assert!(later.collect(&done).await["result"].is_object());
    assert!(slow.is_open());
    slow.result(r#"{"content":[]}"#);
    later.until(&id, "completed").await;
    // Its upstream session ends once no call runs on it any more.
    upstream.wait_for(|seen| seen.method == "DELETE" && seen.header("mcp-session-id") == "upstream-1").await;
}

#[tokio::test]
async fn a_principals_task_can_be_cancelled_from_another_session() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, HEADER).await;
    let first = as_user(&gate, "ann").await;
    let id = first.create_id("slow").await;
    let slow = upstream.held("slow").await;
    let later = as_user(&gate, "ann").await;
    assert_eq!(status_of(&later.cancel(&id).await), "cancelled");
    let told = upstream.wait_for_message("notifications/cancelled").await;
    assert_eq!(told.header("mcp-session-id"), slow.seen.header("mcp-session-id"));
    assert_eq!(told.json()["params"]["requestId"], slow.seen.json()["id"]);
}

#[tokio::test]
async fn another_principal_finds_nothing() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, HEADER).await;
    let (ann, bob) = (as_user(&gate, "ann").await, as_user(&gate, "bob").await);
    let id = ann.create_id("slow").await;
    finds_nothing(&bob, &id).await;
    for name in ["Ann", "ann2", "an", "a"] {
        finds_nothing(&as_user(&gate, name).await, &id).await;
    }
    assert_eq!(status_of(&ann.get(&id).await), "working");
}

#[tokio::test]
async fn a_session_belongs_to_the_principal_that_opened_it() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, HEADER).await;
    let ann = as_user(&gate, "ann").await;
    let thief = ann.with("x-user", "bob");
    assert_eq!(thief.answer("ping", json!({})).await.status, 404);
    assert_eq!(thief.delete().await.status, 404);
    assert_eq!(thief.send(http::Method::GET, "").await.status, 404);
    assert_eq!(ann.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn a_peer_that_is_not_trusted_is_refused() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &HEADER.replace("127.0.0.1", "10.0.0.0/8")).await;
    let client = Client::new(&gate.url).with("x-user", "ann");
    let (status, code, message) = client.ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (403, -32600));
    assert!(message.contains("trusted_peers"), "{message}");
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_request_without_exactly_one_principal_is_refused() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, HEADER).await;
    let ann = as_user(&gate, "ann").await;
    let mut twice = ann.clone();
    twice.headers.append("x-user", "bob".parse().unwrap());
    for client in [ann.without("x-user"), ann.with("x-user", ""), twice] {
        for method in [http::Method::POST, http::Method::GET, http::Method::DELETE] {
            let answer = client.send(method, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
            let (status, _, message) = answer.refusal();
            assert_eq!(status, 401);
            assert!(message.contains("x-user"), "{message}");
        }
    }
    assert_eq!(ann.ask("ping", json!({})).await, Value::Object(serde_json::Map::new()));
}

#[tokio::test]
async fn a_principal_may_have_any_letters_in_its_name_but_no_bytes_that_are_not_utf_8() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, HEADER).await;
    let jose = as_user(&gate, "josé").await;
    let id = jose.create_id("echo").await;
    jose.until(&id, "completed").await;
    assert_eq!(as_user(&gate, "josé").await.list().await, [id.as_str()]);
    for name in ["jose", "josè", "jos"] {
        finds_nothing(&as_user(&gate, name).await, &id).await;
    }
    let mut latin1 = jose.clone();
    latin1.headers.insert("x-user", http::HeaderValue::from_bytes(b"jos\xe9").unwrap());
    let (status, _, message) = latin1.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await.refusal();
    assert_eq!(status, 401);
    assert!(message.contains("x-user") && message.contains("UTF-8") && !message.contains("once"), "{message}");
}

#[tokio::test]
async fn the_same_principal_behind_another_upstream_finds_nothing() {
    let (here, there) = (Upstream::json().await, Upstream::json().await);
    let upstream =
        |path, upstream: &Upstream| format!("[[upstream]]\npath = \"{path}\"\nurl = \"{}\"\n", upstream.url());
    let toml = format!("{HEADER}\n{}{}", upstream("/here", &here), upstream("/there", &there));
    let gate = Gate::configured(&toml).await;
    let ann = |url: &str| Client::new(url).with("x-user", "ann").initialize("2025-11-25", json!({}));
    let (here, there) = (ann(&gate.urls[0]).await, ann(&gate.urls[1]).await);
    let (working, done) = (here.create_id("slow").await, here.create_id("echo").await);
    here.until(&done, "completed").await;
    finds_nothing(&there, &working).await;
    finds_nothing(&there, &done).await;
    assert_eq!(there.list().await, Vec::<String>::new());
    // Nor is a session of one upstream known to the other.
    let elsewhere = there.with("mcp-session-id", here.session());
    assert_eq!(elsewhere.answer("ping", json!({})).await.status, 404);
    assert_eq!(here.list().await.len(), 2);
}
