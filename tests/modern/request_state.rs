//! `requestState`: good once, for one request of one principal at one upstream of one process, and changed nowhere.

use serde_json::{Value, json};

use crate::{
    client::Modern,
    kit::{Gate, Sse, Upstream, soon},
};

const USERS: &str = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";

fn user(url: &str, name: &str) -> Modern {
    let client = Modern::able(url, json!({ "elicitation": {} }));
    Modern { http: client.http.with("x-user", name), ..client }
}

/// Has a call ask, and returns the server's end of it and a retry that answers.
async fn asked(upstream: &Upstream, client: &Modern) -> (Sse, Value) {
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.result("tools/call", json!({ "name": "slow", "arguments": { "a": 1 } })).await }
    });
    let slow = upstream.held("slow").await.sse();
    let params = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    slow.event(&json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params }).to_string())
        .await;
    let asked = soon(calling).await.unwrap();
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let answers = json!({ key: { "action": "accept", "content": {} } });
    let state = &asked["requestState"];
    (slow, json!({ "name": "slow", "arguments": { "a": 1 }, "requestState": state, "inputResponses": answers }))
}

/// Checks that a retry is refused as any bad one is.
async fn is_refused(client: &Modern, method: &str, retry: &Value, why: &str) {
    let (status, code, message) = client.refusal(method, retry.clone()).await;
    assert_eq!((status, code), (200, -32602), "{why}: {message}");
    assert!(message.contains("params.requestState is not good, or not any more"), "{why}: {message}");
}

/// Checks that a retry goes on with its call.
async fn is_good(upstream: &Upstream, client: &Modern, slow: Sse, retry: &Value) {
    let retrying = tokio::spawn({
        let (client, retry) = (client.clone(), retry.clone());
        async move { client.result("tools/call", retry).await }
    });
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q").await;
    slow.result(r#"{"content":[]}"#).await;
    assert_eq!(soon(retrying).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn a_state_that_is_changed_at_any_byte_is_refused_and_the_true_one_is_still_good() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, USERS).await;
    let ann = user(&gate.url, "ann");
    let (slow, retry) = asked(&upstream, &ann).await;
    let state = retry["requestState"].as_str().unwrap();
    for at in 0..state.len() {
        let mut changed = state.as_bytes().to_vec();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let mut tampered = retry.clone();
        tampered["requestState"] = json!(String::from_utf8(changed).unwrap());
        is_refused(&ann, "tools/call", &tampered, &format!("byte {at}")).await;
    }
    for cut in [&state[1..], &state[..state.len() - 1], ""] {
        let mut tampered = retry.clone();
        tampered["requestState"] = json!(cut);
        is_refused(&ann, "tools/call", &tampered, cut).await;
    }
    is_good(&upstream, &ann, slow, &retry).await;
    is_refused(&ann, "tools/call", &retry, "it was used").await;
}

#[tokio::test]
async fn a_state_is_refused_of_another_principal_at_another_upstream_for_another_method_and_for_other_params() {
    let upstream = Upstream::sse().await;
    let blocks = ["/one", "/two"].map(|path| format!("[[upstream]]\npath = {path:?}\nurl = {:?}\n", upstream.url()));
    let gate = Gate::configured(&format!("{USERS}{}", blocks.join(""))).await;
    let ann = user(&gate.urls[0], "ann");
    let (slow, retry) = asked(&upstream, &ann).await;
    is_refused(&user(&gate.urls[0], "bob"), "tools/call", &retry, "another principal").await;
    is_refused(&user(&gate.urls[1], "ann"), "tools/call", &retry, "another upstream").await;
    is_refused(&ann, "prompts/get", &retry, "another method").await;
    for (member, value) in [("name", json!("other")), ("arguments", json!({ "a": 2 })), ("more", json!(1))] {
        let mut other = retry.clone();
        other[member] = value;
        is_refused(&ann, "tools/call", &other, member).await;
    }
    let mut less = retry.clone();
    less.as_object_mut().unwrap().remove("arguments");
    is_refused(&ann, "tools/call", &less, "without arguments").await;
    is_good(&upstream, &ann, slow, &retry).await;
}

#[tokio::test]
async fn a_state_is_refused_after_its_time_and_after_a_restart() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, &format!("{USERS}[tasks]\ninput_timeout = \"100ms\"\n")).await;
    let ann = user(&gate.url, "ann");
    let (_slow, retry) = asked(&upstream, &ann).await;
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q").await;
    is_refused(&ann, "tools/call", &retry, "input_timeout is over").await;
    let gate = Gate::with(&upstream, USERS).await;
    let ann = user(&gate.url, "ann");
    let (_slow, retry) = asked(&upstream, &ann).await;
    gate.stop().await;
    let restarted = Gate::with(&upstream, USERS).await;
    is_refused(&user(&restarted.url, "ann"), "tools/call", &retry, "another process").await;
}

#[tokio::test]
async fn a_state_that_is_refused_is_audited_and_tells_nothing() {
    let upstream = Upstream::sse().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let audit = format!("[audit]\nto = \"file\"\nfile = {:?}\n", log.path());
    let gate = Gate::with(&upstream, &format!("{USERS}{audit}")).await;
    let ann = user(&gate.url, "ann");
    let (_slow, retry) = asked(&upstream, &ann).await;
    is_refused(&user(&gate.url, "bob"), "tools/call", &retry, "another principal").await;
    gate.stop().await;
    let lines = std::fs::read_to_string(log.path()).unwrap();
    let refused: Vec<_> = lines.lines().filter(|line| line.contains("request_state_refused")).collect();
    assert_eq!(refused.len(), 1, "{lines}");
    assert!(!lines.contains(retry["requestState"].as_str().unwrap()), "{lines}");
}

#[tokio::test]
async fn a_state_that_is_no_text_or_of_a_request_that_is_never_asked_about_is_refused_as_any_bad_one() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, USERS).await;
    let ann = user(&gate.url, "ann");
    let (slow, retry) = asked(&upstream, &ann).await;
    for method in ["tools/list", "resources/list", "completion/complete", "server/discover"] {
        is_refused(&ann, method, &json!({ "requestState": retry["requestState"] }), method).await;
    }
    for state in [json!(null), json!(7), json!({}), json!([])] {
        is_refused(&ann, "tools/call", &json!({ "name": "slow", "requestState": state }), "no text").await;
    }
    drop(slow);
}
