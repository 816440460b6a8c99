//! Hosts on one channel: over stdio, and over the transport of revision 2024-11-05; and servers over stdio.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    host::{Job, SOON, text},
    kit::{Children, Client, Gate, Script, Stream, Upstream, Wrapped},
    modern_client::Modern,
};

/// Returns the folder and the path of a file with these settings.
fn config(toml: &str) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("config.toml");
    fs::write(&path, toml).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_host_over_stdio_gets_jobs_with_the_same_settings() {
    let upstream = Upstream::sse().await;
    let (_folder, path) = config(SOON);
    let url = upstream.url();
    let mut host = Wrapped::connect(&["--config", &path, "--upstream", &url]).await;
    let listed = host.request("tools/list", json!({})).await;
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 4, "{listed}");
    let answer = host.request("tools/call", json!({ "name": "slow", "arguments": {} })).await;
    let job = Job::in_words(&answer["result"]);
    let slow = upstream.held("slow").await.sse();
    let cancelled = host.ask("tools/call", job.waits(50.0)).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": cancelled } });
    host.write(&cancel.to_string()).await;
    let still = host.request("tools/call", job.waits(0.0)).await;
    assert!(text(&still["result"]).contains("which is normal"), "{still}");
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    let waits = host.ask("tools/call", job.waits(50.0)).await;
    let done = host.until(|message| message["id"] == cancelled || message["id"] == waits).await;
    assert_eq!((&done["id"], text(&done["result"])), (&json!(waits), "done".to_owned()), "the other one was cancelled");
}

#[tokio::test]
async fn a_question_whose_wait_is_cancelled_is_asked_again() {
    let upstream = Upstream::sse().await;
    let (_folder, path) = config(SOON);
    let url = upstream.url();
    let mut host = Wrapped::connect(&["--config", &path, "--upstream", &url]).await;
    let answer = host.request("tools/call", json!({ "name": "slow", "arguments": {} })).await;
    let job = Job::in_words(&answer["result"]);
    let slow = upstream.held("slow").await.sse();
    let params = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    let request = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params });
    slow.event(&request.to_string()).await;
    let mut asked = Vec::new();
    for _ in 0..2 {
        let waits = host.ask("tools/call", job.waits(50.0)).await;
        asked.push(host.until(|message| message["method"] == "elicitation/create").await["id"].clone());
        let params = json!({ "requestId": waits });
        let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
        host.write(&cancel.to_string()).await;
        // It has been taken once this is answered.
        host.request("ping", json!({})).await;
    }
    assert_eq!(asked[0], asked[1]);
    let accept = json!({ "jsonrpc": "2.0", "id": asked[1], "result": { "action": "decline" } });
    host.write(&accept.to_string()).await;
    let answered = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q").await;
    assert_eq!(answered.json()["result"]["action"], "decline");
}

/// A host of the transport of revision 2024-11-05.
struct OldHost {
    stream: Stream,
    messages: Client,
}

impl OldHost {
    async fn connect(gate: &Gate) -> Self {
        let mut stream = Client::new(&gate.url.replace("/mcp", "/sse")).get_stream().await;
        let endpoint = stream.next().await.unwrap().data;
        let messages = Client::new(&format!("http://{}{endpoint}", gate.authority()));
        let mut host = Self { stream, messages };
        let info = json!({ "name": "test", "version": "1" });
        let params =
            json!({ "protocolVersion": "2024-11-05", "capabilities": { "elicitation": {} }, "clientInfo": info });
        assert!(host.request("initialize", params).await["result"].is_object());
        host.messages.notify("notifications/initialized", json!({})).await;
        host
    }

    async fn ask(&self, method: &str, params: Value) -> u64 {
        let id = self.messages.next_id();
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        assert_eq!(self.messages.post(request.to_string()).await.status, 202);
        id
    }

    async fn answer_to(&mut self, id: u64) -> Value {
        loop {
            let message = self.stream.message().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.answer_to(id).await
    }
}

#[tokio::test]
async fn a_host_over_http_and_sse_gets_jobs_and_is_asked_while_it_waits() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, &format!("{SOON}\n[[upstream]]\nsse_path = \"/sse\"")).await;
    let mut host = OldHost::connect(&gate).await;
    let answer = host.request("tools/call", json!({ "name": "slow", "arguments": {} })).await;
    let job = Job::in_words(&answer["result"]);
    let slow = upstream.held("slow").await.sse();
    let params = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    let request = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params });
    slow.event(&request.to_string()).await;
    let waiting = host.ask("tools/call", job.waits(50.0)).await;
    let question = crate::host::next(&mut host.stream, "elicitation/create").await;
    host.messages.respond(&question["id"], json!({ "action": "decline" })).await;
    let answered = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "q").await;
    assert_eq!(answered.json()["result"]["action"], "decline");
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    assert_eq!(text(&host.answer_to(waiting).await["result"]), "done");
}

#[tokio::test]
async fn a_call_of_a_server_over_stdio_becomes_a_job_while_the_server_answers_nothing_else() {
    let script = "while IFS= read -r line; do id=${line#*'\"id\":'}; id=${id%%[,\\}]*}; case $line in \
        *initialize\\\"*) printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"protocolVersion\":\"2025-06-18\",\
        \"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"sh\",\"version\":\"1\"}}}\\n' \"$id\" ;; \
        *tools/call*) sleep 1; printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\
        \"text\":\"done\"}]}}\\n' \"$id\" ;; esac; done";
    let gate = Gate::with_command("sh", &["-c", script], SOON).await;
    let host = Client::connect_as(&gate.url, "2025-06-18", json!({})).await;
    let calling = host.stream("tools/call", json!({ "name": "slow", "arguments": {} }));
    let job = Job::in_words(&calling.last().await["result"]);
    assert_eq!(text(&crate::host::wait(&host, &job, 50.0).await), "done");
}

#[tokio::test]
async fn a_process_that_was_asked_for_its_tools_serves_the_next_call_too() {
    let children = Children::new(Script::default());
    let gate = children.gate("tasks.job_after = \"50m\"").await;
    let host = Modern::able(&gate.url, json!({ "elicitation": {} }));
    let pids = [host.call("pid").await, host.call("pid").await];
    assert_eq!(text(&pids[0]), text(&pids[1]));
}
