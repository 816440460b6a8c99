//! Messages of a server that name no call: whether they belong to a task, and to which.

use serde_json::json;

use super::input::house;

#[tokio::test]
async fn a_call_that_the_client_has_cancelled_claims_no_question() {
    let house = house().await;
    let apart = house.upstream.get_stream().await;
    let (caller, id) = (house.client.clone(), house.client.next_id());
    let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "other" } });
    let calling = tokio::spawn(async move { caller.post(call.to_string()).await });
    // The server does not end the call.
    let _other = house.upstream.held("other").await.sse();
    assert_eq!(house.client.notify("notifications/cancelled", json!({ "requestId": id })).await, 202);
    apart.event(r#"{"jsonrpc":"2.0","id":"ask","method":"elicitation/create","params":{"message":"?"}}"#).await;
    house.client.until(&house.id, "input_required").await;
    calling.abort();
    house.completes().await;
}

#[tokio::test]
async fn list_changed_and_resource_updates_go_to_the_session_and_name_no_task() {
    let house = house().await;
    for method in [
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    ] {
        house.slow.event(&format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)).await;
    }
    house.slow.notify("notifications/resources/updated", json!({ "uri": "x:y" })).await;
    // Also before any stream is open.
    let mut waiting = house.waiting().await;
    let mut listener = house.client.get_stream().await;
    for method in ["tools", "prompts", "resources"] {
        let changed = json!({ "jsonrpc": "2.0", "method": format!("notifications/{method}/list_changed") });
        assert_eq!(listener.message().await, changed);
    }
    assert_eq!(listener.message().await["params"], json!({ "uri": "x:y" }));
    house.completes().await;
    assert!(waiting.message().await["result"].is_object());
}
