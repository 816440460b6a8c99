//! An MCP server whose calls take as long as they are told, which counts how often each ran and survives every
//! taskgate. Under `/json` it answers in one piece; under `/sse` on streams that can be resumed.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::kit::serve;

type Body = BoxBody<Bytes, Infallible>;

/// What one tool call is to do. The key is in its arguments, so that the server knows a call that comes twice.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) key: String,
    pub(crate) millis: u64,
    pub(crate) bytes: usize,
}

impl Job {
    /// Returns the params of a call.
    pub(crate) fn params(&self) -> Value {
        json!({ "name": "work", "arguments": { "key": self.key, "millis": self.millis, "bytes": self.bytes } })
    }

    fn of(params: &Value) -> Self {
        let arguments = &params["arguments"];
        Self {
            key: arguments["key"].as_str().unwrap().to_owned(),
            millis: arguments["millis"].as_u64().unwrap(),
            bytes: usize::try_from(arguments["bytes"].as_u64().unwrap()).unwrap(),
        }
    }

    /// Returns the text of the result of its first run, which tells every part of it from every other result.
    pub(crate) fn text(&self) -> String {
        let filling = (0..).map(|line| format!("{}:{line};", self.key)).flat_map(String::into_bytes);
        String::from_utf8(filling.take(self.bytes.max(16)).collect()).unwrap()
    }

    fn result(&self) -> Value {
        json!({ "content": [{ "type": "text", "text": self.text() }] })
    }
}

/// A call that has begun.
#[derive(Clone)]
struct Run {
    job: Job,
    /// The id of the request.
    id: Value,
    ends: Instant,
}

#[derive(Default)]
struct Shop {
    runs: Mutex<HashMap<String, usize>>,
    /// The keys of calls that were answered in one piece.
    answered: Mutex<HashSet<String>>,
    streamed: Mutex<HashMap<String, Run>>,
    sessions: Mutex<HashSet<String>>,
}

/// The running server.
pub(crate) struct Workshop {
    shop: Arc<Shop>,
    address: std::net::SocketAddr,
}

impl Workshop {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shop = Arc::<Shop>::default();
        let serving = Arc::clone(&shop);
        tokio::spawn(serve(listener, CancellationToken::new(), move |request| {
            let shop = Arc::clone(&serving);
            async move { Ok::<_, Infallible>(answer(&shop, request).await) }
        }));
        Self { shop, address }
    }

    /// Returns the URL of one of its endpoints.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Returns how often the call with this key has run.
    pub(crate) fn runs(&self, key: &str) -> usize {
        self.shop.runs.lock().get(key).copied().unwrap_or_default()
    }

    /// Returns whether a call with this key was answered in one piece.
    pub(crate) fn has_answered(&self, key: &str) -> bool {
        self.shop.answered.lock().contains(key)
    }
}

async fn answer(shop: &Shop, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let streams = head.uri.path() == "/sse";
    let Ok(body) = body.collect().await else {
        return whole(StatusCode::BAD_REQUEST, "");
    };
    let message: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    let method = message["method"].as_str().unwrap_or_default();
    let session = header(&head.headers, "mcp-session-id");
    if method != "initialize" && !shop.sessions.lock().contains(&session) {
        return whole(StatusCode::NOT_FOUND, "");
    }
    if head.method == Method::DELETE {
        shop.sessions.lock().remove(&session);
        return whole(StatusCode::OK, "");
    }
    if head.method == Method::GET {
        let run = shop.streamed.lock().get(&header(&head.headers, "last-event-id")).cloned();
        return run.filter(|_| streams).map_or_else(|| whole(StatusCode::METHOD_NOT_ALLOWED, ""), stream);
    }
    let reply = |result: Value| json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
    match method {
        "initialize" => {
            let result = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "workshop", "version": "1" },
            });
            let mut response = whole(StatusCode::OK, &reply(result));
            let session = uuid::Uuid::new_v4().to_string();
            response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
            shop.sessions.lock().insert(session);
            response
        }
        "tools/list" => {
            let tools = json!([{ "name": "work", "inputSchema": { "type": "object" } }]);
            whole(StatusCode::OK, &reply(json!({ "tools": tools })))
        }
        "tools/call" => {
            let job = Job::of(&message["params"]);
            *shop.runs.lock().entry(job.key.clone()).or_default() += 1;
            let ends = Instant::now() + Duration::from_millis(job.millis);
            if streams {
                let run = Run { job, id: message["id"].clone(), ends };
                shop.streamed.lock().insert(run.job.key.clone(), run.clone());
                stream(run)
            } else {
                tokio::time::sleep_until(ends).await;
                shop.answered.lock().insert(job.key.clone());
                whole(StatusCode::OK, &reply(job.result()))
            }
        }
        _ if message.get("id").is_none() => whole(StatusCode::ACCEPTED, ""),
        _ => whole(StatusCode::OK, &reply(json!({}))),
    }
}

/// Answers with a stream: an event to resume from, and the response when the call has ended.
fn stream(run: Run) -> Response<Body> {
    let (frames, received) = mpsc::channel::<String>(2);
    tokio::spawn(async move {
        // The receiver is gone if taskgate is.
        let _ = frames.send(format!("id: {}\nretry: 5\ndata: \n\n", run.job.key)).await;
        tokio::time::sleep_until(run.ends).await;
        let response = json!({ "jsonrpc": "2.0", "id": run.id, "result": run.job.result() });
        let _ = frames.send(format!("data: {response}\n\n")).await;
    });
    let frames = stream::unfold(received, |mut received| async {
        let text = received.recv().await?;
        Some((Ok(Frame::data(Bytes::from(text))), received))
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    response
}

fn whole(status: StatusCode, body: &str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_owned())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn header(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned()
}
