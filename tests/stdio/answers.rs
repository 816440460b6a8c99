//! Invalid answers of a child: their call fails at once and says why, alone or shared, and the others go on.

use serde_json::json;

use crate::kit::{Children, Client, Script, text_of};

const BOTH: [&str; 2] = ["", "[[upstream]]\nshared = true"];

/// Answers a call of the tool `bad` in the way that its argument names.
const LIAR: Script = Script {
    setup: "",
    tools: r#"*'"as":"both"'*)
        printf '{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":"m"}}\n' "$id" ;;
    *'"as":"neither"'*) printf '{"jsonrpc":"2.0","id":%s}\n' "$id" ;;
    *'"as":"no UTF-8"'*)
        printf '{"jsonrpc":"2.0","id":%s,"result":{"text":"\377"}}\n' "$id" ;;
    *'"as":"cut"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"text":"\n' "$id" ;;
    *'"as":"array"'*) reply "$id" '[1]' ;;
    *'"as":"text"'*) reply "$id" '"fine"' ;;
    *'"as":"null"'*) reply "$id" null ;;
    *'"as":"error null"'*) printf '{"jsonrpc":"2.0","id":%s,"error":null}\n' "$id" ;;
    *'"as":"error empty"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{}}\n' "$id" ;;
    *'"as":"error array"'*) printf '{"jsonrpc":"2.0","id":%s,"error":[1]}\n' "$id" ;;
    *'"as":"old"'*) printf '{"jsonrpc":"1.0","id":%s,"result":{}}\n' "$id" ;;
    *'"as":"request too"'*) printf '{"jsonrpc":"2.0","id":%s,"method":"ping","result":{}}\n' "$id" ;;
    *'"as":"fraction"'*) printf '{"jsonrpc":"2.0","id":%s.0,"result":{}}\n' "$id" ;;
    *'"as":"exponent"'*) printf '{"jsonrpc":"2.0","id":%se0,"error":{"code":1,"message":"m"}}\n' "$id" ;;
    *'"as":"in a batch"'*)
        printf '[{"jsonrpc":"2.0","id":%s},{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"kept"}]}}]\n' "$id" "$held" ;;
    *'"name":"unread"'*) echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}' ;;
    *'"name":"noted"'*)
        echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no such notification"}}'
        text "$id" done ;;
    *'"name":"asks"'*) asked=$id; echo '{"jsonrpc":"2.0","id":"q-1","method":"roots/list","params":[1]}' ;;
    *'"name":"names"'*)
        asked=$id
        printf '{"jsonrpc":"2.0","id":"q-1","method":"notifications/cancelled","params":{"requestId":%s}}\n' "$id" ;;
    *'"id":"q-1"'*) text "$asked" "$(printf '%s' "$line" | tr -d '"\\')" ;;
    *'"name":"1.0"'*) printf '{"jsonrpc":"2.0","id":%s,"error":null,"result":{"a":1}}\n' "$id" ;;"#,
    after: "",
};

#[tokio::test]
async fn an_invalid_response_fails_its_call_at_once_and_says_what_is_wrong() {
    for keys in BOTH {
        let children = Children::new(LIAR);
        let gate = children.gate(keys).await;
        let (client, other) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
        let held = other.create_id("hold").await;
        for (way, words) in [
            ("both", "not both"),
            ("neither", "needs"),
            ("no UTF-8", "utf-8"),
            ("cut", "not valid JSON"),
            ("array", "\"result\" must be an object"),
            ("text", "\"result\" must be an object"),
            ("null", "\"result\" must be an object"),
            ("error null", "\"error\" must be an object"),
            ("error empty", "\"code\""),
            ("error array", "\"error\" must be an object"),
            ("old", "jsonrpc"),
            ("request too", "not both"),
            ("fraction", "needs the"),
            ("exponent", "needs the"),
        ] {
            let call = json!({ "name": "bad", "arguments": { "as": way } });
            let (code, message) = client.error("tools/call", call.clone()).await;
            assert_eq!(code, -32603, "{way}");
            assert!(message.contains("gave an invalid answer") && message.contains(words), "{way}: {message}");
            let mut call = call;
            call["task"] = json!({});
            let created = client.ask("tools/call", call).await;
            let id = created["task"]["taskId"].as_str().unwrap();
            let message = client.until(id, "failed").await["statusMessage"].take();
            assert!(message.as_str().unwrap().contains(words), "{way}: {message}");
            let collected = client.collect(id).await;
            assert_eq!(collected["error"], json!({ "code": -32603, "message": message }), "{way}");
        }
        assert!(!text_of(&client, "pid").await.is_empty());
        assert_eq!(other.get(&held).await["status"], "working");
    }
}

#[tokio::test]
async fn an_error_without_an_id_answers_the_only_call_in_flight() {
    let own = Children::new(LIAR);
    let gate = own.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(client.error("tools/call", json!({ "name": "unread" })).await, (-32700, "what?".to_owned()));
    assert_eq!(text_of(&client, "noted").await, "done");
}

#[tokio::test]
async fn one_bad_response_in_a_batch_does_not_affect_the_others() {
    for keys in BOTH {
        let children = Children::new(LIAR);
        let gate = children.gate(keys).await;
        let client = Client::connect(&gate.url).await;
        let held = client.create_id("hold").await;
        children.only().await.line(r#""name":"hold""#).await;
        let (_, message) =
            client.error("tools/call", json!({ "name": "bad", "arguments": { "as": "in a batch" } })).await;
        assert!(message.contains("gave an invalid answer"), "{message}");
        client.until(&held, "completed").await;
        assert_eq!(client.collect(&held).await["result"]["content"][0]["text"], "kept");
    }
}

#[tokio::test]
async fn an_invalid_request_of_the_child_is_answered_with_an_error() {
    for keys in BOTH {
        let children = Children::new(LIAR);
        let gate = children.gate(keys).await;
        let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "roots": {} })).await;
        let answer = text_of(&client, "asks").await;
        assert!(answer.contains("code:-32600") && answer.contains("must be an object"), "{answer}");
    }
}

#[tokio::test]
async fn a_request_named_like_a_notification_is_answered_with_an_error_and_reaches_no_client() {
    for keys in BOTH {
        let children = Children::new(LIAR);
        let gate = children.gate(keys).await;
        let client = Client::connect(&gate.url).await;
        let answer = text_of(&client, "names").await;
        assert!(answer.contains("code:-32600") && answer.contains("that of a notification"), "{answer}");
        let mut heard = client.get_stream().await;
        let task = client.create_id("names").await;
        assert_eq!(heard.message().await["params"]["status"], "completed");
        assert!(client.collect(&task).await["result"]["content"][0]["text"].as_str().unwrap().contains("-32600"));
    }
}

#[tokio::test]
async fn the_null_that_json_rpc_1_has_beside_a_result_passes_unchanged() {
    for keys in BOTH {
        let children = Children::new(LIAR);
        let gate = children.gate(keys).await;
        let client = Client::connect(&gate.url).await;
        let call = r#"{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{"name":"1.0"}}"#;
        let answer = client.post(call).await;
        assert_eq!(answer.text(), r#"{"jsonrpc":"2.0","id":"mine","error":null,"result":{"a":1}}"#);
        let id = client.create_id("1.0").await;
        client.until(&id, "completed").await;
        assert_eq!(client.collect(&id).await["result"]["a"], 1);
    }
}

#[tokio::test]
async fn a_handshake_with_an_invalid_answer_fails_at_once() {
    for keys in BOTH {
        let setup = r#"IFS= read -r line; id=${line#*'"id":'}; id=${id%%[,\}]*}; reply "$id" '[1]'"#;
        let children = Children::new(Script { setup, ..Script::default() });
        let gate = children.gate(keys).await;
        let (_, code, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
        assert_eq!(code, -32603);
        assert!(message.contains("\"result\" must be an object"), "{message}");
    }
}
