//! Bytes in, the same bytes out.

use serde_json::{Value, json};

use crate::kit::{Answers, Client, Gate, Options, Upstream};

/// JSON that a model of it would change: odd white space, long and odd numbers, escapes, unknown members, an empty key.
const ODD: &str = concat!(
    "{ \"name\" :\t\"held\",\"arguments\":{\"a\":1.50,\"b\":123456789012345678901234567890,\"c\":1E+2,\"d\":-0.0,",
    r#""e":"\u00e9\/\ud83d\ude00é\n","":null, "x":[ ], "y":{ },"z":1e-400},"unknownMember":{"deep":[[[true]]]}}"#
);

async fn connected(upstream: &Upstream) -> (Gate, Client) {
    let gate = Gate::before(upstream).await;
    let client = Client::connect(&gate.url).await;
    (gate, client)
}

#[tokio::test]
async fn a_request_reaches_the_upstream_byte_for_byte_but_for_its_id() {
    let upstream = Upstream::json().await;
    let (_gate, client) = connected(&upstream).await;
    let body = |id: &str| {
        format!(
            "\n {{ \"extra\":[1.0], \"jsonrpc\" : \"2.0\",\"id\": {id} ,\"method\":\"tools/call\",\r\n\"params\":{ODD}}}\n"
        )
    };
    let posted = tokio::spawn({
        let body = body("\"mine\"");
        async move { client.post(body).await }
    });
    let held = upstream.held("held").await;
    assert_eq!(held.seen.text(), body(&held.seen.id()));
    held.result("{}");
    assert_eq!(posted.await.unwrap().text(), r#"{"jsonrpc":"2.0","id":"mine","result":{}}"#);
}

#[tokio::test]
async fn an_answer_reaches_the_client_byte_for_byte_but_for_its_id() {
    for answers in [Answers::Json, Answers::Sse] {
        for member in ["result", "error"] {
            let upstream = Upstream::start(Options { answers, ..Options::default() }).await;
            let (_gate, client) = connected(&upstream).await;
            // What an error has to have; a result may have it too.
            let odd = ODD.replacen('{', "{\"code\": -1,\"message\" :\"m\",", 1);
            let document =
                |id: &str| format!("{{ \"extra\":[1.0],\"{member}\":{odd}, \"id\": {id} ,\"jsonrpc\" :\"2.0\" }}");
            let posted = tokio::spawn(async move {
                client.post(r#"{"jsonrpc":"2.0","id":"mine","method":"resources/read","params":{}}"#).await
            });
            let held = upstream.held("resources/read").await;
            let answer = document(&held.seen.id());
            match answers {
                Answers::Json => held.json(&answer),
                Answers::Sse => held.sse().event(&answer).await,
            }
            let answer = posted.await.unwrap();
            assert_eq!(answer.status, 200);
            assert_eq!(answer.raw_response(), document("\"mine\""), "{answers:?} {member}");
        }
    }
}

#[tokio::test]
async fn a_json_answer_with_line_ends_keeps_them() {
    let upstream = Upstream::json().await;
    let (_gate, client) = connected(&upstream).await;
    let posted = tokio::spawn(async move { client.answer("vendor/pretty", json!({})).await });
    let held = upstream.held("vendor/pretty").await;
    let pretty = "\n{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": ID,\n  \"result\": {\n    \"a\": 1\n  }\n}\n";
    let ours = held.seen.id();
    held.json(&pretty.replace("ID", &ours));
    assert_eq!(posted.await.unwrap().text(), pretty.replace("ID", "1"));
}

#[tokio::test]
async fn notifications_pass_byte_for_byte_in_both_directions() {
    let upstream = Upstream::sse().await;
    let (_gate, client) = connected(&upstream).await;
    let notification = format!("{{\"params\" :{ODD} , \"method\":\"notifications/vendor\", \"jsonrpc\":\"2.0\"}} ");
    let answer = client.post(notification.clone()).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (202, ""));
    assert_eq!(upstream.wait_for_message("notifications/vendor").await.text(), notification);
    let mut stream = client.get_stream().await;
    upstream.get_stream().await.event(&notification).await;
    assert_eq!(stream.next().await.unwrap().data, notification);
}

#[tokio::test]
async fn the_response_to_a_server_request_passes_byte_for_byte() {
    let upstream = Upstream::json().await;
    let (_gate, client) = connected(&upstream).await;
    for response in [
        format!("{{ \"id\":\"from-the-server\",\"result\":{ODD},\"jsonrpc\":\"2.0\" }}"),
        r#"{"jsonrpc":"2.0","id":12345678901234567890123,"error":{"code":-1,"message":"no","data":1.50}}"#.to_owned(),
    ] {
        assert_eq!(client.post(response.clone()).await.status, 202);
        assert_eq!(upstream.wait_for(|seen| seen.text() == response).await.text(), response);
    }
}

#[tokio::test]
async fn unknown_methods_pass_and_so_do_their_errors() {
    let upstream = Upstream::json().await;
    let (_gate, client) = connected(&upstream).await;
    for method in ["vendor/x", "tasks/unknown", "tools/call/x", "resources/subscribe", "initialized"] {
        let client = client.clone();
        let asked = tokio::spawn(async move { client.request(method, json!({ "a": 1 })).await });
        let held = upstream.held(method).await;
        assert_eq!(held.seen.json()["params"], json!({ "a": 1 }), "{method}");
        held.error(r#"{"code":-32601,"message":"Method not found"}"#);
        let error = asked.await.unwrap()["error"].take();
        assert_eq!(error, json!({ "code": -32601, "message": "Method not found" }), "{method}");
    }
}

#[tokio::test]
async fn a_request_without_params_is_forwarded_without_params() {
    let upstream = Upstream::json().await;
    let (_gate, client) = connected(&upstream).await;
    let answer = client.post(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#).await;
    assert_eq!(answer.text(), r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    let seen = upstream.wait_for_message("ping").await;
    assert_eq!(seen.json().get("params"), None);
}

#[tokio::test]
async fn messages_of_megabytes_pass_in_both_directions() {
    let upstream = Upstream::json().await;
    let (_gate, client) = connected(&upstream).await;
    let text = "é\u{1F600}x".repeat(400_000);
    let result = client.ask("tools/call", json!({ "name": "echo", "arguments": { "text": text } })).await;
    let echoed: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert!(echoed["text"] == text);
}

#[tokio::test]
async fn an_initialize_answer_passes_but_for_what_taskgate_has_to_change() {
    let upstream = Upstream::json().await;
    upstream.hold("initialize");
    let gate = Gate::before(&upstream).await;
    let client = Client::new(&gate.url);
    let asked = tokio::spawn(async move { client.ask_to_initialize("2025-11-25", json!({})).await });
    let held = upstream.held("initialize").await;
    let id = held.seen.id();
    held.json(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"2025-06-18", "capabilities": {{"logging":{{}},"experimental":{{"x":1.50}}}},"instructions":"caf\u00e9","serverInfo":{{"name":"s","version":"1","unknown":[ ]}}}}}}"#
    ));
    assert_eq!(
        asked.await.unwrap().text(),
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25", "capabilities": {"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"logging":{},"experimental":{"x":1.50}},"instructions":"caf\u00e9","serverInfo":{"name":"s","version":"1","unknown":[ ]}}}"#
    );
}
