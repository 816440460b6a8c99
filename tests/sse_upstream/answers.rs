//! Invalid responses on the stream: their call fails at once, and the session goes on.

use serde_json::json;

use super::all;
use crate::kit::text_of;

#[tokio::test]
async fn an_invalid_response_fails_its_call_at_once_and_says_what_is_wrong() {
    let (server, _gate, client) = all().await;
    for (n, (members, words)) in [
        (r#""result":{},"error":{"code":1,"message":"m"}"#, "not both"),
        (r#""x":1"#, "needs"),
        (r#""result":[]"#, "\"result\" must be an object"),
        (r#""error":null"#, "\"error\" must be an object"),
        (r#""error":{}"#, "\"code\""),
    ]
    .into_iter()
    .enumerate()
    {
        for task in [false, true] {
            let tool = format!("slow-{n}-{task}");
            let caller = client.clone();
            let name = tool.clone();
            let call = tokio::spawn(async move {
                if task {
                    let id = caller.create_id(&name).await;
                    return caller.until(&id, "failed").await["statusMessage"].as_str().unwrap().to_owned();
                }
                caller.error("tools/call", json!({ "name": name })).await.1
            });
            let id = server.message(&tool).await.id();
            server.stream(1).event(&format!(r#"{{"jsonrpc":"2.0","id":{id},{members}}}"#)).await;
            let why = call.await.unwrap();
            assert!(why.contains("gave an invalid answer") && why.contains(words), "{members}: {why}");
        }
    }
    assert_eq!(text_of(&client, "echo").await, "{}");
    assert_eq!(server.count("GET"), 1);
}

#[tokio::test]
async fn an_invalid_request_is_answered_with_an_error() {
    let (server, _gate, client) = all().await;
    server.stream(1).event(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list","params":[1]}"#).await;
    server.stream(1).event(r#"{"jsonrpc":"2.0","id":"r","method":"x","params":{"a":1,"a":2}}"#).await;
    let named = r#"{"jsonrpc":"2.0","id":"n","method":"notifications/cancelled","params":{"requestId":1}}"#;
    server.stream(1).event(named).await;
    for (id, code) in [("q", -32600), ("r", -32602), ("n", -32600)] {
        let answer = server.answered(id).await;
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    assert_eq!(text_of(&client, "echo").await, "{}");
}
