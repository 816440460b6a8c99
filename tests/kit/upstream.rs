//! A Streamable HTTP MCP server that follows the test, and keeps what it receives.

use std::{
    collections::HashSet,
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    Port,
    held::{Body, Held, Sse, broken, frame, whole},
    modern,
    seen::{Seen, is},
    soon,
};

/// The form of answers to requests that are not scripted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Json,
    Sse,
}

/// What kind of server it is.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a kind of server that exists")]
pub(crate) struct Options {
    pub(crate) answers: Answers,
    /// Whether `initialize` gives a session id.
    pub(crate) sessions: bool,
    /// Whether it has a GET stream; 405 otherwise.
    pub(crate) listens: bool,
    /// The revisions it speaks; it answers any other with the last of them.
    pub(crate) versions: Vec<&'static str>,
    /// Whether it refuses any other with an error that names them instead.
    pub(crate) strict: bool,
    /// Whether it echoes ids as strings.
    pub(crate) string_ids: bool,
    pub(crate) capabilities: Value,
    pub(crate) tools: Value,
    /// Whether it speaks revision 2026-07-28; such a server has no sessions with `sessions = false`, and else both.
    pub(crate) modern: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            answers: Answers::Json,
            sessions: true,
            listens: false,
            versions: vec!["2025-06-18"],
            strict: false,
            string_ids: false,
            capabilities: json!({ "tools": {} }),
            tools: json!([{ "name": "echo", "inputSchema": { "type": "object" } }]),
            modern: false,
        }
    }
}

/// A server that runs until it is stopped or the test's runtime ends.
pub(crate) struct Upstream {
    shared: Arc<Shared>,
    address: SocketAddr,
    running: Mutex<Option<(CancellationToken, JoinHandle<()>)>>,
    /// Has the port while nothing listens.
    kept: Mutex<Option<Port>>,
}

struct Shared {
    options: Options,
    seen: Mutex<Vec<Seen>>,
    held: Mutex<Vec<Held>>,
    hold: Mutex<HashSet<String>>,
    sessions: Mutex<HashSet<String>>,
    next_session: AtomicU64,
    changed: Notify,
}

impl Upstream {
    /// Starts a server with sessions and JSON answers.
    pub(crate) async fn json() -> Self {
        Self::start(Options::default()).await
    }

    /// Starts a server with sessions, SSE answers and a GET stream.
    pub(crate) async fn sse() -> Self {
        Self::start(Options { answers: Answers::Sse, listens: true, ..Options::default() }).await
    }

    /// Starts a server of any kind.
    pub(crate) async fn start(options: Options) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), options)
    }

    pub(super) fn on(listener: TcpListener, options: Options) -> Self {
        let shared = Shared {
            options,
            seen: Mutex::default(),
            held: Mutex::default(),
            hold: Mutex::default(),
            sessions: Mutex::default(),
            next_session: AtomicU64::new(1),
            changed: Notify::new(),
        };
        let address = listener.local_addr().unwrap();
        let upstream = Self { shared: Arc::new(shared), address, running: Mutex::default(), kept: Mutex::default() };
        upstream.serve(listener);
        upstream
    }

    fn serve(&self, listener: TcpListener) {
        let token = CancellationToken::new();
        let shared = Arc::clone(&self.shared);
        let serving = tokio::spawn(super::serve(listener, token.clone(), move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(shared.answer(request).await) }
        }));
        *self.running.lock() = Some((token, serving));
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its endpoint.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Breaks every connection and stops listening. No server of another test gets the port meanwhile.
    pub(crate) async fn stop(&self) {
        let (token, serving) = self.running.lock().take().expect("it runs");
        token.cancel();
        soon(serving).await.unwrap();
        *self.kept.lock() = Some(Port::at(self.address));
    }

    /// Listens on the same port again, and still knows its sessions.
    pub(crate) async fn start_again(&self) {
        self.kept.lock().take();
        self.serve(TcpListener::bind(self.address).await.unwrap());
    }

    /// Forgets its sessions, and answers them with 404 from now on.
    pub(crate) fn forget_sessions(&self) {
        self.shared.sessions.lock().clear();
    }

    /// Leaves requests of this method, or calls of this tool, to the test from now on, even where the server could
    /// answer by itself. Requests that it does not know always wait for the test.
    pub(crate) fn hold(&self, method_or_tool: &str) {
        self.shared.hold.lock().insert(method_or_tool.to_owned());
    }

    /// Returns every request so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }

    /// Forgets the requests so far, because a test may be long.
    pub(crate) fn forget(&self) {
        self.shared.seen.lock().clear();
    }

    /// Returns how many messages of this method, or calls of this tool, have come.
    pub(crate) fn count(&self, method_or_tool: &str) -> usize {
        self.seen().iter().filter(|seen| is(seen, method_or_tool)).count()
    }

    /// Returns the first request so far, or to come, that fits.
    #[track_caller]
    pub(crate) fn wait_for(&self, fits: impl Fn(&Seen) -> bool) -> impl Future<Output = Seen> {
        soon(self.take(move |shared| shared.seen.lock().iter().find(|seen| fits(seen)).cloned()))
    }

    /// Returns the first message so far, or to come, of this method.
    #[track_caller]
    pub(crate) fn wait_for_message(&self, method: &str) -> impl Future<Output = Seen> {
        self.wait_for(move |seen| seen.rpc() == method)
    }

    /// Returns the oldest request that waits for an answer, of this method, of a call of this tool, "GET", or "RESUME".
    #[track_caller]
    pub(crate) fn held(&self, method_or_tool: &str) -> impl Future<Output = Held> {
        soon(self.take(move |shared| {
            let mut held = shared.held.lock();
            let at = held.iter().position(|held| is(&held.seen, method_or_tool))?;
            Some(held.remove(at))
        }))
    }

    async fn take<T>(&self, find: impl Fn(&Shared) -> Option<T>) -> T {
        loop {
            let changed = self.shared.changed.notified();
            if let Some(found) = find(&self.shared) {
                return found;
            }
            changed.await;
        }
    }

    /// Returns the stream of the GET request that resumes another stream, and waits, or comes.
    #[track_caller]
    pub(crate) fn resumed(&self) -> impl Future<Output = Sse> {
        let held = self.held("RESUME");
        async { held.await.sse() }
    }

    /// Returns the stream of the GET request that waits, or comes.
    #[track_caller]
    pub(crate) fn get_stream(&self) -> impl Future<Output = Sse> {
        let held = self.held("GET");
        async { held.await.sse() }
    }
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        // A client that disconnects gets no answer.
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let seen = Seen { method: head.method, uri: head.uri, headers: head.headers, body };
        let held = self.hold.lock().iter().any(|hold| is(&seen, hold));
        if is(&seen, "GET") && !held && !self.options.listens {
            // What every session asks for once, and which says nothing about a server that has none.
            return whole(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "");
        }
        self.seen.lock().push(seen.clone());
        self.changed.notify_waiters();
        let message = seen.json();
        let rpc = seen.rpc();
        let modern = self.options.modern && modern::is_modern(&seen);
        if let Some(refusal) = modern::refusal(&self.options, &seen) {
            return refusal;
        }
        if !modern
            && self.options.sessions
            && rpc != "initialize"
            && !self.sessions.lock().contains(seen.header("mcp-session-id"))
        {
            return whole(StatusCode::NOT_FOUND, "text/plain", "no such session");
        }
        if held {
            return self.wait(seen).await;
        }
        if seen.method == Method::GET && self.options.listens {
            return self.wait(seen).await;
        }
        if seen.method == Method::DELETE {
            self.sessions.lock().remove(seen.header("mcp-session-id"));
            return whole(StatusCode::OK, "text/plain", "");
        }
        if seen.method != Method::POST {
            return whole(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "");
        }
        if message.get("id").is_none() || rpc.is_empty() {
            return whole(StatusCode::ACCEPTED, "text/plain", "");
        }
        let known = || self.known(&rpc, &message["params"]);
        match if modern { modern::known(&self.options, &rpc, known) } else { known() } {
            Some(outcome) => {
                let mut response = self.framed(&self.response(&seen, &outcome));
                if rpc == "initialize" && self.options.sessions {
                    let id = format!("upstream-{}", self.next_session.fetch_add(1, Ordering::Relaxed));
                    response.headers_mut().insert("mcp-session-id", id.parse().unwrap());
                    self.sessions.lock().insert(id);
                }
                response
            }
            None => self.wait(seen).await,
        }
    }

    /// Returns the members of the response that it gives by itself.
    fn known(&self, method: &str, params: &Value) -> Option<String> {
        let result = match method {
            "initialize" => {
                let asked = params["protocolVersion"].as_str().unwrap_or_default();
                let versions = &self.options.versions;
                let version = versions.iter().find(|version| **version == asked).or(versions.last()).unwrap();
                if self.options.strict && *version != asked {
                    let data = json!({ "supported": versions, "requested": asked });
                    let error = json!({ "code": -32602, "message": "Unsupported protocol version", "data": data });
                    return Some(format!(r#""error":{error}"#));
                }
                json!({
                    "protocolVersion": version,
                    "capabilities": self.options.capabilities,
                    "serverInfo": { "name": "test-server", "version": "1.0" },
                })
            }
            "ping" => json!({}),
            "server/discover" => return Some(r#""error":{"code":-32601,"message":"no such method"}"#.into()),
            "tools/list" => json!({ "tools": self.options.tools }),
            "tools/call" => match params["name"].as_str().unwrap_or_default() {
                "echo" => json!({ "content": [{ "type": "text", "text": params["arguments"].to_string() }] }),
                "fail" => json!({ "content": [{ "type": "text", "text": "the disk is full" }], "isError": true }),
                "error" => {
                    return Some(r#""error":{"code":-32042,"message":"no such luck","data":{"x":[1.50]}}"#.into());
                }
                _ => return None,
            },
            _ => return None,
        };
        Some(format!(r#""result":{result}"#))
    }

    fn response(&self, seen: &Seen, outcome: &str) -> String {
        let id = if self.options.string_ids { format!("\"{}\"", seen.id()) } else { seen.id() };
        format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#)
    }

    fn framed(&self, document: &str) -> Response<Body> {
        match self.options.answers {
            Answers::Json => whole(StatusCode::OK, "application/json", document),
            Answers::Sse => whole(StatusCode::OK, "text/event-stream", &frame(document)),
        }
    }

    /// Leaves the request to the test.
    async fn wait(&self, seen: Seen) -> Response<Body> {
        let (reply, replied) = oneshot::channel();
        let (answers, string_ids) = (self.options.answers, self.options.string_ids);
        self.held.lock().push(Held { seen, reply, answers, string_ids });
        self.changed.notify_waiters();
        match replied.await {
            Ok(response) => response,
            // The test has dropped it, so the connection breaks.
            Err(_) => broken(),
        }
    }
}
