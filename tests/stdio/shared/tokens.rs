//! On a shared child, the ids and tokens of one session mean nothing in another.

use serde_json::json;

use super::{call, shared, with_elicitation};
use crate::kit::{Client, Script, text_in, text_of};

/// Reports progress under the first token in a line, the way a careless server would, and asks with a token.
const CARELESS: Script = Script {
    setup: "",
    tools: r#"*'"progressToken":'*'"method":"forge'*|*'"method":"forge'*'"progressToken":'*)
        token=${line##*'"progressToken":'}; token=${token%%[,\}]*}
        printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1,"message":"forged"}}\n' "$token"
        case $line in *'"id"'*) reply "$id" '{}' ;; esac ;;
    *'"name":"ask"'*)
        asked=$id
        echo '{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"Really?","_meta":{"progressToken":"tq"}}}' ;;
    *'"id":"q-1"'*) text "$asked" "$(printf '%s' "$line" | tr -d '"\\')" ;;"#,
    after: "",
};

#[tokio::test]
async fn no_client_can_write_progress_into_the_task_of_another_by_a_raw_token() {
    let (children, gate) = shared(CARELESS).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let task = ann.create_id("hold").await;
    let number = child.message(r#""name":"hold""#).await["id"].clone();
    for params in [
        format!(r#"{{"_meta":{{}},"_meta":{{"progressToken":{number}}}}}"#),
        format!(r#"{{"_meta":{{"progressToken":1,"progressToken":{number}}}}}"#),
        format!(r#"{{"_meta":{{"progressToken":1,"progress\u0054oken":{number}}}}}"#),
    ] {
        let answer = bob.post(format!(r#"{{"jsonrpc":"2.0","id":9,"method":"forge","params":{params}}}"#)).await;
        assert_eq!(answer.refusal().1, -32602, "{params}");
        let answer = bob.post(format!(r#"{{"jsonrpc":"2.0","method":"forge","params":{params}}}"#)).await;
        assert_eq!(answer.status, 400, "{params}");
    }
    let plain = format!(r#"{{"jsonrpc":"2.0","method":"forge","params":{{"_meta":{{"progressToken":{number}}}}}}}"#);
    assert_eq!(bob.post(plain).await.status, 400);
    // The child has received none of it, and Ann's task no progress.
    assert_eq!(text_of(&bob, "pid").await, child.pid);
    assert!(!child.lines().iter().any(|line| line.contains("forge")));
    assert_ne!(ann.get(&task).await["statusMessage"], "1: forged");
    // A token that Bob sends becomes one of his own at the child.
    let own = json!({ "_meta": { "progressToken": number } });
    assert_eq!(bob.ask("forge", own).await, json!({}));
    assert_ne!(ann.get(&task).await["statusMessage"], "1: forged");
    text_of(&ann, "release").await;
    ann.until(&task, "completed").await;
}

#[tokio::test]
async fn no_client_can_cancel_the_call_of_another_by_its_number() {
    let (children, gate) = shared(CARELESS).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let held = call(&ann, &child, "hold").await;
    let number = child.message(r#""name":"hold""#).await["id"].clone();
    let params = json!({ "requestId": number });
    assert_eq!(bob.error("notifications/cancelled", params.clone()).await.0, -32600);
    let twice = format!(r#"{{"requestId":"x","requestId":{number}}}"#);
    let twice = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{twice}}}"#);
    assert_eq!(bob.post(twice).await.status, 400);
    assert_eq!(bob.notify("notifications/cancelled", params).await, 202);
    assert_eq!(text_of(&bob, "pid").await, child.pid);
    assert!(!child.lines().iter().any(|line| line.contains("cancelled")));
    text_of(&ann, "release").await;
    assert_eq!(text_in(&held.await.unwrap()), "released");
}

#[tokio::test]
async fn progress_of_a_client_reaches_the_child_only_for_a_question_to_that_client() {
    let (children, gate) = shared(CARELESS).await;
    let (ann, bob) = (with_elicitation(&gate).await, with_elicitation(&gate).await);
    let child = children.only().await;
    let mut asking = ann.stream("tools/call", json!({ "name": "ask" }));
    let question = asking.message().await;
    let progress = |n: u32| json!({ "progressToken": "tq", "progress": n });
    assert_eq!(bob.notify("notifications/progress", progress(1)).await, 202);
    assert_eq!(ann.notify("notifications/progress", progress(2)).await, 202);
    assert_eq!(ann.respond(&question["id"], json!({ "action": "accept" })).await, 202);
    assert!(text_in(&asking.message().await["result"]).contains("action:accept"));
    // And no longer after that.
    assert_eq!(ann.notify("notifications/progress", progress(3)).await, 202);
    assert_eq!(text_of(&ann, "pid").await, child.pid);
    let told: Vec<_> = child.lines().into_iter().filter(|line| line.contains("notifications/progress")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(r#""progress":2"#), "{told:?}");
}
