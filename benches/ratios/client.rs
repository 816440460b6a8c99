//! One client connection: raw hyper, the MCP handshake, and a look at every answer.

use std::{error::Error, net::SocketAddr, pin::pin};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Request, Response, StatusCode, Uri,
    client::conn::http1::{self, Connection, SendRequest},
    header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpStream;

use crate::Result;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const REVISION: &str = "2025-11-25";

/// Longer answers are checked by their ends only: to parse them would measure the parser.
const PARSED: usize = 16 * 1024;

#[derive(Deserialize)]
struct Answer<'a> {
    id: u64,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    /// Polled with each request, in the same task: a task of its own would cost wake-ups that are not the server's.
    connection: Connection<TokioIo<TcpStream>, Full<Bytes>>,
    headers: HeaderMap,
    /// Requests sent so far, which makes the id of the next one.
    sent: u64,
}

impl Client {
    /// A connection without a session.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(&address.to_string())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        Ok(Self { sender, connection, headers, sent: 0 })
    }

    /// A connection with a session of its own.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let mut client = Self::connect(address).await?;
        client.initialize().await?;
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = client.post(notification.into()).await?;
        if response.status() != StatusCode::ACCEPTED {
            return Err(unexpected(notification, &response));
        }
        Ok(client)
    }

    /// Another connection of the same session.
    pub async fn join(&self, address: SocketAddr) -> Result<Self> {
        let mut client = Self::connect(address).await?;
        client.headers.clone_from(&self.headers);
        Ok(client)
    }

    /// The first request of a session.
    pub async fn initialize(&mut self) -> Result<()> {
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{REVISION}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1.0.0"}}}}}}"#
        );
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

    /// Sends a request and returns the answer: a result with `expected` in it. Anything else is an error that shows the body.
    pub async fn request(&mut self, method: &str, params: &str, expected: &str) -> Result<Bytes> {
        self.sent += 1;
        let id = self.sent;
        let request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        let response = self.post(request.clone()).await?;
        let body = json(&request, response)?;
        // Without a session this is the fixed server, which answers the same id each time.
        let id = self.headers.contains_key(SESSION).then_some(id);
        checked(&request, &body, id, expected)?;
        Ok(body)
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Asks our upstream for its count of tool calls, once that has reached a number.
    pub async fn served(&mut self, at_least: u64) -> Result<u64> {
        let uri = format!("/served?{at_least}").parse()?;
        let body = json("served", self.send(uri, Bytes::new()).await?)?;
        Ok(str::from_utf8(&body)?.parse()?)
    }

    async fn post(&mut self, body: String) -> Result<Response<Bytes>> {
        self.send(Uri::from_static("/mcp"), body.into()).await
    }

    async fn send(&mut self, uri: Uri, body: Bytes) -> Result<Response<Bytes>> {
        let mut request = Request::post(uri).body(Full::new(body))?;
        request.headers_mut().clone_from(&self.headers);
        let sender = &mut self.sender;
        let mut answer = pin!(async move {
            sender.ready().await?;
            let (head, body) = sender.send_request(request).await?.into_parts();
            Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
        });
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            // After its end, the answer is already read or an error.
            _ = &mut self.connection => answer.await,
        }
    }
}

/// The body of a good answer.
fn json(request: &str, response: Response<Bytes>) -> Result<Bytes> {
    let is_json =
        response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if response.status() == StatusCode::OK && is_json {
        Ok(response.into_body())
    } else {
        Err(unexpected(request, &response))
    }
}

fn checked(request: &str, body: &Bytes, id: Option<u64>, expected: &str) -> Result<()> {
    let text = str::from_utf8(body)?;
    let good = if text.len() > PARSED {
        text.get(..256).is_some_and(|head| head.contains(expected)) && text.ends_with('}')
    } else {
        let answer: Answer = serde_json::from_str(text).map_err(|error| format!("{error}: {text}\nto {request}"))?;
        let result = answer.result.map_or("", RawValue::get);
        id.is_none_or(|id| id == answer.id) && result.contains(expected) && !result.contains(r#""isError":true"#)
    };
    if good { Ok(()) } else { Err(format!("wrong answer: {text}\nto {request}").into()) }
}

fn unexpected(request: &str, response: &Response<Bytes>) -> Box<dyn Error + Send + Sync> {
    let body = String::from_utf8_lossy(response.body());
    format!("unexpected answer: {} {:?}\n{body}\nto {request}", response.status(), response.headers()).into()
}
