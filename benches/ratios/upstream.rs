//! The server behind taskgate and the forwarder: a small MCP server with sessions, one tool and JSON answers.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use bytes::{Buf, Bytes, buf::Chain};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue},
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use uuid::Uuid;

use crate::{Result, floor};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// What a tool's text is made of: 64 bytes of JSON with escapes, as in logs and quoted documents.
const LINE: &str = r#"step 017: wrote \"report.csv\" to the archive in 12.75 seconds\n"#;

const MAX_TEXT: usize = 1024 * 1024;

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
}

/// What comes before the text of a result, the text, what comes after it: sent without copying the text.
type Answer = Full<Chain<Chain<Bytes, Bytes>, Bytes>>;

struct State {
    sessions: Mutex<HashSet<String>>,
    /// Tool calls answered so far.
    served: watch::Sender<u64>,
    /// The start of it is the text of every result.
    text: Bytes,
}

pub async fn serve() -> Result<()> {
    let text = LINE.repeat(MAX_TEXT / LINE.len()).into();
    let state = Arc::new(State { sessions: Mutex::default(), served: watch::Sender::new(0), text });
    floor::serve(move |request| {
        let state = Arc::clone(&state);
        async move { Ok(handle(&state, request).await) }
    })
    .await
}

async fn handle(state: &State, request: Request<Incoming>) -> Response<Answer> {
    match (request.uri().path(), request.method()) {
        ("/served", _) => served(state, request.uri().query()).await,
        ("/mcp", &Method::POST) => post(state, request).await,
        ("/mcp", &Method::DELETE) => match known_session(state, &request) {
            Ok(session) => {
                state.sessions.lock().remove(&session);
                status(StatusCode::NO_CONTENT)
            }
            Err(refused) => status(refused),
        },
        ("/mcp", _) => {
            let mut response = status(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
            response
        }
        _ => status(StatusCode::NOT_FOUND),
    }
}

/// Answers the count of tool calls, once it has reached the number in the query.
async fn served(state: &State, query: Option<&str>) -> Response<Answer> {
    let Ok(at_least) = query.unwrap_or("0").parse() else {
        return status(StatusCode::BAD_REQUEST);
    };
    match state.served.subscribe().wait_for(|count| *count >= at_least).await {
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
        "tools/list" => result(id, r#"{"tools":[{"name":"text","inputSchema":{"type":"object"}}]}"#),
        "tools/call" if message.params.name == "text" => {
            state.served.send_modify(|count| *count += 1);
            call(state, id, message.params.arguments.bytes)
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

/// A result with about `bytes` of text: whole lines, so that no escape is cut in two.
fn call(state: &State, id: &str, bytes: usize) -> Response<Answer> {
    let text = state.text.slice(..bytes.next_multiple_of(LINE.len()).min(state.text.len()));
    let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":""#);
    json(start.into(), text, Bytes::from_static(br#""}],"isError":false}}"#))
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
    let mut response = Response::new(Full::new(start.chain(text).chain(end)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn status(status: StatusCode) -> Response<Answer> {
    let mut response = whole(String::new());
    response.headers_mut().remove(CONTENT_TYPE);
    *response.status_mut() = status;
    response
}
