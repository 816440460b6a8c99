//! One client connection: raw hyper, the MCP handshake, and a look at every answer.

use std::{error::Error, net::SocketAddr, pin::pin, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Request, Response, StatusCode, Uri,
    body::Incoming,
    client::conn::http1::{self, Connection, SendRequest},
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT},
};
use hyper_util::rt::TokioIo;
use memchr::memmem;
use serde::de::IgnoredAny;
use tokio::net::TcpStream;

use crate::{Result, clock, process::Server};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const REVISION: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// What every message begins with.
const FRONT: &str = r#"{"jsonrpc":"2.0","id":"#;
/// How much of both ends of an answer is looked at, in bytes.
const ENDS: usize = 512;
/// One answer in so many is parsed, the first included.
const PARSED: u64 = 1000;

type Wire = Connection<TokioIo<TcpStream>, Full<Bytes>>;

pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    /// Polled with each request, in the same task: a task of its own would add wake-ups that the server does not cause.
    connection: Wire,
    headers: HeaderMap,
    /// Of a client of the modern revision.
    modern: Option<Modern>,
    /// How many requests were sent. The id of the next one follows from it.
    sent: u64,
}

/// What makes requests modern.
struct Modern {
    /// What each request says of its client, raw.
    meta: String,
    /// What the headers of the last request mirror.
    method: &'static str,
    name: HeaderValue,
}

impl Client {
    /// Makes a connection without a session.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(&address.to_string())?);
        // Clients send it ("SHOULD", RFC 9110, section 10.1.5), most of them with more.
        headers.insert(USER_AGENT, HeaderValue::from_static("bench/1.0"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        Ok(Self { sender, connection, headers, modern: None, sent: 0 })
    }

    /// Makes a connection whose requests have the token that the server wants, if it wants one.
    pub async fn of(server: &Server) -> Result<Self> {
        let mut client = Self::connect(server.address).await?;
        client.headers.extend(server.authorization.as_ref().map(|value| (AUTHORIZATION, unshared(value))));
        Ok(client)
    }

    /// Makes a connection with a session of its own.
    pub async fn open(server: &Server) -> Result<Self> {
        let mut client = Self::of(server).await?;
        client.initialize().await?;
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let notification = Bytes::from_static(notification.as_bytes());
        let response = client.post(notification.clone()).await?;
        if response.status() != StatusCode::ACCEPTED {
            return Err(unexpected(&notification, &response));
        }
        Ok(client)
    }

    /// Makes a connection of a client of the modern revision, which has no session, with these raw capabilities.
    pub async fn modern(server: &Server, capabilities: &'static str) -> Result<Self> {
        let mut client = Self::connect(server.address).await?;
        client.headers.insert(VERSION, HeaderValue::from_static(MODERN));
        let prefix = "io.modelcontextprotocol/";
        let version = format!(r#""{prefix}protocolVersion":"{MODERN}""#);
        let meta = format!(r#""_meta":{{{version},"{prefix}clientCapabilities":{capabilities}}},"#);
        client.modern = Some(Modern { meta, method: "", name: HeaderValue::from_static("") });
        Ok(client)
    }

    pub fn is_modern(&self) -> bool {
        self.modern.is_some()
    }

    /// Makes another connection of the same session, as if `sent` requests had been sent on it.
    pub async fn join(&self, address: SocketAddr, sent: u64) -> Result<Self> {
        let mut client = Self::connect(address).await?;
        client.headers.clone_from(&self.headers);
        for name in [SESSION, AUTHORIZATION] {
            if let Some(value) = self.headers.get(&name) {
                client.headers.insert(name, unshared(value));
            }
        }
        client.sent = sent;
        Ok(client)
    }

    /// Sends the first request of a session.
    pub async fn initialize(&mut self) -> Result<()> {
        let request: Bytes = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{REVISION}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1.0.0"}}}}}}"#
        )
        .into();
        let response = self.post(request.clone()).await?;
        let Some(session) = response.headers().get(SESSION).cloned() else {
            return Err(unexpected(&request, &response));
        };
        let body = json(&request, response)?;
        checked(&request, &body, Some(0), "serverInfo")?;
        self.headers.insert(SESSION, session);
        self.headers.insert(VERSION, HeaderValue::from_static(REVISION));
        Ok(())
    }

    /// Sends a request and returns the answer: a result with `expected` in it. Anything else is an error that shows the
    /// body. `name` is what the request is about, which clients of the modern revision repeat in a header.
    pub async fn request(
        &mut self,
        method: &'static str,
        name: &HeaderValue,
        params: &str,
        expected: &str,
    ) -> Result<Bytes> {
        if let Some(modern) = &mut self.modern {
            if modern.method != method {
                self.headers.insert(METHOD, HeaderValue::from_static(method));
                modern.method = method;
            }
            if modern.name != *name {
                self.headers.insert(NAME, name.clone());
                modern.name.clone_from(name);
            }
        }
        let (id, request) = self.next(method, params);
        let response = self.post(request.clone()).await?;
        let body = json(&request, response)?;
        // Without a session this is the fixed server, which answers with the same id each time.
        let id = self.headers.contains_key(VERSION).then_some(id);
        checked(&request, &body, id, expected)?;
        Ok(body)
    }

    /// Sends a request whose result says when the upstream made it, and returns how long the result took from there to
    /// here. Calls `begun` when the head of the answer is there: that of a stream comes before the result.
    pub async fn timed(&mut self, method: &str, params: &str, begun: impl FnOnce()) -> Result<Duration> {
        let (id, request) = self.next(method, params);
        let post = self.prepare(Request::post("/mcp").body(Full::new(request.clone()))?);
        let sender = &mut self.sender;
        let answer = async move {
            sender.ready().await?;
            let (head, mut body) = sender.send_request(post).await?.into_parts();
            begun();
            let (mut read, mut arrived) = (BytesMut::new(), clock::now());
            while let Some(frame) = body.frame().await {
                if let Ok(data) = frame?.into_data() {
                    arrived = clock::now();
                    read.extend_from_slice(&data);
                }
            }
            Ok((Response::from_parts(head, read.freeze()), arrived))
        };
        let (response, arrived) = carried(&mut self.connection, answer).await?;
        let body =
            if is(&response, "text/event-stream") { last_event(response.body()) } else { json(&request, response)? };
        checked(&request, &body, Some(id), "\"content\"")?;
        let made = clock::stamped(str::from_utf8(&body)?).ok_or("a result that does not say when it was made")?;
        Ok(arrived.saturating_sub(made))
    }

    /// Opens the GET stream, which is open while the returned values live. Nothing is read from it.
    pub async fn listen(mut self) -> Result<(Self, Incoming)> {
        let mut get = self.prepare(Request::get("/mcp").body(Full::default())?);
        get.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        get.headers_mut().remove(CONTENT_TYPE);
        let sender = &mut self.sender;
        let answer = async move {
            sender.ready().await?;
            Ok(sender.send_request(get).await?)
        };
        let response = carried(&mut self.connection, answer).await?;
        if response.status() == StatusCode::OK && is(&response, "text/event-stream") {
            Ok((self, response.into_body()))
        } else {
            Err(unexpected(b"GET", &response.map(|_| Bytes::new())))
        }
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Waits until our upstream has answered at least so many tool calls, and returns their number.
    pub async fn served(&mut self, at_least: u64) -> Result<u64> {
        Ok(self.ask(&format!("/served?{at_least}")).await?.parse()?)
    }

    /// Waits until our upstream has exactly so many GET streams open.
    pub async fn streams(&mut self, count: usize) -> Result<()> {
        self.ask(&format!("/streams?{count}")).await.map(drop)
    }

    /// Waits until our upstream holds exactly so many calls.
    pub async fn held(&mut self, count: usize) -> Result<()> {
        self.ask(&format!("/held?{count}")).await.map(drop)
    }

    /// Lets our upstream answer the calls that it holds.
    pub async fn release(&mut self) -> Result<()> {
        self.ask("/release").await.map(drop)
    }

    /// Asks our upstream by a request outside MCP.
    async fn ask(&mut self, uri: &str) -> Result<String> {
        let body = json(uri.as_bytes(), self.send(uri.parse()?, Bytes::new()).await?)?;
        Ok(String::from_utf8(body.into())?)
    }

    /// Returns the id and the text of the next request.
    fn next(&mut self, method: &str, params: &str) -> (u64, Bytes) {
        self.sent += 1;
        let id = self.sent;
        let meta = self.modern.as_ref().map_or("", |modern| &modern.meta);
        let params = params.strip_prefix('{').unwrap_or(params);
        // Without the machinery of `format!`, which a longer request would pay for.
        let parts = [FRONT, &id.to_string(), r#","method":""#, method, r#"","params":{"#, meta, params, "}"];
        (id, parts.concat().into())
    }

    async fn post(&mut self, body: Bytes) -> Result<Response<Bytes>> {
        self.send(Uri::from_static("/mcp"), body).await
    }

    async fn send(&mut self, uri: Uri, body: Bytes) -> Result<Response<Bytes>> {
        let request = self.prepare(Request::post(uri).body(Full::new(body))?);
        let sender = &mut self.sender;
        let answer = async move {
            sender.ready().await?;
            let (head, body) = sender.send_request(request).await?.into_parts();
            Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
        };
        carried(&mut self.connection, answer).await
    }

    fn prepare(&self, mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
        request.headers_mut().clone_from(&self.headers);
        request
    }
}

/// Returns a copy of a header for one connection. All processors would count the uses of one that connections share.
pub fn unshared(header: &HeaderValue) -> HeaderValue {
    HeaderValue::from_bytes(header.as_bytes()).unwrap_or_else(|_| header.clone())
}

/// Drives a connection until an answer is there.
async fn carried<T>(connection: &mut Wire, answer: impl Future<Output = Result<T>>) -> Result<T> {
    let mut answer = pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // What comes before its end is there to be read; nothing else will come.
        _ = connection => answer.now_or_never().ok_or("the server has closed the connection")?,
    }
}

/// Returns the body of a good answer.
fn json(request: &[u8], response: Response<Bytes>) -> Result<Bytes> {
    if response.status() == StatusCode::OK && is(&response, "application/json") {
        Ok(response.into_body())
    } else {
        Err(unexpected(request, &response))
    }
}

fn is<T>(response: &Response<T>, kind: &str) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(kind.as_bytes()))
}

/// Returns the data of the last event of a stream: where the stream answers a request, the response.
fn last_event(stream: &Bytes) -> Bytes {
    let last = stream.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data: ")).next_back();
    last.map(|data| stream.slice_ref(data)).unwrap_or_default()
}

/// Checks both ends of an answer. Only one in [`PARSED`] is parsed, which would be measured too: all servers here write
/// it in one way.
fn checked(request: &[u8], body: &Bytes, id: Option<u64>, expected: &str) -> Result<()> {
    let text = str::from_utf8(body)?;
    if id.is_some_and(|id| id % PARSED == 1) {
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| format!("{error}: {text}"))?;
    }
    let front = id.map_or_else(|| FRONT.to_owned(), |id| format!(r#"{FRONT}{id},"result":{{"#));
    let head = text.get(..ENDS).unwrap_or(text);
    let tail = text.get(text.len().saturating_sub(ENDS)..).unwrap_or(text);
    // `str::contains` takes several times as long for each byte, and in modern answers more of them come first.
    let has = |part: &str, wanted: &str| memmem::find(part.as_bytes(), wanted.as_bytes()).is_some();
    let has_failed = has(tail, r#""isError":true"#);
    if text.starts_with(&front) && has(head, expected) && tail.ends_with("}}") && !has_failed {
        Ok(())
    } else {
        Err(format!("wrong answer: {text}\nto {}", String::from_utf8_lossy(request)).into())
    }
}

fn unexpected(request: &[u8], response: &Response<Bytes>) -> Box<dyn Error + Send + Sync> {
    let (body, request) = (String::from_utf8_lossy(response.body()), String::from_utf8_lossy(request));
    format!("unexpected answer: {} {:?}\n{body}\nto {request}", response.status(), response.headers()).into()
}
