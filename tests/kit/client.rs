//! A raw MCP client: what it sends and gets is what the test sees.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client as Http, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};

use super::{
    eventually, soon,
    sse::{Stream, events},
};

/// A client, in a session or not. A clone is the same client on the same connections.
#[derive(Clone)]
pub(crate) struct Client {
    http: Http<HttpConnector, Full<Bytes>>,
    url: String,
    /// Sent with every request.
    pub(crate) headers: HeaderMap,
    /// The answer to `initialize`.
    pub(crate) initialized: Value,
    next_id: Arc<AtomicU64>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// Returns the body.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Returns a header, empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Returns whether the body is a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type") == "text/event-stream"
    }

    /// Returns the response in it, whole or as the last event of a stream.
    pub(crate) fn raw_response(&self) -> String {
        if self.is_stream() {
            events(self.text()).pop().unwrap_or_else(|| panic!("no event in {self:?}")).data
        } else {
            self.text().to_owned()
        }
    }

    /// Returns the same response, parsed.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.raw_response()).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Returns status, JSON-RPC error code and message.
    pub(crate) fn refusal(&self) -> (u16, i64, String) {
        let body = self.json();
        let error = &body["error"];
        let message = error["message"].as_str().unwrap_or_else(|| panic!("no error in {body}")).to_owned();
        (self.status.as_u16(), error["code"].as_i64().unwrap(), message)
    }
}

/// Returns the status of a task.
#[track_caller]
pub(crate) fn status_of(task: &Value) -> &str {
    task["status"].as_str().unwrap_or_else(|| panic!("no task: {task}"))
}

impl Client {
    /// Returns a client that has not initialised a session.
    pub(crate) fn new(url: &str) -> Self {
        Self::over(Http::builder(TokioExecutor::new()).build_http(), url)
    }

    /// Returns a client that speaks HTTP/2 from the first byte.
    pub(crate) fn http2(url: &str) -> Self {
        Self::over(Http::builder(TokioExecutor::new()).http2_only(true).build_http(), url)
    }

    fn over(http: Http<HttpConnector, Full<Bytes>>, url: &str) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let (url, next_id) = (url.to_owned(), Arc::new(AtomicU64::new(1)));
        Self { http, url, headers, initialized: Value::Null, next_id }
    }

    /// Opens a session of revision 2025-11-25.
    pub(crate) async fn connect(url: &str) -> Self {
        Self::connect_as(url, "2025-11-25", json!({})).await
    }

    /// Opens a session that asks for `version`.
    pub(crate) async fn connect_as(url: &str, version: &str, capabilities: Value) -> Self {
        Self::new(url).initialize(version, capabilities).await
    }

    /// Initialises a session.
    pub(crate) async fn initialize(mut self, version: &str, capabilities: Value) -> Self {
        let answer = self.ask_to_initialize(version, capabilities).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let initialized = answer.json();
        let agreed = initialized["result"]["protocolVersion"].as_str().unwrap_or_else(|| panic!("{answer:?}"));
        self = self.with("mcp-session-id", answer.header("mcp-session-id"));
        // The header exists from 2025-06-18 on.
        if agreed >= "2025-06-18" {
            self = self.with("mcp-protocol-version", agreed);
        }
        self.initialized = initialized["result"].clone();
        assert_eq!(self.notify("notifications/initialized", json!({})).await, 202);
        self
    }

    /// Sends `initialize`, whatever the answer.
    pub(crate) async fn ask_to_initialize(&self, version: &str, capabilities: Value) -> Answer {
        let info = json!({ "name": "test-client", "version": "1.0" });
        let params = json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": info });
        self.post(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string()).await
    }

    /// Returns the same client with a header set.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        client
    }

    /// Returns the same client with a header left out.
    pub(crate) fn without(&self, name: &str) -> Self {
        let mut client = self.clone();
        client.headers.remove(name);
        client
    }

    /// Returns the endpoint.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the value of `Mcp-Session-Id`.
    pub(crate) fn session(&self) -> &str {
        self.headers.get("mcp-session-id").map_or("", |id| id.to_str().unwrap())
    }

    /// Sends a request, and returns the head of the answer; the body is still to come.
    pub(crate) async fn open(&self, method: Method, body: impl Into<Bytes>) -> Response<Incoming> {
        soon(self.http.request(self.http_request(method, body))).await.unwrap()
    }

    fn http_request(&self, method: Method, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = method;
        *request.uri_mut() = self.url.parse().unwrap();
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// Sends a request, and reads the whole answer.
    pub(crate) async fn send(&self, method: Method, body: impl Into<Bytes>) -> Answer {
        let (head, body) = self.open(method, body).await.into_parts();
        let body = soon(body.collect()).await.unwrap().to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }

    /// POSTs bytes as they are.
    pub(crate) async fn post(&self, body: impl Into<Bytes>) -> Answer {
        self.send(Method::POST, body).await
    }

    /// DELETEs the session.
    pub(crate) async fn delete(&self) -> Answer {
        self.send(Method::DELETE, "").await
    }

    /// Returns an id that this client has not used.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn call_body(&self, method: &str, params: &Value) -> String {
        json!({ "jsonrpc": "2.0", "id": self.next_id(), "method": method, "params": params }).to_string()
    }

    /// Sends a request, and returns the whole answer to it.
    pub(crate) async fn answer(&self, method: &str, params: Value) -> Answer {
        self.post(self.call_body(method, &params)).await
    }

    /// Sends a request, and returns the response to it, result or error.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Value {
        let answer = self.answer(method, params).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Sends a request, and returns its result.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        let mut response = self.request(method, params).await;
        assert!(response.get("result").is_some(), "{method}: {response}");
        response["result"].take()
    }

    /// Sends a request, and returns the code and message of its error, which comes with HTTP 200.
    pub(crate) async fn error(&self, method: &str, params: Value) -> (i64, String) {
        let (status, code, message) = self.answer(method, params).await.refusal();
        assert_eq!(status, 200, "{message}");
        (code, message)
    }

    /// Sends a request whose answer is read as it comes.
    #[expect(clippy::needless_pass_by_value, reason = "called like the other forms of a request")]
    pub(crate) fn stream(&self, method: &str, params: Value) -> Stream {
        self.stream_of(Method::POST, self.call_body(method, &params))
    }

    /// Sends a request, and returns the response to it. Where the stream ends early, resumes it, as clients do.
    pub(crate) async fn response(&self, method: &str, params: Value) -> Value {
        let mut stream = self.stream(method, params);
        loop {
            let (text, last, event_id) = stream.rest().await;
            if let Some(response) = last.filter(|last| last.get("method").is_none()) {
                return response;
            }
            let event_id = event_id.unwrap_or_else(|| panic!("no response and nothing to resume by in {text:?}"));
            // taskgate answers this with a stream that waits, so there is no pause to keep.
            stream = self.with("last-event-id", &event_id).stream_of(Method::GET, String::new());
        }
    }

    /// Opens the GET stream.
    pub(crate) async fn get_stream(&self) -> Stream {
        let mut stream = self.stream_of(Method::GET, String::new());
        assert_eq!(soon(stream.head()).await.0, 200);
        stream
    }

    fn stream_of(&self, method: Method, body: String) -> Stream {
        let (http, request) = (self.http.clone(), self.http_request(method, body));
        Stream::new(async move { http.request(request).await.unwrap() })
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: Value) -> StatusCode {
        self.post(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()).await.status
    }

    /// Sends the response to a request of the server.
    pub(crate) async fn respond(&self, id: &Value, result: Value) -> StatusCode {
        self.post(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string()).await.status
    }

    /// Calls a tool as a task; returns the task that was created.
    pub(crate) async fn create(&self, tool: &str, task: Value) -> Value {
        let mut result = self.ask("tools/call", json!({ "name": tool, "arguments": {}, "task": task })).await;
        assert_eq!(status_of(&result["task"]), "working", "{result}");
        result["task"].take()
    }

    /// Calls a tool as a task; returns the task's id.
    pub(crate) async fn create_id(&self, tool: &str) -> String {
        self.create(tool, json!({})).await["taskId"].as_str().unwrap().to_owned()
    }

    /// Sends `tasks/get`, and returns its result.
    pub(crate) async fn get(&self, id: &str) -> Value {
        self.ask("tasks/get", json!({ "taskId": id })).await
    }

    /// Sends `tasks/result`, and returns the response, result or error.
    pub(crate) async fn collect(&self, id: &str) -> Value {
        self.request("tasks/result", json!({ "taskId": id })).await
    }

    /// Sends `tasks/cancel`, and returns the response.
    pub(crate) async fn cancel(&self, id: &str) -> Value {
        self.ask("tasks/cancel", json!({ "taskId": id })).await
    }

    /// Returns the ids of all tasks, page by page.
    pub(crate) async fn list(&self) -> Vec<String> {
        let (mut ids, mut params) = (Vec::new(), json!({}));
        loop {
            let page = self.ask("tasks/list", params).await;
            let tasks = page["tasks"].as_array().unwrap();
            ids.extend(tasks.iter().map(|task| task["taskId"].as_str().unwrap().to_owned()));
            match page.get("nextCursor") {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => return ids,
            }
        }
    }

    /// Polls until the task has a status.
    pub(crate) async fn until(&self, id: &str, status: &str) -> Value {
        self.until_task(id, |task| status_of(task) == status).await
    }

    /// Polls until the task fulfils a condition.
    pub(crate) async fn until_task(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        eventually(async || Some(self.get(id).await).filter(|task| wanted(task))).await
    }
}
