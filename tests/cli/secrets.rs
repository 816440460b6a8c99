//! The log at its loudest has nothing that clients and servers say to each other.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::{Answers, Binary, Children, Client, Options, Script, Upstream, Wrapped, soon, text_in};

/// Stands wherever something is said.
const SECRET: &str = "open-sesame";

fn arguments(tool: &str) -> Value {
    json!({ "name": tool, "arguments": { "password": SECRET } })
}

fn as_task(tool: &str) -> Value {
    json!({ "name": tool, "arguments": { "password": SECRET }, "task": {} })
}

async fn created(client: &Client, tool: &str) -> String {
    client.ask("tools/call", as_task(tool)).await["task"]["taskId"].as_str().unwrap().to_owned()
}

/// Says the secret in everything that a client and a server behind HTTP can say to each other.
async fn talk(client: &Client, upstream: &Upstream) {
    let client = client.with("authorization", &format!("Bearer {SECRET}")).with("x-api-key", SECRET);
    let able = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    let client = client.initialize("2025-11-25", able).await;
    let mut listening = client.get_stream().await;
    // A plain call, its result, an HTTP error, and an answer that is no message.
    client.answer("tools/call", arguments("echo")).await;
    for (status, kind, body) in
        [(500, "text/plain", SECRET.to_owned()), (200, "application/json", format!("{{{SECRET}"))]
    {
        upstream.hold("odd");
        let caller = client.clone();
        let calling = tokio::spawn(async move { caller.answer("odd", json!({ "password": SECRET })).await });
        upstream.held("odd").await.status(status, &[("content-type", kind)], &body);
        soon(calling).await.unwrap();
    }
    // A task with progress, a log message, a question and its answer.
    let id = created(&client, "slow").await;
    let slow = upstream.held("slow").await.sse();
    slow.notify("notifications/message", json!({ "level": "info", "data": SECRET })).await;
    slow.raw(&format!("data: {SECRET}\n\n")).await;
    let question = json!({ "message": SECRET, "requestedSchema": { "type": "object", "properties": {} } });
    let question = json!({ "jsonrpc": "2.0", "id": SECRET, "method": "elicitation/create", "params": question });
    slow.event(&question.to_string()).await;
    let asked = loop {
        let message = listening.message().await;
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    client.respond(&asked["id"], json!({ "action": "accept", "content": { "password": SECRET } })).await;
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == SECRET).await;
    client.respond(&asked["id"], json!({ "action": "accept", "content": { "password": SECRET } })).await;
    slow.result(&json!({ "content": [{ "type": "text", "text": SECRET }] }).to_string()).await;
    client.until(&id, "completed").await;
    client.collect(&id).await;
    // Tasks that fail, in each way.
    let error = json!({ "code": -7, "message": SECRET, "data": { "why": SECRET } }).to_string();
    let bad = json!({ "isError": true, "content": [{ "type": "text", "text": SECRET }] }).to_string();
    for tool in ["fails", "errs", "breaks", "jumps"] {
        let id = created(&client, tool).await;
        let held = upstream.held(tool).await;
        match tool {
            "fails" => held.error(&error),
            "errs" => held.result(&bad),
            "breaks" => held.status(502, &[], SECRET),
            _ => held.status(302, &[("location", &format!("/elsewhere?key={SECRET}"))], ""),
        }
        client.until(&id, "failed").await;
        client.response("tasks/result", json!({ "taskId": id })).await;
    }
    // Requests that taskgate refuses.
    client.error("tasks/get", json!({ "taskId": SECRET })).await;
    client.post(format!("{{{SECRET}")).await;
    client.with("last-event-id", SECRET).send(http::Method::GET, "").await;
    client.with("mcp-session-id", SECRET).post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    client.notify("notifications/cancelled", json!({ "requestId": SECRET, "reason": SECRET })).await;
    client.delete().await;
}

fn is_clean(log: &str) {
    let lines: Vec<_> = log.lines().filter(|line| line.contains(SECRET)).collect();
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

#[tokio::test]
async fn the_log_has_nothing_that_clients_and_servers_say_to_each_other() {
    for answers in [Answers::Json, Answers::Sse] {
        let upstream = Upstream::start(Options { answers, ..Options::default() }).await;
        let url = format!("{}?key={SECRET}", upstream.url());
        let args = ["--log", "trace", "serve", "--listen", "127.0.0.1:0", "--upstream", &url];
        let taskgate = Binary::start(&args, &[]);
        let address = taskgate.url().await;
        for client in [Client::new(&address), Client::http2(&address)] {
            talk(&client, &upstream).await;
        }
        upstream.stop().await;
        // This error has the address of the server.
        let refused = Client::new(&address).ask_to_initialize("2025-11-25", json!({})).await;
        assert!(refused.text().contains("cannot be reached") && !refused.text().contains(SECRET), "{}", refused.text());
        taskgate.signal(Signal::TERM);
        let log = taskgate.end().await.stderr;
        assert!(log.contains("cannot be reached") && log.contains("TRACE"), "{log}");
        is_clean(&log);
    }
}

#[tokio::test]
async fn the_log_has_nothing_that_a_client_and_a_child_process_say_to_each_other() {
    let tools = r#"
    *'"name":"junk"'*) echo '"open-sesame"'; echo '{"result":"open-sesame"'; echo 'open-sesame'; text "$id" open-sesame ;;
    *'"name":"bad"'*) reply "$id" '{"isError":true,"content":[{"type":"text","text":"open-sesame"}]}' ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let taskgate = Binary::start(
        &[&["--log", "trace", "serve", "--listen", "127.0.0.1:0", "--"], &children.command()[..]].concat(),
        &[],
    );
    let client = Client::connect(&taskgate.url().await).await;
    let answer = client.request("tools/call", arguments("junk")).await;
    assert_eq!(text_in(&answer["result"]), SECRET);
    let id = created(&client, "bad").await;
    client.until(&id, "failed").await;
    client.collect(&id).await;
    taskgate.signal(Signal::TERM);
    let log = taskgate.end().await.stderr;
    assert!(log.contains("the server wrote a line that is not a message"), "{log}");
    is_clean(&log);

    let mut wrapped = Wrapped::connect(&[&["--log", "trace", "--"], &children.command()[..]].concat()).await;
    wrapped.request("tools/call", arguments("junk")).await;
    let id = wrapped.request("tools/call", as_task("bad")).await["result"]["task"]["taskId"].take();
    let got = wrapped.request("tasks/result", json!({ "taskId": id })).await;
    assert!(got.to_string().contains(SECRET), "{got}");
    wrapped.write(&format!("{{{SECRET}")).await;
    wrapped.close();
    is_clean(&wrapped.end().await.1);
}
