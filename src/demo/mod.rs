//! `taskgate demo`: follows one task from call to result, with nothing but this binary.

pub(crate) mod server;

use std::{
    error::Error,
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use taskgate::{
    app::App,
    config::{Config, Target},
    gate::http::Workers,
};
use tokio::{sync::oneshot, time::Instant};

use crate::{log::Log, say};

type BoxError = Box<dyn Error + Send + Sync>;

/// Runs the demo on the terminal.
pub(crate) async fn run(log: &Log) -> ExitCode {
    match serve_and_follow().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.say(&format!("taskgate demo: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn serve_and_follow() -> Result<(), BoxError> {
    let program = std::env::current_exe()?.display().to_string();
    let mut config = Config::for_upstream(Target::Command { program, args: vec!["demo-server".to_owned()] });
    config.server.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let app = App::bind(config, Workers::here()).await?;
    let endpoint = app.endpoints().swap_remove(0);
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(app.run(async {
        let _ = stopped.await;
    }));
    say(&format!("A slow MCP server without tasks, and taskgate in front of it at {endpoint}\n"));
    let followed = follow(&endpoint).await;
    drop(stop);
    serving.await?;
    followed?;
    say("\nThe call took its time, no connection had to wait for it, and the server was not changed.");
    say("Now with a server of yours:  taskgate serve --upstream http://127.0.0.1:3000/mcp");
    say("                        or:  taskgate serve -- npx -y @modelcontextprotocol/server-filesystem .");
    Ok(())
}

async fn follow(endpoint: &str) -> Result<(), BoxError> {
    let mut client = McpClient::new(endpoint);
    let initialized = client
        .request(
            "initialize",
            &json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": { "name": "taskgate-demo", "version": env!("CARGO_PKG_VERSION") },
            }),
        )
        .await?;
    client.tell("initialize", &format!("the server's capabilities, now with tasks: {}", initialized["capabilities"]));
    client.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
    let tools = client.request("tools/list", &json!({})).await?;
    let tool = &tools["tools"][0];
    client.tell("tools/list", &format!("{}, taskSupport {}", tool["name"], tool["execution"]["taskSupport"]));
    let call = json!({ "name": "write_report", "task": { "ttl": 60_000 }, "_meta": { "progressToken": "demo" } });
    let asked = Instant::now();
    let created = client.request("tools/call", &call).await?;
    let took = asked.elapsed();
    let task = &created["task"];
    let id = task["taskId"].clone();
    client.tell("tools/call", &format!("answered after {took:.1?} with task {}", text(&id)));
    let mut last = String::new();
    loop {
        let task = client.request("tasks/get", &json!({ "taskId": id })).await?;
        let now = format!("{:10} {}", text(&task["status"]), text(&task["statusMessage"]));
        if now != last {
            client.tell("tasks/get", &now);
            last = now;
        }
        if task["status"] != "working" {
            break;
        }
        // Far more often than the pollInterval suggests, so that every change shows.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let result = client.request("tasks/result", &json!({ "taskId": id })).await?;
    client.tell("tasks/result", text(&result["content"][0]["text"]));
    Ok(())
}

/// As much of an MCP client as the demo needs.
struct McpClient<'a> {
    http: Client<HttpConnector, Full<Bytes>>,
    endpoint: &'a str,
    session: Option<HeaderValue>,
    next_id: u64,
    since: Instant,
}

impl<'a> McpClient<'a> {
    fn new(endpoint: &'a str) -> Self {
        let http = Client::builder(TokioExecutor::new()).build_http();
        Self { http, endpoint, session: None, next_id: 1, since: Instant::now() }
    }

    async fn request(&mut self, method: &str, params: &Value) -> Result<Value, BoxError> {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let body = self.post(&message).await?;
        let mut response: Value = serde_json::from_slice(&body)?;
        match response.get("error") {
            Some(error) => Err(format!("{method}: {error}").into()),
            None => Ok(response["result"].take()),
        }
    }

    async fn post(&mut self, message: &Value) -> Result<Bytes, BoxError> {
        let mut request = Request::post(self.endpoint)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream")
            .body(Full::from(message.to_string()))?;
        if let Some(session) = &self.session {
            request.headers_mut().insert("mcp-session-id", session.clone());
        }
        let response = self.http.request(request).await?;
        if let Some(session) = response.headers().get("mcp-session-id") {
            self.session = Some(session.clone());
        }
        Ok(response.into_body().collect().await?.to_bytes())
    }

    fn tell(&self, method: &str, what: &str) {
        say(&format!("{:5.1} s  {method:12}  {what}", self.since.elapsed().as_secs_f64()));
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
