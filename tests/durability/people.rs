//! Clients that live on when taskgate is killed: each request may fail, and is then made again.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::workshop::Job;

/// Why a request has no answer that says anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection broke, or taskgate said that it cannot answer now.
    Gone(String),
    /// taskgate no longer knows the session.
    SessionLost,
    /// The store does not answer, or not with this.
    Unavailable(String),
    /// taskgate refused it for any other reason.
    Refused(String),
}

/// What answers say where the store does not answer, and where a result in it is damaged.
const UNAVAILABLE: [&str; 2] =
    ["taskgate cannot reach its store of tasks now; try again", "damaged on the disk of taskgate and cannot be read"];

pub(crate) type Outcome<T> = Result<T, Failure>;

/// In which form a person asks for tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Legacy,
    Modern,
}

/// A task as a client is told of it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) status: String,
    /// What the task says of itself.
    pub(crate) message: String,
    /// Its result or error, if it has ended; not asked for where it was cancelled.
    pub(crate) end: Option<Value>,
}

impl Seen {
    pub(crate) fn has_ended(&self) -> bool {
        ["completed", "failed", "cancelled"].contains(&self.status.as_str())
    }
}

/// A user of one endpoint.
#[derive(Clone)]
pub(crate) struct Person {
    http: Http<HttpConnector, Full<Bytes>>,
    pub(crate) form: Form,
    name: String,
    /// The path of the endpoint.
    pub(crate) path: &'static str,
    /// The session, where the form has one.
    session: Arc<Mutex<Option<String>>>,
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

impl Person {
    pub(crate) fn new(form: Form, name: &str, path: &'static str) -> Self {
        let http = Http::builder(TokioExecutor::new()).build_http();
        Self { http, form, name: name.to_owned(), path, session: Arc::default() }
    }

    /// Returns the same person in a new session.
    pub(crate) fn elsewhere(&self) -> Self {
        Self { session: Arc::default(), ..self.clone() }
    }

    async fn send(&self, base: &str, headers: HeaderMap, body: String) -> Outcome<(StatusCode, HeaderMap, Value)> {
        let gone = |why: String| Failure::Gone(why);
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = format!("{base}/{}", self.path).parse().unwrap();
        *request.headers_mut() = headers;
        for (name, value) in [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("x-user", &self.name),
        ] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let answering = async {
            let (head, body) = self.http.request(request).await.map_err(|error| gone(error.to_string()))?.into_parts();
            let body = body.collect().await.map_err(|error| gone(error.to_string()))?.to_bytes();
            Ok((head, body))
        };
        let (head, body) = tokio::time::timeout(PATIENCE, answering)
            .await
            .unwrap_or_else(|_| panic!("a request to {} got no answer in {PATIENCE:?}", self.path))?;
        let text = String::from_utf8(body.to_vec()).unwrap();
        // The response is the last event of a stream.
        let document = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
        let json = serde_json::from_str(document).unwrap_or(Value::Null);
        if head.status == 503 {
            assert!(head.headers.contains_key("retry-after"), "503 without Retry-After: {text}");
            return Err(gone(text));
        }
        Ok((head.status, head.headers, json))
    }

    /// Sends a request, and returns the response to it, opening a session first where it needs one.
    async fn response(&self, base: &str, method: &str, mut params: Value) -> Outcome<Value> {
        let mut headers = HeaderMap::new();
        match self.form {
            Form::Legacy => {
                let session = self.session(base).await?;
                headers.insert("mcp-session-id", session.parse().unwrap());
                headers.insert("mcp-protocol-version", "2025-11-25".parse().unwrap());
            }
            Form::Modern => {
                let named = ["name", "taskId"].iter().find_map(|key| params[*key].as_str().map(str::to_owned));
                headers.insert("mcp-protocol-version", "2026-07-28".parse().unwrap());
                headers.insert("mcp-method", method.parse().unwrap());
                if let Some(name) = named {
                    headers.insert("mcp-name", name.parse().unwrap());
                }
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
                    "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
                });
            }
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let (status, _, response) = self.send(base, headers, body).await?;
        if status == 404 && self.form == Form::Legacy {
            *self.session.lock() = None;
            return Err(Failure::SessionLost);
        }
        Ok(response)
    }

    async fn result(&self, base: &str, method: &str, params: Value) -> Outcome<Value> {
        let mut response = self.response(base, method, params).await?;
        match response.get("result") {
            Some(_) => Ok(response["result"].take()),
            None => Err(refused(method, &response)),
        }
    }

    async fn session(&self, base: &str) -> Outcome<String> {
        if let Some(session) = self.session.lock().clone() {
            return Ok(session);
        }
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string();
        let (_, headers, response) = self.send(base, HeaderMap::new(), body).await?;
        let session =
            headers.get("mcp-session-id").ok_or_else(|| Failure::Refused(format!("initialize: {response}")))?;
        let mut headers = HeaderMap::new();
        headers.insert("mcp-session-id", session.clone());
        headers.insert("mcp-protocol-version", "2025-11-25".parse().unwrap());
        let body = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
        self.send(base, headers, body).await?;
        let session = session.to_str().unwrap().to_owned();
        *self.session.lock() = Some(session.clone());
        Ok(session)
    }

    /// Creates a task, and returns its id.
    pub(crate) async fn create(&self, base: &str, job: &Job) -> Outcome<String> {
        let mut params = job.params();
        if self.form == Form::Legacy {
            params["task"] = json!({});
        }
        let result = self.result(base, "tools/call", params).await?;
        let task = if self.form == Form::Legacy { &result["task"] } else { &result };
        Ok(task["taskId"].as_str().unwrap_or_else(|| panic!("no task: {result}")).to_owned())
    }

    /// Returns a task, and its end if it has one.
    pub(crate) async fn look(&self, base: &str, id: &str) -> Outcome<Seen> {
        let mut task = self.result(base, "tasks/get", json!({ "taskId": id })).await?;
        let text = |member: &str| task[member].as_str().unwrap_or_default().to_owned();
        let mut seen = Seen { status: text("status"), message: text("statusMessage"), end: None };
        if ["completed", "failed"].contains(&seen.status.as_str()) {
            let mut ended = match self.form {
                Form::Legacy => self.response(base, "tasks/result", json!({ "taskId": id })).await?,
                Form::Modern => task.take(),
            };
            if ended["error"]["message"].as_str().is_some_and(is_unavailable) {
                return Err(Failure::Unavailable(ended.to_string()));
            }
            let member = if ended.get("result").is_some() { "result" } else { "error" };
            assert!(ended.get(member).is_some(), "a task that has ended has an end: {ended}");
            seen.end = Some(ended[member].take());
        }
        Ok(seen)
    }

    /// Cancels a task.
    pub(crate) async fn cancel(&self, base: &str, id: &str) -> Outcome<()> {
        self.result(base, "tasks/cancel", json!({ "taskId": id })).await.map(drop)
    }

    /// Makes a plain call.
    pub(crate) async fn call(&self, base: &str, job: &Job) -> Outcome<Value> {
        self.result(base, "tools/call", job.params()).await
    }
}

fn refused(method: &str, response: &Value) -> Failure {
    let why = format!("{method}: {response}");
    if is_unavailable(&why) { Failure::Unavailable(why) } else { Failure::Refused(why) }
}

fn is_unavailable(why: &str) -> bool {
    UNAVAILABLE.iter().any(|words| why.contains(words))
}
