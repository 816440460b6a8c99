//! A client of revision 2026-07-28: each request says all about itself.

use serde_json::{Value, json};

use crate::kit::{Answer, Client, Stream};

pub(crate) const VERSION: &str = "2026-07-28";
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A client with the capabilities that it declares with each request.
#[derive(Clone)]
pub(crate) struct Modern {
    pub(crate) http: Client,
    pub(crate) capabilities: Value,
}

impl Modern {
    /// Returns a client that can be asked nothing and knows no tasks.
    pub(crate) fn plain(url: &str) -> Self {
        Self { http: Client::new(url), capabilities: json!({}) }
    }

    /// Returns a client that declares the tasks extension.
    pub(crate) fn with_tasks(url: &str) -> Self {
        Self::able(url, json!({ "extensions": { TASKS: {} } }))
    }

    /// Returns a client that declares `capabilities`.
    pub(crate) fn able(url: &str, capabilities: Value) -> Self {
        Self { http: Client::new(url), capabilities }
    }

    /// Returns `params` with what each request says.
    pub(crate) fn params(&self, mut params: Value) -> Value {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        });
        let given = params["_meta"].take();
        params["_meta"] = meta;
        for (key, value) in given.as_object().into_iter().flatten() {
            params["_meta"][key] = value.clone();
        }
        params
    }

    fn request(&self, method: &str, params: Value) -> (Client, Value) {
        let named = ["name", "uri", "taskId"].iter().find_map(|key| params[*key].as_str().map(str::to_owned));
        let http = self.http.with("mcp-protocol-version", VERSION).with("mcp-method", method);
        let http = match named {
            Some(name) => http.with("mcp-name", &name),
            None => http,
        };
        let id = http.next_id();
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": self.params(params) });
        (http, request)
    }

    /// Sends a request, and returns what comes back, JSON or not.
    pub(crate) async fn send(&self, method: &str, params: Value) -> Answer {
        let (http, request) = self.request(method, params);
        http.post(request.to_string()).await
    }

    /// Sends a request, and returns its answer.
    pub(crate) async fn answer(&self, method: &str, params: Value) -> Answer {
        let (http, request) = self.request(method, params);
        let answer = http.post(request.to_string()).await;
        assert_eq!(answer.json()["id"], request["id"], "{answer:?}");
        answer
    }

    /// Returns the result of a request.
    #[track_caller]
    pub(crate) fn result(&self, method: &str, params: Value) -> impl Future<Output = Value> {
        let (client, method) = (self.clone(), method.to_owned());
        async move {
            let answer = client.answer(&method, params).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let result = answer.json()["result"].clone();
            assert!(result["resultType"].is_string(), "{answer:?}");
            result
        }
    }

    /// Returns the HTTP status, the code and the message with which a request is refused.
    pub(crate) async fn refusal(&self, method: &str, params: Value) -> (u16, i64, String) {
        self.answer(method, params).await.refusal()
    }

    /// Calls a tool, and returns the result.
    pub(crate) async fn call(&self, tool: &str) -> Value {
        self.result("tools/call", json!({ "name": tool, "arguments": {} })).await
    }

    /// Opens the stream of a request.
    pub(crate) fn stream(&self, method: &str, params: Value) -> Stream {
        let (http, request) = self.request(method, params);
        Stream::new(async move { http.open(http::Method::POST, request.to_string()).await })
    }

    /// Polls a task once.
    pub(crate) async fn get(&self, id: &str) -> Value {
        self.result("tasks/get", json!({ "taskId": id })).await
    }

    /// Polls a task until it has a status.
    pub(crate) async fn until(&self, id: &str, status: &str) -> Value {
        crate::kit::eventually(async || Some(self.get(id).await).filter(|task| task["status"] == status)).await
    }
}
