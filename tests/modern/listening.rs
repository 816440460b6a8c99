//! `subscriptions/listen`.

use serde_json::json;

use crate::{
    client::Modern,
    kit::{Gate, Upstream},
};

#[tokio::test]
async fn a_subscription_is_acknowledged_first_and_tells_of_its_tasks_with_its_id() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await;
    let id = task["taskId"].as_str().unwrap();
    let wanted = json!({ "taskIds": [id, "unknown"], "toolsListChanged": false });
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": wanted }));
    let acknowledged = stream.message().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({ "taskIds": [id] }));
    let subscription = acknowledged["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
    assert!(subscription.is_u64(), "{acknowledged}");
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    let ended = loop {
        let told = stream.message().await;
        assert_eq!(told["method"], "notifications/tasks");
        assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], subscription);
        if told["params"]["status"] != "working" {
            break told;
        }
    };
    assert_eq!(ended["params"]["status"], "completed");
    assert_eq!(ended["params"]["result"]["content"], json!([]));
}

#[tokio::test]
async fn notifications_about_tasks_need_the_extension() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let (status, code, _) =
        Modern::plain(&gate.url).refusal("subscriptions/listen", json!({ "notifications": { "taskIds": [] } })).await;
    assert_eq!((status, code), (400, -32021));
}
