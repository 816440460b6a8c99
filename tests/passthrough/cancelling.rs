//! `notifications/cancelled` names the request as the upstream knows it.

use serde_json::json;

use crate::kit::{Client, Gate, Upstream, house};

#[tokio::test]
async fn a_cancellation_names_the_id_that_the_upstream_knows() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    for id in [r#""mine""#, "41", "123456789012345678901234567890"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"slow"}}}}"#);
        let posted = tokio::spawn({
            let client = client.clone();
            async move { client.post(body).await }
        });
        let slow = upstream.held("slow").await;
        let cancelled = |id: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"reason":"enough \u00e9","requestId": {id} }}}}"#
            )
        };
        assert_eq!(client.post(cancelled(id)).await.status, 202);
        let expected = cancelled(&slow.seen.id());
        assert_eq!(upstream.wait_for(|seen| seen.text() == expected).await.text(), expected);
        // An upstream that answers all the same is heard.
        slow.result("{}");
        assert_eq!(posted.await.unwrap().text(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
}

#[tokio::test]
async fn a_cancelled_request_that_the_upstream_never_answers_ends_without_a_response() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut answer = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    client.notify("notifications/cancelled", json!({ "requestId": 1 })).await;
    assert_eq!(answer.next().await, None);
    slow.abandoned().await;
}

#[tokio::test]
async fn a_cancellation_of_nothing_in_flight_is_accepted_and_goes_nowhere() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    client.ask("ping", json!({})).await;
    for params in [json!({ "requestId": 1 }), json!({ "requestId": "x" }), json!({}), json!({ "requestId": null })] {
        assert_eq!(client.notify("notifications/cancelled", params).await, 202);
    }
    assert_eq!(client.post(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#).await.status, 202);
    client.ask("ping", json!({})).await;
    assert_eq!(upstream.count("notifications/cancelled"), 0);
}

#[tokio::test]
async fn a_client_cannot_cancel_the_request_of_another() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let asked = tokio::spawn(async move { ann.request("tools/call", json!({ "name": "slow" })).await });
    let slow = upstream.held("slow").await;
    assert_eq!(bob.notify("notifications/cancelled", json!({ "requestId": 1 })).await, 202);
    assert_eq!(upstream.count("notifications/cancelled"), 0);
    slow.result("{}");
    assert_eq!(asked.await.unwrap()["result"], json!({}));
}

#[tokio::test]
async fn a_server_can_cancel_its_own_request() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut answer = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    slow.event(r#"{"jsonrpc":"2.0","id":3,"method":"sampling/createMessage","params":{}}"#).await;
    slow.notify("notifications/cancelled", json!({ "requestId": 3 })).await;
    assert_eq!(answer.message().await["method"], "sampling/createMessage");
    assert_eq!(answer.message().await["params"], json!({ "requestId": 3 }));
}

#[tokio::test]
async fn a_request_is_cancelled_once_however_often_its_client_cancels_it() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let _call = tokio::spawn({
        let client = client.clone();
        let call = r#"{"jsonrpc":"2.0","id":"again","method":"tools/call","params":{"name":"slow"}}"#;
        async move { client.post(call).await }
    });
    let _slow = upstream.held("slow").await;
    for _ in 0..3 {
        assert_eq!(client.notify("notifications/cancelled", json!({ "requestId": "again" })).await, 202);
    }
    assert_eq!(upstream.count("notifications/cancelled"), 1);
}
