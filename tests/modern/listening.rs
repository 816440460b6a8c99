//! `subscriptions/listen`.

use rustix::process::Signal;
use serde_json::json;
use uuid::Uuid;

use crate::{
    client::Modern,
    kit::{Gate, Options, Sse, Stream, Upstream, Wrapped},
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
async fn a_subscription_tells_at_once_of_a_task_that_has_ended() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("echo").await;
    let id = task["taskId"].as_str().unwrap();
    let ended = client.until(id, "completed").await;
    let mut stream = client.stream("subscriptions/listen", json!({ "notifications": { "taskIds": [id] } }));
    assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
    let told = stream.message().await;
    assert_eq!(told["method"], "notifications/tasks");
    for member in ["taskId", "status", "result", "ttlMs", "lastUpdatedAt"] {
        assert_eq!(told["params"][member], ended[member], "{member}");
    }
}

#[tokio::test]
async fn resources_are_acknowledged_once_the_server_has_agreed_to_tell_of_them_and_others_never() {
    let capabilities = json!({ "resources": { "subscribe": true } });
    let upstream = Upstream::start(Options { capabilities, ..Options::default() }).await;
    let gate = Gate::before(&upstream).await;
    let wanted = json!({ "notifications": { "resourceSubscriptions": ["file:///no", "file:///a", "file:///no"] } });
    let mut stream = Modern::plain(&gate.url).stream("subscriptions/listen", wanted);
    let answer = async {
        for _ in 0..2 {
            let asked = upstream.held("resources/subscribe").await;
            if asked.seen.json()["params"]["uri"] == "file:///a" {
                asked.result("{}");
            } else {
                asked.error(r#"{"code":-32602,"message":"no such resource"}"#);
            }
        }
    };
    let (acknowledged, ()) = tokio::join!(stream.message(), answer);
    assert_eq!(acknowledged["params"]["notifications"], json!({ "resourceSubscriptions": ["file:///a"] }));
}

/// Subscribes to changes of tools. Returns the server, taskgate, the server's end of its GET stream, and the subscription.
async fn subscribed() -> (Upstream, Gate, Sse, Stream) {
    let capabilities = json!({ "tools": { "listChanged": true } });
    let upstream = Upstream::start(Options { listens: true, capabilities, ..Options::default() }).await;
    let gate = Gate::before(&upstream).await;
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let mut stream = Modern::plain(&gate.url).stream("subscriptions/listen", wanted);
    let (server, _) = tokio::join!(upstream.get_stream(), stream.message());
    (upstream, gate, server, stream)
}

#[tokio::test]
async fn a_change_that_a_server_tells_in_more_than_64_kib_is_not_kept_for_subscribers() {
    let (_upstream, _gate, server, mut stream) = subscribed().await;
    for much in ["x".repeat(64 * 1024), "little".to_owned()] {
        server.notify("notifications/tools/list_changed", json!({ "_meta": { "much": much } })).await;
    }
    assert_eq!(stream.message().await["params"]["_meta"]["much"], "little");
}

#[tokio::test]
async fn a_subscription_ends_when_the_server_refuses_its_stream_as_it_has_forgotten_the_session() {
    for (status, body) in [(404, ""), (400, "Invalid or missing session ID")] {
        let (upstream, _gate, server, mut stream) = subscribed().await;
        server.raw("retry: 100\n\n").await;
        upstream.hold("GET");
        drop(server);
        upstream.held("GET").await.status(status, &[("content-type", "text/plain")], body);
        assert_eq!(stream.message().await["method"], "notifications/cancelled", "{status}");
        assert_eq!(stream.message().await["result"]["resultType"], "complete", "{status}");
    }
}

#[tokio::test]
async fn a_server_that_answers_the_first_request_for_a_stream_with_404_keeps_its_session() {
    let upstream = Upstream::json().await;
    upstream.hold("GET");
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let mut stream = client.stream("subscriptions/listen", wanted);
    upstream.held("GET").await.status(404, &[], "");
    assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
    client.call("echo").await;
    assert_eq!(upstream.count("initialize"), 1);
}

#[tokio::test]
async fn notifications_about_tasks_need_the_extension() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let (status, code, _) =
        Modern::plain(&gate.url).refusal("subscriptions/listen", json!({ "notifications": { "taskIds": [] } })).await;
    assert_eq!((status, code), (400, -32021));
}

#[tokio::test]
async fn unknown_tasks_of_a_subscription_count_as_look_ups_that_fail() {
    for upstream in [Upstream::json().await, Upstream::modern(json!({ "tools": {} })).await] {
        let gate = Gate::with(&upstream, "[rate]\nfailed_lookups = \"2/h\"\n").await;
        let client = Modern::with_tasks(&gate.url);
        let guesses = [Uuid::new_v4(), Uuid::new_v4()];
        let mut stream = client.stream("subscriptions/listen", json!({ "notifications": { "taskIds": guesses } }));
        assert_eq!(stream.message().await["params"]["notifications"], json!({}));
        let looked_up = (0..9).map(|_| client.refusal("tasks/get", json!({ "taskId": "unknown" })));
        let answers = futures_util::future::join_all(looked_up).await;
        let refused = answers.iter().filter(|(status, ..)| *status == 429).count();
        assert_eq!(refused, 1, "8 are held back: {answers:?}");
    }
}

#[tokio::test]
async fn what_subscriptions_keep_is_bounded_in_bytes() {
    for is_modern in [false, true] {
        let upstream = if is_modern { Upstream::modern(json!({})).await } else { Upstream::json().await };
        let gate = Gate::before(&upstream).await;
        let client = Modern::plain(&gate.url);
        // Each is kept as it came, and what it names four times more.
        let long = json!({ "notifications": { "resourceSubscriptions": ["x".repeat(3_500_000)] } });
        let mut open = Vec::new();
        for _ in 0..3 {
            let mut stream = client.stream("subscriptions/listen", long.clone());
            let theirs = if is_modern { Some(upstream.held("subscriptions/listen").await) } else { None };
            if theirs.is_none() {
                stream.message().await;
            }
            open.push((stream, theirs));
        }
        let (status, code, why) = client.refusal("subscriptions/listen", long).await;
        assert_eq!((status, code), (200, -32603));
        assert!(why.contains("64MiB"), "{why}");
    }
}

#[tokio::test]
async fn on_a_channel_a_subscription_that_taskgate_tears_down_is_cancelled_and_answered() {
    let upstream = Upstream::sse().await;
    let url = upstream.url();
    let mut client = Wrapped::start(&["--upstream", &url]);
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let id = client.ask("subscriptions/listen", Modern::plain("").params(wanted)).await;
    assert_eq!(client.message().await["method"], "notifications/subscriptions/acknowledged");
    client.signal(Signal::TERM);
    let cancelled = client.message().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("notifications/cancelled"), &json!(id))
    );
    assert_eq!(cancelled["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    let closed = client.message().await;
    assert_eq!((&closed["id"], &closed["result"]["resultType"]), (&json!(id), &json!("complete")), "{closed}");
    client.end().await;
}

#[tokio::test]
async fn a_subscription_to_tasks_alone_needs_no_server() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, "[tasks]\ntask_after = \"0s\"\n").await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await;
    let id = task["taskId"].as_str().unwrap();
    let slow = upstream.held("slow").await.sse();
    // No server of the older generation tells what another extension does.
    let wanted = json!({ "notifications": { "taskIds": [id], "com.example/events": true } });
    let mut before = client.stream("subscriptions/listen", wanted.clone());
    assert_eq!(before.message().await["method"], "notifications/subscriptions/acknowledged");
    slow.cut().await;
    upstream.stop().await;
    let mut after = client.stream("subscriptions/listen", wanted);
    assert_eq!(after.message().await["params"]["notifications"], json!({ "taskIds": [id] }));
    for stream in [&mut before, &mut after] {
        while stream.message().await["params"]["status"] != "failed" {}
    }
}
