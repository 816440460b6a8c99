//! Messages that mean something else to another reader: duplicate members, requests with the names of notifications,
//! and notifications with those of requests. None of them reaches the server.

use http::StatusCode;
use serde_json::json;

use crate::{House, kit::Answer};

fn request(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

/// Checks the refusal of a notification or response: 400, and an error without an id.
#[track_caller]
fn refused(answer: &Answer, expected: i64, words: &str) {
    let (status, code, message) = answer.refusal();
    assert_eq!((status, code), (400, expected), "{message}");
    assert!(message.contains(words), "{message}");
    assert_eq!(answer.json().get("id"), None);
}

#[tokio::test]
async fn a_progress_token_is_not_hidden_behind_another_meta_or_another_token() {
    let house = House::new("").await;
    let client = house.client().await;
    for params in [
        r#"{"_meta":{},"_meta":{"progressToken":7}}"#,
        r#"{"_meta":{"progressToken":7},"_meta":{}}"#,
        r#"{"_meta":{"progressToken":1,"progressToken":7}}"#,
        r#"{"_meta":{},"\u005fmeta":{"progressToken":7}}"#,
        r#"{"_meta":{"progressToken":1,"progress\u0054oken":7}}"#,
        r#"{"_meta":{"x":1,"progressToken":7,"x":2}}"#,
        r#"{"uri":"a","_meta":{"progressToken":7},"uri":"b"}"#,
    ] {
        for method in ["resources/read", "tools/call", "ping", "vendor/x"] {
            let named = params.replacen('{', r#"{"name":"echo","#, 1);
            for params in [params, &named, &named.replacen('{', r#"{"task":{},"#, 1)] {
                let (status, code, message) = client.post(request("5", method, params)).await.refusal();
                assert_eq!((status, code), (200, -32602), "{method} {params}");
                assert!(message.contains("duplicate member"), "{method} {params}: {message}");
            }
        }
    }
    assert!(client.list().await.is_empty());
    house.still_works(4).await;
}

#[tokio::test]
async fn a_progress_token_that_is_no_string_or_integer_is_refused() {
    let house = House::new("").await;
    let client = house.client().await;
    for token in ["1.5", "1.0", "1e2", "null", "true", "{}", "[1]"] {
        for task in ["", r#""task":{},"#] {
            let params = format!(r#"{{"name":"echo",{task}"_meta":{{"progressToken":{token}}}}}"#);
            for method in ["tools/call", "resources/read"] {
                let (status, code, message) = client.post(request("5", method, &params)).await.refusal();
                assert_eq!((status, code), (200, -32602), "{method} {params}");
                assert!(message.contains("progress token must be a string or an integer"), "{message}");
            }
        }
        let params =
            format!(r#"{{"protocolVersion":"2025-11-25","capabilities":{{}},"_meta":{{"progressToken":{token}}}}}"#);
        let answer = client.without("mcp-session-id").post(request("5", "initialize", &params)).await;
        assert_eq!((answer.status, answer.refusal().1), (StatusCode::OK, -32602), "{token}");
    }
    assert!(client.list().await.is_empty());
    house.still_works(4).await;
}

#[tokio::test]
async fn duplicate_members_in_a_clients_declaration_are_refused_at_initialize() {
    let house = House::new("").await;
    let client = house.client().await.without("mcp-session-id");
    for params in [
        r#"{"protocolVersion":"2025-11-25","protocolVersion":"2024-11-05","capabilities":{}}"#,
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"capabilities":{"elicitation":{}}}"#,
        r#"{"protocolVersion":"2025-11-25","capabilities":{"roots":{},"roots":{}}}"#,
        r#"{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"url":{},"url":{}}}}"#,
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"_meta":{"progressToken":1,"progressToken":2}}"#,
    ] {
        let (status, code, message) = client.post(request("5", "initialize", params)).await.refusal();
        assert_eq!((status, code), (200, -32602), "{params}: {message}");
    }
    house.still_works(4).await;
}

#[tokio::test]
async fn a_request_named_like_a_notification_is_refused() {
    let house = House::new("").await;
    let client = house.client().await;
    for method in ["notifications/cancelled", "notifications/progress", "notifications/initialized", "notifications/x"]
    {
        let params = r#"{"requestId":1,"progressToken":1,"progress":1}"#;
        let answer = client.post(request("5", method, params)).await;
        let (status, code, message) = answer.refusal();
        assert_eq!((status, code), (200, -32600), "{method}");
        assert!(message.contains("send it without an id"), "{message}");
        assert_eq!(answer.json()["id"], 5);
    }
    house.still_works(4).await;
}

#[tokio::test]
async fn a_request_without_an_id_is_400_and_does_nothing() {
    let house = House::new("").await;
    let client = house.client().await;
    let task = client.create_id("slow").await;
    let slow = house.upstream.held("slow").await;
    for (method, params) in [
        ("tools/call", r#"{"name":"echo"}"#.to_owned()),
        ("tools/call", r#"{"name":"echo","task":{}}"#.to_owned()),
        ("tasks/get", format!(r#"{{"taskId":"{task}"}}"#)),
        ("tasks/result", format!(r#"{{"taskId":"{task}"}}"#)),
        ("tasks/cancel", format!(r#"{{"taskId":"{task}"}}"#)),
        ("tasks/list", "{}".to_owned()),
        ("tools/list", "{}".to_owned()),
        ("ping", "{}".to_owned()),
        ("initialize", r#"{"protocolVersion":"2025-11-25"}"#.to_owned()),
    ] {
        refused(&client.post(notification(method, &params)).await, -32600, "send it with an id");
    }
    assert_eq!((client.get(&task).await["status"].as_str(), client.list().await.len()), (Some("working"), 1));
    slow.result(r#"{"content":[]}"#);
    client.until(&task, "completed").await;
    house.still_works(5).await;
}

#[tokio::test]
async fn a_notification_with_a_duplicate_member_or_a_progress_token_in_meta_is_400_and_goes_nowhere() {
    let house = House::new("").await;
    let client = house.client().await;
    for (method, params, words) in [
        ("notifications/cancelled", r#"{"requestId":1,"requestId":2}"#, "duplicate member"),
        ("notifications/cancelled", r#"{"requestId":1,"request\u0049d":2}"#, "duplicate member"),
        ("notifications/progress", r#"{"progressToken":1,"progress":1,"progressToken":2}"#, "duplicate member"),
        ("notifications/x", r#"{"_meta":{},"_meta":{"progressToken":7}}"#, "duplicate member"),
        ("notifications/x", r#"{"_meta":{"progressToken":7}}"#, "only a request"),
        ("vendor/x", r#"{"_meta":{"progressToken":7}}"#, "only a request"),
    ] {
        refused(&client.post(notification(method, params)).await, -32602, words);
    }
    house.still_works(4).await;
    // What taskgate does not read passes unchanged.
    let odd = notification("notifications/x", r#"{"a":1,"a":2}"#);
    assert_eq!(client.post(odd.clone()).await.status, 202);
    assert_eq!(house.upstream.wait_for_message("notifications/x").await.text(), odd);
}

#[tokio::test]
async fn an_invalid_or_ambiguous_answer_is_400_and_the_client_can_answer_again() {
    let house = House::new("").await;
    let client = house.client().await;
    let response = |members: &str| format!(r#"{{"jsonrpc":"2.0","id":"q",{members}}}"#);
    for members in [
        r#""result":{"action":"accept","action":"decline"}"#,
        r#""result":{"_meta":{"a":1,"a":2}}"#,
        r#""result":{},"error":{"code":1,"message":"m"}"#,
        r#""neither":{}"#,
    ] {
        let (status, code, message) = client.post(response(members)).await.refusal();
        assert_eq!((status, code), (400, -32600), "{members}: {message}");
    }
    house.still_works(4).await;
    let good = response(r#""result":{"action":"accept"},"error":null"#);
    assert_eq!(client.post(good.clone()).await.status, 202);
    let seen = house.upstream.wait_for(|seen| seen.json()["id"] == json!("q")).await;
    assert_eq!(seen.text(), good);
}

#[tokio::test]
async fn a_revision_of_the_modern_generation_is_refused_however_it_is_written() {
    let house = House::new("").await;
    let client = house.client().await;
    let plain = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
    for params in [
        plain.to_owned(),
        plain.replace('/', r"\/"),
        plain.replace("protocolVersion", r"protocol\u0056ersion"),
        plain.replacen('{', r#"{"_meta":{},"#, 1),
    ] {
        for method in ["ping", "tools/call"] {
            let (_, code, message) = client.post(request("5", method, &params)).await.refusal();
            assert!([-32600, -32602].contains(&code), "{params}: {message}");
        }
    }
    house.still_works(4).await;
}
