//! Progress comes under the client's own token, on the stream of the request, and under no other.

use serde_json::json;

use crate::kit::{Upstream, events, house};

const TOKENS: [&str; 6] = [r#""mine""#, "7", "0", "123456789012345678901234567890", r#""\u0041 \"quoted\"""#, "-1"];

#[tokio::test]
async fn progress_comes_back_under_the_token_that_the_client_gave() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    for token in TOKENS {
        let params = format!(r#"{{"name":"slow","_meta":{{"a":1,"progressToken": {token} }}}}"#);
        let body = format!(r#"{{"jsonrpc":"2.0","id":"i","method":"tools/call","params":{params}}}"#);
        let client = client.clone();
        let posted = tokio::spawn(async move { client.post(body).await });
        let slow = upstream.held("slow").await.sse();
        let ours = slow.seen.json()["params"]["_meta"]["progressToken"].take();
        assert_eq!(
            slow.seen.text(),
            format!(
                r#"{{"jsonrpc":"2.0","id":{},"method":"tools/call","params":{{"name":"slow","_meta":{{"a":1,"progressToken": {ours} }}}}}}"#,
                slow.seen.id()
            )
        );
        assert!(ours.as_u64().is_some_and(|ours| ours > 0), "{ours}");
        let progress = |token: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progress":0.10,"progressToken":{token},"x":[ ]}}}}"#
            )
        };
        // As a number and, as some do it, as a string.
        slow.event(&progress(&ours.to_string())).await;
        slow.event(&progress(&format!("\"{ours}\""))).await;
        slow.result("{}").await;
        let answer = posted.await.unwrap();
        let events: Vec<String> = events(answer.text()).into_iter().map(|event| event.data).collect();
        let response = r#"{"jsonrpc":"2.0","id":"i","result":{}}"#;
        assert_eq!(events, [&*progress(token), &*progress(token), response], "{token}");
    }
}

#[tokio::test]
async fn a_token_written_with_escapes_is_found_too() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","_\u006deta":{"progress\u0054oken":"secret"}}}"#;
    let posted = tokio::spawn(async move { client.post(body).await });
    let slow = upstream.held("slow").await.sse();
    assert!(!slow.seen.text().contains("secret"), "{}", slow.seen.text());
    slow.progress(1).await;
    slow.result("{}").await;
    assert!(posted.await.unwrap().text().contains(r#""progressToken":"secret""#));
}

#[tokio::test]
async fn progress_that_no_client_asked_for_is_dropped() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut listener = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    let mut answer = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    let own = slow.seen.json()["id"].take();
    for token in [own, json!("mine"), json!(4711)] {
        slow.notify("notifications/progress", json!({ "progressToken": token, "progress": 1 })).await;
        to_listener.notify("notifications/progress", json!({ "progressToken": token, "progress": 1 })).await;
    }
    slow.notify("notifications/marker", json!({})).await;
    to_listener.notify("notifications/marker", json!({})).await;
    assert_eq!(answer.message().await["method"], "notifications/marker");
    assert_eq!(listener.message().await["method"], "notifications/marker");
}

#[tokio::test]
async fn two_calls_with_the_same_token_get_their_own_progress() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let params = |tool: &str| json!({ "name": tool, "_meta": { "progressToken": "t" } });
    let (mut first, mut second) = (client.stream("tools/call", params("a")), client.stream("tools/call", params("b")));
    let (a, b) = (upstream.held("a").await.sse(), upstream.held("b").await.sse());
    b.progress(2).await;
    a.progress(1).await;
    assert_eq!(first.message().await["params"], json!({ "progressToken": "t", "progress": 1 }));
    assert_eq!(second.message().await["params"], json!({ "progressToken": "t", "progress": 2 }));
}

#[tokio::test]
async fn progress_of_a_call_that_comes_on_the_get_stream_goes_to_the_call() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let _listener = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    let mut answer = client.stream("tools/call", json!({ "name": "slow", "_meta": { "progressToken": "t" } }));
    let slow = upstream.held("slow").await.sse();
    let token = slow.seen.json()["params"]["_meta"]["progressToken"].take();
    to_listener.notify("notifications/progress", json!({ "progressToken": token, "progress": 3 })).await;
    assert_eq!(answer.message().await["params"], json!({ "progressToken": "t", "progress": 3 }));
}
