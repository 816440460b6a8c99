//! The server behind taskgate and the forwarder: a small MCP server with sessions, three tools, JSON answers and a
//! silent GET stream.

use std::{borrow::Cow, collections::HashSet, sync::Arc, time::Duration};

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, Either, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue},
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{sync::watch, time::sleep};
use uuid::Uuid;

use crate::{
    Result, clock, floor,
    open::{Open, Pieces, Silence},
};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// The line of which a tool's text is made: 64 bytes of JSON with escapes, as in logs and quoted documents.
const LINE: &str = r#"step 017: wrote \"report.csv\" to the archive in 12.75 seconds\n"#;

const MAX_TEXT: usize = 1024 * 1024;

/// `text` answers at once, `wait` after so many milliseconds, `hold` when it is told to.
const TOOLS: &str = concat!(
    r#"{"tools":[{"name":"text","inputSchema":{"type":"object"}},"#,
    r#"{"name":"wait","inputSchema":{"type":"object"}},{"name":"hold","inputSchema":{"type":"object"}}]}"#
);

/// A JSON-RPC message, as far as this server needs it.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(default)]
    params: Params,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Params {
    name: String,
    arguments: Arguments,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    /// About how long the text is to be, as JSON.
    bytes: usize,
    /// How long the call takes.
    millis: u64,
}

/// The parts of a result before its text, the text, and after it; or a GET stream.
type Answer = Either<Full<Pieces>, Silence>;

struct State {
    sessions: Mutex<HashSet<String>>,
    /// Tool calls answered so far.
    served: watch::Sender<u64>,
    /// GET streams that are open now.
    streams: watch::Sender<u64>,
    /// Calls that are held now.
    held: watch::Sender<u64>,
    /// Ends every held call.
    release: watch::Sender<()>,
    /// Every result has a beginning of this as its text.
    text: Bytes,
}

pub async fn serve() -> Result<()> {
    let text = LINE.repeat(MAX_TEXT / LINE.len()).into();
    let [served, streams, held] = [(); 3].map(|()| watch::Sender::new(0));
    let (sessions, release) = (Mutex::default(), watch::Sender::new(()));
    let state = Arc::new(State { sessions, served, streams, held, release, text });
    floor::serve(move |request| {
        let state = Arc::clone(&state);
        async move { Ok(handle(&state, request).await) }
    })
    .await
}

async fn handle(state: &State, request: Request<Incoming>) -> Response<Answer> {
    match (request.uri().path(), request.method()) {
        ("/served", _) => count(&state.served, request.uri().query(), |count, wanted| count >= wanted).await,
        ("/streams", _) => count(&state.streams, request.uri().query(), |count, wanted| count == wanted).await,
        ("/held", _) => count(&state.held, request.uri().query(), |count, wanted| count == wanted).await,
        ("/release", _) => {
            state.release.send_replace(());
            whole(String::new())
        }
        ("/mcp", &Method::POST) => post(state, request).await,
        ("/mcp", &Method::GET) => match known_session(state, &request) {
            Ok(_) => {
                let mut response = Response::new(Either::Right(Silence::new(Open::new(&state.streams))));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
                response
            }
            Err(refused) => status(refused),
        },
        ("/mcp", &Method::DELETE) => match known_session(state, &request) {
            Ok(session) => {
                state.sessions.lock().remove(&session);
                status(StatusCode::NO_CONTENT)
            }
            Err(refused) => status(refused),
        },
        ("/mcp", _) => {
            let mut response = status(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
            response
        }
        _ => status(StatusCode::NOT_FOUND),
    }
}

/// Answers with a count, once it is `enough` for the number in the query.
async fn count(count: &watch::Sender<u64>, query: Option<&str>, enough: impl Fn(u64, u64) -> bool) -> Response<Answer> {
    let Ok(wanted) = query.unwrap_or("0").parse() else {
        return status(StatusCode::BAD_REQUEST);
    };
    match count.subscribe().wait_for(|count| enough(*count, wanted)).await {
        Ok(count) => whole(count.to_string()),
        Err(_) => status(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

async fn post(state: &State, request: Request<Incoming>) -> Response<Answer> {
    let session = known_session(state, &request);
    let Ok(body) = request.into_body().collect().await else {
        return status(StatusCode::BAD_REQUEST);
    };
    let body = body.to_bytes();
    let Ok(message) = serde_json::from_slice::<Message>(&body) else {
        return status(StatusCode::BAD_REQUEST);
    };
    let method = message.method.as_deref().unwrap_or_default();
    if method != "initialize"
        && let Err(refused) = session
    {
        return status(refused);
    }
    let Some(id) = message.id.map(RawValue::get) else {
        return status(StatusCode::ACCEPTED);
    };
    match method {
        "initialize" => initialize(state, id),
        "ping" => result(id, "{}"),
        "tools/list" => result(id, TOOLS),
        "tools/call" if message.params.name == "text" => {
            state.served.send_modify(|count| *count += 1);
            call(state, id, message.params.arguments.bytes)
        }
        "tools/call" if message.params.name == "wait" => {
            sleep(Duration::from_millis(message.params.arguments.millis)).await;
            stamped(state, id)
        }
        "tools/call" if message.params.name == "hold" => {
            let mut released = state.release.subscribe();
            let _held = Open::new(&state.held);
            // The sender lives while this process does.
            let _ = released.changed().await;
            stamped(state, id)
        }
        "tools/call" => error(id, r#"{"code":-32602,"message":"unknown tool"}"#),
        _ => error(id, r#"{"code":-32601,"message":"method not found"}"#),
    }
}

fn initialize(state: &State, id: &str) -> Response<Answer> {
    let session = Uuid::new_v4().to_string();
    let mut response = result(
        id,
        concat!(
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"#,
            r#""serverInfo":{"name":"bench-upstream","version":"1.0.0"}}"#
        ),
    );
    if let Ok(value) = HeaderValue::from_str(&session) {
        response.headers_mut().insert(SESSION, value);
    }
    state.sessions.lock().insert(session);
    response
}

fn known_session(state: &State, request: &Request<Incoming>) -> std::result::Result<String, StatusCode> {
    let session = request.headers().get(SESSION).and_then(|value| value.to_str().ok());
    let session = session.ok_or(StatusCode::BAD_REQUEST)?;
    if state.sessions.lock().contains(session) { Ok(session.to_owned()) } else { Err(StatusCode::NOT_FOUND) }
}

/// Answers a call with about `bytes` of text: whole lines, so that no escape is cut in two.
fn call(state: &State, id: &str, bytes: usize) -> Response<Answer> {
    let text = state.text.slice(..bytes.next_multiple_of(LINE.len()).min(state.text.len()));
    let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":""#);
    json(start.into(), text, Bytes::from_static(br#""}],"isError":false}}"#))
}

/// Answers a call with a text that says when it was made.
fn stamped(state: &State, id: &str) -> Response<Answer> {
    state.served.send_modify(|count| *count += 1);
    result(id, &format!(r#"{{"content":[{{"type":"text","text":"{}"}}],"isError":false}}"#, clock::stamp()))
}

fn result(id: &str, result: &str) -> Response<Answer> {
    whole(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

fn error(id: &str, error: &str) -> Response<Answer> {
    whole(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
}

fn whole(text: String) -> Response<Answer> {
    json(text.into(), Bytes::new(), Bytes::new())
}

fn json(start: Bytes, text: Bytes, end: Bytes) -> Response<Answer> {
    let mut response = Response::new(Either::Left(Full::new(start.chain(text).chain(end))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn status(status: StatusCode) -> Response<Answer> {
    let mut response = whole(String::new());
    response.headers_mut().remove(CONTENT_TYPE);
    *response.status_mut() = status;
    response
}
