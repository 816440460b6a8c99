//! With none of it configured nothing is different.

use serde_json::json;

use crate::{
    host::{House, text},
    kit::{Answers, Options},
};

#[tokio::test]
async fn a_host_that_is_not_configured_for_notices_nothing() {
    let tools = json!([{ "name": "slow", "inputSchema": {}, "outputSchema": { "type": "object" } }]);
    let house = House::of(Options { answers: Answers::Sse, tools, ..Options::default() }, "").await;
    assert_eq!(house.host.initialized.get("instructions"), None);
    let listed = house.host.ask("tools/list", json!({})).await;
    assert_eq!(
        listed,
        json!({ "tools": [{ "name": "slow", "inputSchema": {}, "outputSchema": { "type": "object" } }] })
    );
    let params = json!({ "name": "slow", "_meta": { "progressToken": "t" } });
    let calling = house.host.stream("tools/call", params);
    let slow = house.upstream.held("slow").await;
    assert_eq!(slow.seen.json()["params"]["_meta"].as_object().unwrap().len(), 1);
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#);
    assert_eq!(text(&calling.last().await["result"]), "done");
    let plain = house.host.stream("tools/call", json!({ "name": "slow" }));
    let slow = house.upstream.held("slow").await;
    assert_eq!(slow.seen.json()["params"], json!({ "name": "slow" }), "the server is asked for no progress");
    slow.result(r#"{"content":[]}"#);
    plain.last().await;
    // A tool of that name is between the host and its server.
    let theirs = house.host.stream("tools/call", json!({ "name": "wait_for_job", "arguments": {} }));
    house.upstream.held("wait_for_job").await.result(r#"{"content":[{"type":"text","text":"theirs"}]}"#);
    assert_eq!(text(&theirs.last().await["result"]), "theirs");
    assert_eq!(house.upstream.count("tools/list"), 1, "the server is asked nothing more");
}
