//! Users who share one connection with taskgate, as behind another proxy.

use futures_util::future::join_all;
use serde_json::json;

use crate::{
    client::{Modern, TASKS},
    kit::{Client, Gate, Upstream},
};

const USERS: &str = r#"
[auth]
mode = "header"
header = "x-user"
trusted_peers = ["127.0.0.1"]
[[upstream]]
[upstream.tools."*"]
task_after = "0s"
"#;

#[tokio::test]
async fn users_who_take_turns_on_one_connection_find_their_own_tasks_only() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, USERS).await;
    let connection = Client::http2(&gate.url);
    let capabilities = json!({ "extensions": { TASKS: {} } });
    let users =
        ["ann", "bob"].map(|name| Modern { http: connection.with("x-user", name), capabilities: capabilities.clone() });
    let tasks = join_all(users.iter().map(|user| user.call("echo"))).await;
    let [anns, bobs] = [0, 1].map(|nth| tasks[nth]["taskId"].as_str().unwrap());
    let [ann, bob] = &users;
    // In one second, in which each user would be recognised.
    for _ in 0..20 {
        let own = join_all([ann.get(anns), bob.get(bobs)]).await;
        assert_eq!([&own[0]["taskId"], &own[1]["taskId"]], [anns, bobs]);
        let foreign =
            [ann.refusal("tasks/get", json!({ "taskId": bobs })), bob.refusal("tasks/get", json!({ "taskId": anns }))];
        for (status, code, _) in join_all(foreign).await {
            assert_eq!((status, code), (200, -32602));
        }
    }
}
