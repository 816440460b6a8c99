//! Bad input: the right code and status, and nothing guessed at.

use http::Method;
use serde_json::{Value, json};

use crate::{
    client::{Modern, VERSION},
    kit::{Client, Gate, Upstream},
};

async fn gate() -> (Upstream, Gate) {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    (upstream, gate)
}

#[tokio::test]
async fn methods_that_the_revision_does_not_have_are_404_and_32601() {
    let (_upstream, gate) = gate().await;
    let client = Modern::with_tasks(&gate.url);
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
        "unknown/method",
    ] {
        let (status, code, _) = client.refusal(method, json!({})).await;
        assert_eq!((status, code), (404, -32601), "{method}");
    }
}

#[tokio::test]
async fn get_and_delete_which_the_revision_does_not_have_are_405() {
    let (_upstream, gate) = gate().await;
    let client = Client::new(&gate.url).with("mcp-protocol-version", VERSION);
    for method in [Method::GET, Method::DELETE] {
        let answer = client.send(method.clone(), "").await;
        assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, "POST"), "{method}");
    }
}

#[tokio::test]
async fn a_request_without_an_id_is_refused_and_a_notification_taken() {
    let (upstream, gate) = gate().await;
    let client = Modern::with_tasks(&gate.url);
    let http = Client::new(&gate.url).with("mcp-protocol-version", VERSION);
    for (method, status) in [("tools/call", 400), ("tasks/cancel", 400), ("notifications/vendor", 202)] {
        let params = client.params(json!({ "name": "echo" }));
        let answer = http.post(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()).await;
        assert_eq!(answer.status.as_u16(), status, "{method}: {answer:?}");
    }
    assert_eq!(upstream.count("echo"), 0);
}

#[tokio::test]
async fn headers_and_body_have_to_say_the_same() {
    let (upstream, gate) = gate().await;
    let client = Modern::plain(&gate.url);
    let body = |version: &str| {
        let mut params = client.params(json!({ "name": "echo" }));
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(version);
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
    };
    let http = Client::new(&gate.url).with("mcp-protocol-version", VERSION);
    let mut twice = http.with("mcp-method", "tools/call").with("mcp-name", "echo");
    twice.headers.append("mcp-protocol-version", VERSION.parse().unwrap());
    let (call, name) = (http.with("mcp-method", "tools/call"), "mcp-name");
    for (client, body, code) in [
        (call.clone(), body(VERSION), -32020),
        (twice, body(VERSION), -32020),
        (http.with(name, "echo"), body(VERSION), -32020),
        (call.with(name, "other"), body(VERSION), -32020),
        (call.with(name, "echo").with("mcp-method", "tools/list"), body(VERSION), -32020),
        (call.with(name, "echo"), body("2099-01-01"), -32020),
        (call.with(name, "echo").without("mcp-protocol-version"), body(VERSION), -32020),
        (call.with(name, "echo").with("mcp-protocol-version", "2099-01-01"), body("2099-01-01"), -32022),
    ] {
        let answer = client.post(body).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (400, &json!(code)), "{answer:?}");
        assert_eq!(answer.json()["id"], 1);
    }
    assert_eq!(upstream.count("initialize"), 0);
}

#[tokio::test]
async fn a_request_without_what_each_request_says_is_400_and_32602() {
    let (_upstream, gate) = gate().await;
    let http = Client::new(&gate.url).with("mcp-protocol-version", VERSION).with("mcp-method", "server/discover");
    for meta in [
        json!({}),
        json!({ "io.modelcontextprotocol/protocolVersion": VERSION }),
        json!({ "io.modelcontextprotocol/clientCapabilities": {} }),
        json!({ "io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": 7 }),
    ] {
        let body = json!({ "jsonrpc": "2.0", "id": 3, "method": "server/discover", "params": { "_meta": meta } });
        let answer = http.post(body.to_string()).await;
        assert_eq!(answer.refusal().0, 400, "{answer:?}");
        assert_eq!((answer.refusal().1, &answer.json()["id"]), (-32602, &json!(3)), "{answer:?}");
    }
}

#[tokio::test]
async fn a_progress_token_that_is_no_string_or_integer_is_400_and_32602_and_makes_no_task() {
    let upstream = Upstream::json().await;
    let gate = Gate::to(&upstream.url(), "[tasks]\ntask_after = \"0s\"").await;
    for client in [Modern::plain(&gate.url), Modern::with_tasks(&gate.url)] {
        for token in [json!(1.5), json!(null), json!({}), json!(1e2), json!(true), json!("x".repeat(1100))] {
            let params = json!({ "name": "echo", "arguments": {}, "_meta": { "progressToken": token } });
            let (status, code, message) = client.refusal("tools/call", params).await;
            assert_eq!((status, code), (400, -32602), "{token}: {message}");
            assert!(message.contains("progress token"), "{message}");
        }
    }
    assert_eq!(upstream.count("echo"), 0);
}

#[tokio::test]
async fn responses_batches_and_requests_that_name_a_session_are_400() {
    let (_upstream, gate) = gate().await;
    let modern = Modern::plain(&gate.url);
    let http = Client::new(&gate.url).with("mcp-protocol-version", VERSION).with("mcp-method", "ping");
    for body in [json!({ "jsonrpc": "2.0", "id": 1, "result": {} }), json!([])] {
        assert_eq!(http.post(body.to_string()).await.status, 400, "{body}");
    }
    let mut in_session = modern.clone();
    in_session.http = in_session.http.with("mcp-session-id", "00000000-0000-4000-8000-000000000000");
    let (status, code, _) = in_session.refusal("tools/list", json!({})).await;
    assert_eq!((status, code), (400, -32600));
}

#[tokio::test]
async fn unknown_and_malformed_ids_get_one_answer() {
    let (_upstream, gate) = gate().await;
    let client = Modern::with_tasks(&gate.url);
    let mut answers: Vec<(u16, i64, String)> = Vec::new();
    for id in ["x", "00000000-0000-4000-8000-000000000000"] {
        for (method, params) in [
            ("tasks/get", json!({ "taskId": id })),
            ("tasks/update", json!({ "taskId": id, "inputResponses": {} })),
            ("tasks/cancel", json!({ "taskId": id })),
        ] {
            answers.push(client.refusal(method, params).await);
        }
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!((answers[0].0, answers[0].1), (200, -32602));
    let without: Value = json!({});
    assert_eq!(client.refusal("tasks/get", without).await.1, -32602);
}

#[tokio::test]
async fn with_modern_false_a_client_is_answered_as_by_a_server_with_sessions() {
    let upstream = Upstream::json().await;
    let toml = format!("[[upstream]]\nurl = {:?}\nmodern = false\n", upstream.url());
    let gate = Gate::configured(&toml).await;
    let client = Modern::plain(&gate.url).http.with("mcp-protocol-version", VERSION);
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {} });
    let answer = client.post(request.to_string()).await;
    assert_eq!(answer.status, 400);
    assert!(![-32020, -32021, -32022].contains(&answer.refusal().1), "it falls back: {answer:?}");
}

#[tokio::test]
async fn an_error_does_not_repeat_a_long_text_of_a_client() {
    let upstream = Upstream::json().await;
    let gate = Gate::to(&upstream.url(), "tasks.support = \"required\"").await;
    let client = Modern::plain(&gate.url);
    // As much as a header may have.
    let long = "x".repeat(20_000);
    let body = |version: &str, method: &str, name: &str| {
        let mut params = client.params(json!({ "name": name }));
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(version);
        json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
    };
    let with = |version: &str, method: &str, name: &str| {
        let http = Client::new(&gate.url).with("mcp-protocol-version", version);
        http.with("mcp-method", method).with("mcp-name", name)
    };
    for (http, body, code) in [
        (with(&long, "tools/call", "echo"), body(&long, "tools/call", "echo"), -32022),
        (with(VERSION, "tools/call", "echo"), body(VERSION, &long, "echo"), -32020),
        (with(VERSION, "tools/call", &long), body(VERSION, "tools/call", &long), -32021),
    ] {
        let answer = http.post(body).await;
        assert_eq!(answer.json()["error"]["code"], code, "{answer:?}");
        assert!(answer.text().contains(&"x".repeat(400)) && answer.body.len() < 1000, "{}", answer.body.len());
    }
    let server = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&server).await;
    let answer = Client::new(&gate.url).ask_to_initialize(&long, json!({})).await;
    assert_eq!(answer.json()["error"]["code"], -32022, "{answer:?}");
    assert!(answer.text().contains(&"x".repeat(400)) && answer.body.len() < 1000, "{}", answer.body.len());
}
