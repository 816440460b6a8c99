//! A server of the 2024-11-05 HTTP+SSE transport that follows the test, and keeps what it receives.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{
        Notify,
        oneshot::{self, error::RecvError},
    },
};
use tokio_util::sync::CancellationToken;

use super::{
    held::{Body, Held, Sse, whole},
    seen::{Seen, is},
    soon,
    upstream::Answers,
};

/// How a GET of its URL is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gets {
    /// A stream that names this endpoint, where `{host}` is the server's own and `{n}` the number of the stream.
    Endpoint(&'static str),
    /// As the test decides.
    Held,
    /// With this status.
    Refused(u16),
}

/// How a POST to its URL, which is not where messages belong, is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Posts {
    /// With this status, and JSON as its body.
    Refused(u16, &'static str),
    /// With the response: the server speaks Streamable HTTP.
    Answered,
}

/// What kind of server it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SseOptions {
    pub(crate) gets: Gets,
    pub(crate) posts: Posts,
    /// Status and body for a message that was accepted.
    pub(crate) accepted: (u16, &'static str),
}

impl Default for SseOptions {
    fn default() -> Self {
        let gets = Gets::Endpoint("/message?session={n}");
        Self { gets, posts: Posts::Refused(405, "Method Not Allowed"), accepted: (202, "Accepted") }
    }
}

/// A server that runs until the test's runtime ends.
pub(crate) struct SseUpstream {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    options: Mutex<SseOptions>,
    host: String,
    seen: Mutex<Vec<Seen>>,
    held: Mutex<Vec<Held>>,
    /// Methods and tools whose POSTs wait for the test.
    hold: Mutex<Vec<String>>,
    /// The open streams by number, from 1 on.
    streams: Mutex<HashMap<usize, Arc<Sse>>>,
    changed: Notify,
}

impl SseUpstream {
    /// Starts a server whose every answer comes on the stream.
    pub(crate) async fn new() -> Self {
        Self::start(SseOptions::default()).await
    }

    /// Starts a server of any kind.
    pub(crate) async fn start(options: SseOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            options: Mutex::new(options),
            host: address.to_string(),
            seen: Mutex::default(),
            held: Mutex::default(),
            hold: Mutex::default(),
            streams: Mutex::default(),
            changed: Notify::new(),
        });
        let serving = Arc::clone(&shared);
        tokio::spawn(super::serve(listener, CancellationToken::new(), move |request| {
            let shared = Arc::clone(&serving);
            async move { shared.answer(request).await }
        }));
        Self { shared, address }
    }

    /// Returns the URL of its stream.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1/sse?key=k", self.address)
    }

    /// Makes it another kind of server from now on.
    pub(crate) fn become_one_that(&self, options: SseOptions) {
        *self.shared.options.lock() = options;
    }

    /// Leaves POSTs of this method, or calls of this tool, to the test from now on instead of accepting them.
    pub(crate) fn hold(&self, method_or_tool: &str) {
        self.shared.hold.lock().push(method_or_tool.to_owned());
    }

    /// Returns every request so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().clone()
    }

    /// Returns the HTTP method and path of every request so far, each with the method of the message in it.
    pub(crate) fn requests(&self) -> Vec<String> {
        let line = |seen: &Seen| format!("{} {} {}", seen.method, seen.uri.path(), seen.rpc()).trim_end().to_owned();
        self.seen().iter().map(line).collect()
    }

    /// Returns how many requests with this HTTP method, messages of this method, or calls of this tool have come.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.seen().iter().filter(|seen| is(seen, what)).count()
    }

    /// Returns the first message so far, or to come, of this method, or call of this tool.
    #[track_caller]
    pub(crate) fn message(&self, method_or_tool: &str) -> impl Future<Output = Seen> {
        soon(self.take(move |shared| shared.seen.lock().iter().find(|seen| is(seen, method_or_tool)).cloned()))
    }

    /// Returns the answer so far, or to come, to a request of its own.
    #[track_caller]
    pub(crate) fn answered(&self, id: &str) -> impl Future<Output = Value> {
        let find = move |seen: &Seen| Some(seen.json()).filter(|json| json["id"] == id && json.get("method").is_none());
        soon(self.take(move |shared| shared.seen.lock().iter().find_map(find)))
    }

    /// Returns the oldest request that waits for an answer, of this method, of a call of this tool, or "GET".
    #[track_caller]
    pub(crate) fn held(&self, what: &str) -> impl Future<Output = Held> {
        soon(self.take(move |shared| {
            let mut held = shared.held.lock();
            let at = held.iter().position(|held| is(&held.seen, what))?;
            Some(held.remove(at))
        }))
    }

    /// Returns a stream that is open, by number.
    pub(crate) fn stream(&self, number: usize) -> Arc<Sse> {
        Arc::clone(&self.shared.streams.lock()[&number])
    }

    /// Sends the response to a message, raw JSON for its result, on the stream of its session.
    pub(crate) async fn answer(&self, to: &Seen, result: &str) {
        let response = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, to.id());
        self.stream(number_of(to)).event(&response).await;
    }

    /// Ends a stream cleanly.
    pub(crate) fn end(&self, number: usize) {
        self.shared.streams.lock().remove(&number).expect("it is open");
    }

    /// Breaks the connection of a stream.
    pub(crate) async fn cut(&self, number: usize) {
        let stream = self.shared.streams.lock().remove(&number).expect("it is open");
        Arc::into_inner(stream).expect("the test no longer writes it").cut().await;
    }

    /// Resolves when the other side has abandoned a stream.
    #[track_caller]
    pub(crate) fn abandoned(&self, number: usize) -> impl Future<Output = ()> {
        let stream = self.shared.streams.lock().remove(&number).expect("it is open");
        Arc::into_inner(stream).expect("the test no longer writes it").abandoned()
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
}

/// Returns the number of the stream that a message belongs to: the digits at the end of the endpoint.
fn number_of(seen: &Seen) -> usize {
    let uri = seen.uri.to_string();
    uri.rsplit(|char: char| !char.is_ascii_digit()).next().unwrap().parse().unwrap()
}

impl Shared {
    /// Fails where the test has dropped the request: the connection breaks.
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, RecvError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let seen = Seen { method: head.method, uri: head.uri, headers: head.headers, body };
        self.seen.lock().push(seen.clone());
        self.changed.notify_waiters();
        let options = *self.options.lock();
        let status = |status| StatusCode::from_u16(status).unwrap();
        if seen.method == Method::GET {
            return match options.gets {
                Gets::Endpoint(endpoint) => self.open(seen, endpoint).await,
                Gets::Held => self.wait(seen).await,
                Gets::Refused(refused) => Ok(whole(status(refused), "text/plain", "no stream")),
            };
        }
        let response = result_of(&seen).map(|result| format!(r#"{{"jsonrpc":"2.0","id":{},{result}}}"#, seen.id()));
        if seen.uri.path() == "/v1/sse" {
            return Ok(match (options.posts, response) {
                (Posts::Refused(refused, body), _) => whole(status(refused), "application/json", body),
                (Posts::Answered, Some(response)) => whole(StatusCode::OK, "application/json", &response),
                (Posts::Answered, None) => whole(StatusCode::ACCEPTED, "text/plain", ""),
            });
        }
        if self.hold.lock().iter().any(|hold| is(&seen, hold)) {
            return self.wait(seen).await;
        }
        let stream = self.streams.lock().get(&number_of(&seen)).cloned();
        let Some(stream) = stream else { return Ok(whole(StatusCode::NOT_FOUND, "text/plain", "no such session")) };
        if let Some(response) = response {
            stream.event(&response).await;
        }
        Ok(whole(status(options.accepted.0), "text/plain", options.accepted.1))
    }

    async fn open(&self, seen: Seen, endpoint: &str) -> Result<Response<Body>, RecvError> {
        let (reply, replied) = oneshot::channel();
        let stream = Held { seen, reply, answers: Answers::Sse, string_ids: false }.sse();
        let number = self.seen.lock().iter().filter(|seen| seen.method == Method::GET).count();
        let endpoint = endpoint.replace("{host}", &self.host).replace("{n}", &number.to_string());
        stream.raw(&format!("event: endpoint\ndata: {endpoint}\n\n")).await;
        self.streams.lock().insert(number, Arc::new(stream));
        replied.await
    }

    /// Leaves the request to the test.
    async fn wait(&self, seen: Seen) -> Result<Response<Body>, RecvError> {
        let (reply, replied) = oneshot::channel();
        self.held.lock().push(Held { seen, reply, answers: Answers::Json, string_ids: false });
        self.changed.notify_waiters();
        replied.await
    }
}

/// Returns the result that it gives by itself, as a member of the response.
fn result_of(seen: &Seen) -> Option<String> {
    let message: Value = seen.json();
    let result = match seen.rpc().as_str() {
        "initialize" => json!({
            "protocolVersion": "2024-11-05",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "old-server", "version": "1.0" },
        }),
        "ping" => json!({}),
        "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
        "tools/call" if message["params"]["name"] == "echo" => {
            json!({ "content": [{ "type": "text", "text": message["params"]["arguments"].to_string() }] })
        }
        _ => return None,
    };
    Some(format!(r#""result":{result}"#))
}
