//! The sessions with the server: kept apart by owner and by what the client can be asked.

use serde_json::json;

use crate::{
    client::Modern,
    kit::{Gate, Upstream},
};

const USERS: &str =
    "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n[tasks]\ntask_after = \"0s\"\n";

fn user(gate: &Gate, name: &str) -> Modern {
    let client = Modern::with_tasks(&gate.url);
    Modern { http: client.http.with("x-user", name), ..client }
}

#[tokio::test]
async fn each_owner_and_each_set_of_capabilities_has_a_session_of_its_own() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, USERS).await;
    let (ann, bob) = (user(&gate, "ann"), user(&gate, "bob"));
    let able = Modern { capabilities: json!({ "sampling": {} }), ..ann.clone() };
    for client in [&ann, &bob, &able, &ann, &bob, &able] {
        client.result("tools/list", json!({})).await;
    }
    assert_eq!(upstream.count("initialize"), 3);
    let seen = upstream.seen();
    let lists = seen.iter().filter(|seen| seen.rpc() == "tools/list");
    let listed: Vec<_> = lists.map(|seen| seen.header("mcp-session-id").to_owned()).collect();
    assert_eq!((&listed[0], &listed[1], &listed[2]), (&listed[3], &listed[4], &listed[5]));
    assert!(listed[0] != listed[1] && listed[0] != listed[2] && listed[1] != listed[2]);
}

#[tokio::test]
async fn a_task_is_its_owners_alone() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, USERS).await;
    let (ann, bob) = (user(&gate, "ann"), user(&gate, "bob"));
    let task = ann.call("slow").await;
    let id = task["taskId"].as_str().unwrap();
    let params = json!({ "taskId": id });
    for method in ["tasks/get", "tasks/cancel"] {
        assert_eq!(bob.refusal(method, params.clone()).await.1, -32602);
    }
    assert_eq!(ann.get(id).await["status"], "working");
}

#[tokio::test]
async fn where_no_name_is_known_a_task_is_for_the_client_that_knows_its_id() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let task = Modern::with_tasks(&gate.url).call("slow").await;
    let other = Modern::with_tasks(&gate.url);
    assert_eq!(other.get(task["taskId"].as_str().unwrap()).await["status"], "working");
}
