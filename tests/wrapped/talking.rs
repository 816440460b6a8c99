//! What passes between a client on stdin and stdout and its server.

use serde_json::{Value, json};

use crate::kit::{Children, Script, Upstream, Wrapped};

const ASKING: Script = Script {
    setup: "echo 'this line is no message'; echo 'nor is this one' >&2",
    tools: r#"*'"name":"ask"'*)
        asked=$id
        echo '{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"Really?"}}' ;;
    *'"id":"q-1"'*) text "$asked" answered ;;"#,
    after: "",
};

fn args(children: &Children) -> Vec<&str> {
    [&["--"], &children.command()[..]].concat()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

#[tokio::test]
async fn a_stdio_server_gets_tasks_and_stdout_carries_nothing_but_messages() {
    let children = Children::new(ASKING);
    let mut client = Wrapped::connect(&args(&children)).await;
    let call = json!({ "name": "pid", "arguments": {} });
    let plain = client.request("tools/call", call).await;
    let pid = children.only().await.pid;
    assert_eq!(text(&plain["result"]), pid);
    let created = client.request("tools/call", json!({ "name": "pid", "task": {} })).await;
    let id = json!({ "taskId": created["result"]["task"]["taskId"] });
    let collected = client.request("tasks/result", id.clone()).await;
    assert_eq!(text(&collected["result"]), pid);
    assert_eq!(client.request("tasks/get", id).await["result"]["status"], "completed");
}

#[tokio::test]
async fn a_task_asks_its_client_and_reports_to_it_without_polling() {
    let children = Children::new(ASKING);
    let mut client = Wrapped::connect(&args(&children)).await;
    let created = client.request("tools/call", json!({ "name": "ask", "task": {} })).await;
    let task = created["result"]["task"]["taskId"].clone();
    let told = client.message().await;
    assert_eq!(
        (&told["method"], &told["params"]["status"]),
        (&json!("notifications/tasks/status"), &json!("input_required"))
    );
    let question = client.message().await;
    assert_eq!(question["params"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], task);
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept", "content": {} } });
    client.write(&answer.to_string()).await;
    client.until(|message| message["params"]["status"] == "completed").await;
    let collected = client.request("tasks/result", json!({ "taskId": task })).await;
    assert_eq!(text(&collected["result"]), "answered");
}

#[tokio::test]
async fn malformed_notifications_and_responses_go_nowhere() {
    let children = Children::new(ASKING);
    let mut client = Wrapped::connect(&args(&children)).await;
    for line in [
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"die","task":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"die"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{},"_meta":{"progressToken":1}}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}"#,
        r#"{"jsonrpc":"2.0","id":"q-1","result":{"action":"accept","action":"decline"}}"#,
    ] {
        client.write(line).await;
    }
    // Nothing was answered: this is the first thing that comes.
    let id = client.ask("tools/call", json!({ "name": "pid" })).await;
    let (answer, child) = (client.message().await, children.only().await);
    assert_eq!((&answer["id"], text(&answer["result"])), (&json!(id), &*child.pid));
    let lines = child.lines();
    assert!(!lines.iter().any(|line| ["die", "_meta", "requestId", "q-1"].iter().any(|part| line.contains(part))));
}

#[tokio::test]
async fn an_http_server_is_reached_from_stdin_too() {
    let upstream = Upstream::sse().await;
    let mut client = Wrapped::connect(&["--upstream", &upstream.url()]).await;
    let id = client.ask("tools/call", json!({ "name": "slow", "_meta": { "progressToken": "t" } })).await;
    let slow = upstream.held("slow").await.sse();
    slow.progress(1).await;
    let progress = client.message().await;
    assert_eq!(progress["params"], json!({ "progressToken": "t", "progress": 1 }));
    // Messages of the server itself come on the same channel.
    upstream.get_stream().await.notify("notifications/x", json!({})).await;
    assert_eq!(client.message().await["method"], "notifications/x");
    slow.result(r#"{"x":1.50}"#).await;
    assert_eq!(client.message().await, json!({ "jsonrpc": "2.0", "id": id, "result": { "x": 1.50 } }));
}

#[tokio::test]
async fn a_cancellation_does_not_overtake_its_request() {
    let upstream = Upstream::json().await;
    let mut client = Wrapped::connect(&["--upstream", &upstream.url()]).await;
    let id = client.ask("tools/call", json!({ "name": "slow" })).await;
    let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    client.write(&cancelled.to_string()).await;
    let slow = upstream.held("slow").await;
    let told = upstream.wait_for_message("notifications/cancelled").await;
    assert_eq!(told.json()["params"]["requestId"].to_string(), slow.seen.id());
}

#[tokio::test]
async fn what_needs_no_session_is_answered_while_initialize_is_open() {
    let upstream = Upstream::json().await;
    upstream.hold("initialize");
    let mut client = Wrapped::start(&["--upstream", &upstream.url()]);
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
    let opening = client.ask("initialize", params).await;
    let opens = upstream.held("initialize").await;
    let listing = client.ask("tools/list", json!({})).await;
    let ping = client.ask("ping", json!({})).await;
    assert_eq!(client.message().await["id"], ping);
    client.write("{").await;
    assert_eq!(client.message().await["error"]["code"], -32700);
    opens.status(500, &[], "not today");
    assert_eq!(client.message().await["id"], opening);
    assert_eq!(client.message().await["id"], listing);
}

#[tokio::test]
async fn an_invalid_message_is_answered_and_the_session_goes_on() {
    let children = Children::new(Script::default());
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), "[server]\nmax_body = 200").unwrap();
    let mut client = Wrapped::start(&[&["--config", config.path().to_str().unwrap()], &args(&children)[..]].concat());
    client.write(r#"{"jsonrpc":"2.0","id":"early","method":"tools/list"}"#).await;
    let early = client.message().await;
    assert_eq!((&early["id"], &early["error"]["code"]), (&json!("early"), &json!(-32600)));
    // Some shells on Windows begin what they write with a byte order mark.
    client.write("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}").await;
    assert_eq!(client.message().await, json!({ "jsonrpc": "2.0", "id": "p", "result": {} }));
    client.initialize().await;
    let long = json!({ "jsonrpc": "2.0", "id": 8, "method": "x", "params": { "text": "x".repeat(201) } }).to_string();
    for (line, code, words, id) in [
        ("{", -32700, "not valid JSON", None),
        ("[]", -32600, "batch", None),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, -32600, "id", None),
        (r#"{"jsonrpc":"2.0","id":9,"method":5}"#, -32600, "\"method\" must be a string", Some(json!(9))),
        (r#"{"jsonrpc":"2.0","id":"a","method":"x","params":null}"#, -32600, "\"params\"", Some(json!("a"))),
        (r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1}}"#, -32600, "not both", None),
        (r#"{"jsonrpc":"2.0","id":7}"#, -32600, "needs", None),
        (&"[".repeat(150), -32600, "nests deeper", None),
        (
            &format!(r#"{{"jsonrpc":"2.0","id":7,"method":"x","p":{}"#, "[".repeat(150)),
            -32600,
            "deeper",
            Some(json!(7)),
        ),
        (&"x".repeat(201), -32600, "max_body = 200", None),
        (&long, -32600, "max_body = 200", Some(json!(8))),
    ] {
        client.write(line).await;
        let answer = client.message().await;
        assert_eq!((&answer["error"]["code"], answer.get("id")), (&json!(code), id.as_ref()), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
    }
    client.write("").await;
    assert!(client.request("ping", json!({})).await["result"].is_object());
}

#[tokio::test]
async fn a_request_of_neither_generation_is_refused_and_initialize_still_opens_a_session() {
    let children = Children::new(Script::default());
    let mut client = Wrapped::start(&args(&children));
    let probe = client.request("server/discover", json!({})).await;
    assert_eq!(probe["error"]["code"], -32602, "{probe}");
    assert!(client.initialize().await["result"].is_object());
}

#[tokio::test]
async fn requests_over_the_limit_in_flight_are_refused_and_other_messages_are_still_read() {
    let upstream = Upstream::json().await;
    let mut client = Wrapped::connect(&["--upstream", &upstream.url()]).await;
    let mut last = 0;
    for _ in 0..1025 {
        last = client.ask("tools/call", json!({ "name": "slow" })).await;
    }
    let refused = client.until(|message| message["id"] == last).await;
    let why = refused["error"]["message"].as_str().unwrap();
    assert!(why.contains("1024 requests in flight"), "{why}");
    let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } });
    client.write(&cancelled.to_string()).await;
    upstream.wait_for_message("notifications/cancelled").await;
}

#[tokio::test]
async fn a_cancelled_tasks_result_gets_no_answer_and_leaves_the_task_alone() {
    let children = Children::new(Script::default());
    let mut client = Wrapped::connect(&args(&children)).await;
    let created = client.request("tools/call", json!({ "name": "hold", "task": {} })).await;
    let task = json!({ "taskId": created["result"]["task"]["taskId"] });
    let waiting = client.ask("tasks/result", task.clone()).await;
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": waiting } });
    client.write(&cancelled.to_string()).await;
    assert_eq!(client.request("tasks/get", task.clone()).await["result"]["status"], "working");
    let end = client.ask("tasks/cancel", task).await;
    let mut got = [client.message().await, client.message().await];
    got.sort_by_key(|message| message.get("id").is_some());
    assert_eq!((&got[0]["params"]["status"], &got[1]["id"]), (&json!("cancelled"), &json!(end)));
}

#[tokio::test]
async fn a_request_with_the_id_of_one_that_is_open_is_refused_and_the_first_can_be_cancelled() {
    let modern = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for meta in [json!({}), modern] {
        let upstream = Upstream::json().await;
        let mut client = Wrapped::connect(&["--upstream", &upstream.url()]).await;
        let call = |name| {
            let params = json!({ "name": name, "arguments": {}, "_meta": meta });
            json!({ "jsonrpc": "2.0", "id": "five", "method": "tools/call", "params": params }).to_string()
        };
        client.write(&call("slow")).await;
        let slow = upstream.held("slow").await;
        client.write(&call("echo")).await;
        let refused = client.message().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!("five"), &json!(-32600)), "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("is still open"), "{refused}");
        let params = json!({ "requestId": "five", "_meta": meta });
        let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        client.write(&cancelled.to_string()).await;
        let told = upstream.wait_for_message("notifications/cancelled").await;
        assert_eq!(told.json()["params"]["requestId"].to_string(), slow.seen.id());
        assert_eq!(upstream.count("echo"), 0);
    }
}

#[tokio::test]
async fn an_id_can_be_used_again_once_its_request_is_answered() {
    let upstream = Upstream::json().await;
    let mut client = Wrapped::connect(&["--upstream", &upstream.url()]).await;
    for _ in 0..20 {
        client.write(r#"{"jsonrpc":"2.0","id":"same","method":"tools/call","params":{"name":"echo"}}"#).await;
        assert!(client.message().await["result"].is_object());
    }
}
