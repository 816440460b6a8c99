//! Bodies that are no message.

use bytes::Bytes;
use serde_json::json;

use crate::{House, PING, kit::Client};

#[tokio::test]
async fn invalid_json_is_400_with_a_parse_error() {
    let house = House::new("").await;
    let client = house.client().await;
    let bodies: [&[u8]; 12] = [
        b"",
        b" ",
        b"{",
        b"nonsense",
        br#"{"jsonrpc":"2.0","id":1,"method":"ping"}}"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"ping",}"#,
        br#"{"jsonrpc":"2.0","id":01,"method":"ping"}"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}"#,
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"\xff\xfe\"}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"\xc3\"}}",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"\x01\"}}",
    ];
    for body in bodies {
        let answer = client.post(Bytes::from_static(body)).await;
        let (status, code, message) = answer.refusal();
        assert_eq!((status, code), (400, -32700), "{}: {message}", String::from_utf8_lossy(body));
        assert_eq!(answer.header("content-type"), "application/json");
        assert!(matches!(answer.json().get("id"), None | Some(serde_json::Value::Null)));
    }
    house.still_works(4).await;
}

#[tokio::test]
async fn a_batch_is_400_and_says_that_batches_do_not_exist() {
    let house = House::new("").await;
    for version in ["2025-03-26", "2025-11-25"] {
        let client = Client::connect_as(&house.gate.url, version, json!({})).await;
        for body in ["[]", &format!("[{PING}]"), &format!(" \n[{PING},{PING}]")] {
            let (status, code, message) = client.post(body.to_owned()).await.refusal();
            assert_eq!((status, code), (400, -32600));
            assert!(message.to_lowercase().contains("batch"), "{message}");
        }
    }
    house.still_works(6).await;
}

#[tokio::test]
async fn an_invalid_message_is_400_and_says_why() {
    let house = House::new("").await;
    let client = house.client().await;
    for (body, id, why) in [
        ("{}", None, "jsonrpc"),
        (r#"{"id":5,"method":"ping"}"#, Some("5"), "jsonrpc"),
        (r#"{"jsonrpc":"1.0","id":5,"method":"ping"}"#, Some("5"), "jsonrpc"),
        (r#"{"jsonrpc":2.0,"id":5,"method":"ping"}"#, None, ""),
        // It may be a response without its result.
        (r#"{"jsonrpc":"2.0","id":"five"}"#, None, "method"),
        (r#"{"jsonrpc":"2.0","id":5,"method":7}"#, Some("5"), "method"),
        (r#"{"jsonrpc":"2.0","id":5,"method":null}"#, Some("5"), "method"),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}"#, Some("5"), "params"),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":null}"#, Some("5"), "params"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, None, "id"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, None, "id"),
        (r#"{"jsonrpc":"2.0","id":1e2,"method":"ping"}"#, None, "id"),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, None, "id"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, None, "id"),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping","result":{}}"#, Some("5"), "response"),
        // The id is one that the receiver gave.
        (r#"{"jsonrpc":"2.0","id":5,"result":{},"error":{}}"#, None, "result"),
        (r#"{"jsonrpc":"2.0","result":{}}"#, None, "id"),
        // Readers disagree about which of two duplicates counts.
        (r#"{"jsonrpc":"2.0","id":5,"id":6,"method":"ping"}"#, None, "id"),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping","method":"tools/list"}"#, None, "method"),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":{},"params":{}}"#, None, "params"),
        (r#"{"jsonrpc":"2.0","id":5,"method":"ping","m\u0065thod":"tools/list"}"#, None, "method"),
    ] {
        let answer = client.post(body).await;
        let (status, code, message) = answer.refusal();
        assert_eq!((status, code), (400, -32600), "{body}: {message}");
        assert!(message.contains(why), "{body}: {message}");
        let answered = answer.json().get("id").map(ToString::to_string).filter(|id| id != "null");
        assert_eq!(answered.as_deref(), id, "{body}");
    }
    house.still_works(4).await;
}

#[tokio::test]
async fn json_that_is_not_an_object_is_400_in_the_words_of_the_protocol() {
    let house = House::new("").await;
    let client = house.client().await;
    for body in [r#""text""#, "7", "null", "true"] {
        let (status, code, message) = client.post(body).await.refusal();
        assert_eq!((status, code), (400, -32600), "{body}: {message}");
        assert!(message.contains("object") && !message.contains("struct"), "{body}: {message}");
    }
    house.still_works(4).await;
}

#[tokio::test]
async fn duplicate_members_that_taskgate_reads_are_refused() {
    let house = House::new("").await;
    let client = house.client().await;
    for (method, params) in [
        ("tools/call", r#"{"name":"echo","name":"other"}"#),
        ("tools/call", r#"{"name":"echo","task":{},"task":{}}"#),
        ("tools/call", r#"{"name":"echo","task":{"ttl":1,"ttl":2}}"#),
        ("tasks/get", r#"{"taskId":"a","taskId":"b"}"#),
        ("tasks/list", r#"{"cursor":"a","cursor":"b"}"#),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"{method}","params":{params}}}"#);
        let (status, code, message) = client.post(body).await.refusal();
        assert_eq!((status, code), (200, -32602), "{params}");
        assert!(message.contains("duplicate"), "{message}");
    }
    house.still_works(4).await;
}

#[tokio::test]
async fn absurd_nesting_is_refused_and_reasonable_nesting_passes() {
    let house = House::new("").await;
    let client = house.client().await;
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"jsonrpc":"2.0","id":5,"method":"ping","params":{{"a":{open}{close}}}}}"#)
    };
    for depth in [200, 100_000, 1_000_000] {
        let answer = client.post(nested(depth)).await;
        assert_eq!(answer.json()["id"], 5);
        let (status, code, message) = answer.refusal();
        assert_eq!((status, code), (400, -32600));
        assert!(message.contains("nests deeper"), "{message}");
    }
    // Brackets in a string do not nest.
    let text = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"ping","params":{{"a":"\"{}"}}}}"#, "[".repeat(1000));
    for body in [nested(100), text] {
        assert_eq!(client.post(body).await.status, 200);
    }
    house.still_works(6).await;
}

#[tokio::test]
async fn a_second_initialize_in_a_session_is_refused_and_the_session_goes_on() {
    let house = House::new("").await;
    let client = house.client().await;
    let (status, code, message) = client.ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32600));
    assert!(message.contains("initialized already"), "{message}");
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
    house.still_works(5).await;
}
