//! Notifications and responses are accepted without waiting for a slow server.

use serde_json::json;

use crate::kit::{Client, Gate, Held, Upstream, eventually, house, soon};

#[tokio::test(start_paused = true)]
async fn a_notification_that_the_server_does_not_take_is_accepted_after_a_second() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.hold("notifications/x");
    let before = tokio::time::Instant::now();
    let notify = tokio::spawn({
        let client = client.clone();
        async move { client.notify("notifications/x", json!({})).await }
    });
    let held = upstream.held("notifications/x").await;
    assert_eq!(notify.await.unwrap(), 202);
    assert!((1000..1500).contains(&before.elapsed().as_millis()), "{:?}", before.elapsed());
    assert!(held.is_open(), "the server may still take it");
    held.status(202, &[], "");
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_the_server_does_not_take_is_accepted_after_a_second() {
    let upstream = Upstream::sse().await;
    upstream.hold("notifications/initialized");
    let gate = Gate::before(&upstream).await;
    let client = soon(Client::connect(&gate.url)).await;
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    slow.event(r#"{"jsonrpc":"2.0","id":"r","method":"roots/list"}"#).await;
    let asked = call.message().await;
    assert_eq!(client.respond(&asked["id"], json!({ "roots": [] })).await, 202);
    slow.result("{}").await;
}

#[tokio::test]
async fn a_notification_that_the_server_refuses_at_once_is_refused() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.hold("notifications/x");
    for status in [401, 403] {
        let notify = tokio::spawn({
            let client = client.clone();
            async move { client.notify("notifications/x", json!({})).await }
        });
        upstream.held("notifications/x").await.status(status, &[], "");
        assert_eq!(notify.await.unwrap(), status);
    }
    upstream.forget_sessions();
    assert_eq!(client.notify("notifications/y", json!({})).await, 404);
}

#[tokio::test(start_paused = true)]
async fn at_most_64_messages_of_a_session_are_late_and_the_next_one_waits() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.hold("notifications/x");
    let notify = || {
        let client = client.clone();
        tokio::spawn(async move { client.notify("notifications/x", json!({})).await })
    };
    let late: Vec<_> = (0..64).map(|_| notify()).collect();
    for one in late {
        assert_eq!(one.await.unwrap(), 202);
    }
    let mut one_more = notify();
    let waiting = tokio::time::timeout(std::time::Duration::from_secs(5), &mut one_more).await;
    assert!(waiting.is_err(), "{waiting:?}");
    let mut held = Vec::new();
    for _ in 0..65 {
        held.push(upstream.held("notifications/x").await);
    }
    held.pop().unwrap().status(202, &[], "");
    assert_eq!(one_more.await.unwrap(), 202);
}

#[tokio::test(start_paused = true)]
async fn at_most_a_mebibyte_of_messages_of_a_session_is_late() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.hold("notifications/x");
    let notify = |bytes: usize| {
        let client = client.clone();
        tokio::spawn(async move { client.notify("notifications/x", json!({ "pad": "x".repeat(bytes) })).await })
    };
    for late in [notify(600_000), notify(400_000)] {
        assert_eq!(late.await.unwrap(), 202);
    }
    // A large one and a small one wait for the server.
    let mut waiting = [notify(600_000), notify(100_000)];
    for one in &mut waiting {
        assert!(tokio::time::timeout(std::time::Duration::from_secs(5), one).await.is_err());
    }
    for _ in 0..4 {
        upstream.held("notifications/x").await.status(202, &[], "");
    }
    for one in waiting {
        assert_eq!(one.await.unwrap(), 202);
    }
}

#[tokio::test]
async fn at_most_64_late_messages_of_clients_that_left_are_kept_and_the_rest_is_given_up() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.hold("notifications/x");
    let mut leaving = tokio::task::JoinSet::new();
    let mut held = Vec::new();
    for _ in 0..70 {
        let client = client.clone();
        leaving.spawn(async move { client.notify("notifications/x", json!({})).await });
        held.push(upstream.held("notifications/x").await);
    }
    leaving.shutdown().await;
    eventually(async || (held.iter().filter(|held| held.is_open()).count() == 64).then_some(())).await;
    for late in held.into_iter().filter(Held::is_open) {
        late.status(202, &[], "");
    }
    assert_eq!(client.notify("notifications/y", json!({})).await, 202);
}

#[tokio::test]
async fn a_large_message_goes_on_though_its_client_has_left_but_not_a_second_one() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.hold("notifications/x");
    let (mut leaving, mut held) = (tokio::task::JoinSet::new(), Vec::new());
    for _ in 0..2 {
        let client = client.clone();
        leaving.spawn(async move { client.notify("notifications/x", json!({ "pad": "x".repeat(2 << 20) })).await });
        held.push(upstream.held("notifications/x").await);
    }
    leaving.shutdown().await;
    let open = || held.iter().filter(|held| held.is_open()).count();
    eventually(async || (open() < 2).then_some(())).await;
    // Both clients left before this one came.
    assert_eq!(client.notify("notifications/y", json!({})).await, 202);
    assert_eq!(open(), 1);
}
