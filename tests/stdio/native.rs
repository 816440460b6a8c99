//! A stdio server with tasks of its own, which never says to which request a message belongs.

use serde_json::json;

use crate::kit::{Children, Client, Script};

/// Asks whether its client is there before it lists its tools, and reports on its own task when it is called.
const SERVER: Script = Script {
    setup: "",
    tools: r#"*'"method":"initialize"'*)
        reply "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}}' ;;
    *'"method":"tools/list"'*) listing=$id; echo '{"jsonrpc":"2.0","id":"p-1","method":"ping"}' ;;
    *'"id":"p-1"'*)
        reply "$listing" '{"tools":[{"name":"research","execution":{"taskSupport":"required"}},{"name":"hold"}]}' ;;
    *'"name":"research"'*)
        token=${line#*'"progressToken":'}; token=${token%%[,\}]*}
        reply "$id" '{"task":{"taskId":"theirs","status":"working","ttl":null}}'
        printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}\n' "$token"
        echo '{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"theirs","status":"completed"}}' ;;"#,
    after: "",
};

#[tokio::test]
async fn notifications_about_the_childs_own_task_do_not_go_to_the_only_running_task_of_taskgate() {
    let children = Children::new(SERVER);
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let child = children.only().await;
    // No stream is open, so the ping is answered while the tools are listed.
    let ours = client.create_id("hold").await;
    child.line("\"hold\"").await;
    let mut stream = client.get_stream().await;
    let params = json!({ "name": "research", "task": {}, "_meta": { "progressToken": "mine" } });
    let created = client.ask("tools/call", params).await;
    assert_eq!(created["task"]["taskId"], "theirs");
    assert_eq!(stream.message().await["params"], json!({ "progressToken": "mine", "progress": 1 }));
    assert_eq!(stream.message().await["params"], json!({ "taskId": "theirs", "status": "completed" }));
    assert!(!client.get(&ours).await["statusMessage"].as_str().unwrap_or_default().starts_with('1'));
    assert_eq!(child.lines().iter().filter(|line| line.contains("tools/list")).count(), 1);
}
