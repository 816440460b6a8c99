//! An HTTP/1.1 MCP server whose answers are scripts, written byte by byte, and that counts what it receives.

use std::{
    collections::{HashMap, HashSet},
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

pub(crate) use super::steps::{DONE, PROGRESS, Step, chunk, end, event, json_answer, numbered, stream};
use super::{seen::Seen, soon, within};

/// How long the longest script may take.
const FLOOD: Duration = Duration::from_mins(1);

/// A server that runs until the test's runtime ends.
pub(crate) struct BadUpstream {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Default)]
struct Shared {
    calls: Mutex<HashMap<String, Vec<Step>>>,
    /// What the resumptions of one call get, one after the other; the last of them repeats.
    resumptions: Mutex<HashMap<String, Vec<Vec<Step>>>>,
    listen: Mutex<Option<Vec<Step>>>,
    /// How the client's responses are answered; at once if not set.
    respond: Mutex<Option<Vec<Step>>>,
    /// How many responses are in flight, and how many were at most.
    responses: Mutex<(usize, usize)>,
    seen: Mutex<Vec<Seen>>,
    signals: Mutex<HashSet<&'static str>>,
    /// The tools whose answers were written to the end, or for as long as the client read them.
    ended: Mutex<Vec<String>>,
    changed: Notify,
    sessions: AtomicU64,
}

impl BadUpstream {
    /// Starts a server on a port of its own, whose tools answer with [`DONE`] until they are scripted.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (shared, address) = (Arc::<Shared>::default(), listener.local_addr().unwrap());
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let shared = Arc::clone(&serving);
                // The client may disconnect at any time.
                tokio::spawn(async move { shared.converse(BufReader::new(stream)).await.unwrap_or_default() });
            }
        });
        Self { shared, address }
    }

    /// Returns its endpoint.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Answers calls of `tool` like this.
    pub(crate) fn on_call(&self, tool: &str, answer: Vec<Step>) {
        self.shared.calls.lock().insert(tool.to_owned(), answer);
    }

    /// Answers resumptions of such a call, whose event ids begin with the tool's name, like this.
    pub(crate) fn on_resume(&self, tool: &str, answers: Vec<Vec<Step>>) {
        self.shared.resumptions.lock().insert(tool.to_owned(), answers);
    }

    /// Answers a GET without an event id like this; with 405 until then.
    pub(crate) fn on_listen(&self, answer: Vec<Step>) {
        *self.shared.listen.lock() = Some(answer);
    }

    /// Answers a response to a request of the server like this.
    pub(crate) fn on_response(&self, answer: Vec<Step>) {
        *self.shared.respond.lock() = Some(answer);
    }

    /// Returns how many responses have come.
    pub(crate) fn responses(&self) -> usize {
        self.count(Seen::is_response)
    }

    /// Lets the scripts go on that wait for it, or will.
    pub(crate) fn signal(&self, name: &'static str) {
        self.shared.signal(name);
    }

    /// Waits until so many answers to calls of a tool, or to "GET", have come to their end, or were abandoned by the
    /// other side.
    #[track_caller]
    pub(crate) fn ended(&self, tool: &str, count: usize) -> impl Future<Output = ()> {
        let ended = move |shared: &Shared| shared.ended.lock().iter().filter(|ended| **ended == tool).count();
        within(FLOOD, self.shared.until(move |shared| (ended(shared) >= count).then_some(())))
    }

    /// Returns the first request so far, or to come, that fits.
    #[track_caller]
    pub(crate) fn wait_for(&self, fits: impl Fn(&Seen) -> bool) -> impl Future<Output = Seen> {
        soon(self.shared.until(move |shared| shared.seen.lock().iter().find(|seen| fits(seen)).cloned()))
    }

    /// Forgets the requests so far, because a test may be long.
    pub(crate) fn forget(&self) {
        self.shared.seen.lock().clear();
        self.shared.ended.lock().clear();
    }

    fn count(&self, fits: impl Fn(&Seen) -> bool) -> usize {
        self.shared.seen.lock().iter().filter(|seen| fits(seen)).count()
    }

    /// Returns how often a tool was run.
    pub(crate) fn runs(&self, tool: &str) -> usize {
        self.count(|seen| seen.tool() == tool)
    }

    /// Returns the event ids after which streams of a tool were resumed, in order.
    pub(crate) fn resumed(&self, tool: &str) -> Vec<String> {
        let seen = self.shared.seen.lock();
        let ids = seen.iter().map(|seen| seen.header("last-event-id")).filter(|id| tool_of(id) == tool);
        ids.map(str::to_owned).collect()
    }

    /// Returns how many requests had an event id to resume after.
    pub(crate) fn resumptions(&self) -> usize {
        self.count(|seen| !seen.header("last-event-id").is_empty())
    }

    /// Returns how many requests came for another path than the endpoint's.
    pub(crate) fn stray_requests(&self) -> usize {
        self.count(|seen| seen.uri.path() != "/mcp")
    }

    /// Returns the most responses that were in flight at once.
    pub(crate) fn most_responses(&self) -> usize {
        self.shared.responses.lock().1
    }

    /// Returns how many sessions were ended by DELETE.
    pub(crate) fn deletes(&self) -> usize {
        self.count(|seen| seen.method == Method::DELETE)
    }

    /// Returns how many calls were cancelled.
    pub(crate) fn cancels(&self) -> usize {
        self.count(|seen| seen.rpc() == "notifications/cancelled")
    }
}

impl Seen {
    /// Returns the tool that it calls; empty if it calls none.
    pub(crate) fn tool(&self) -> String {
        let message = self.json();
        let name = if message["method"] == "tools/call" { message["params"]["name"].as_str() } else { None };
        name.unwrap_or_default().to_owned()
    }

    fn is_response(&self) -> bool {
        let message = self.json();
        message.get("id").is_some() && message.get("method").is_none()
    }

    /// Returns a script's text for this call.
    fn fill(&self, text: &str, count: usize) -> String {
        if !text.contains('$') {
            return text.to_owned();
        }
        let token = self.json()["params"]["_meta"]["progressToken"].to_string();
        text.replace("$ID", &self.id()).replace("$TOKEN", &token).replace("$N", &count.to_string())
    }
}

/// Returns the tool in an event id of [`numbered`].
fn tool_of(event_id: &str) -> &str {
    event_id.split('/').next().unwrap_or_default()
}

/// Counts a response while it is on its way.
struct Responding<'a>(&'a Mutex<(usize, usize)>);

impl<'a> Responding<'a> {
    fn new(count: &'a Mutex<(usize, usize)>) -> Self {
        let mut counted = count.lock();
        counted.0 += 1;
        counted.1 = counted.1.max(counted.0);
        Self(count)
    }
}

impl Drop for Responding<'_> {
    fn drop(&mut self) {
        self.0.lock().0 -= 1;
    }
}

impl Shared {
    fn signal(&self, name: &'static str) {
        self.signals.lock().insert(name);
        self.changed.notify_waiters();
    }

    async fn until<T>(&self, find: impl Fn(&Self) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = find(self) {
                return found;
            }
            changed.await;
        }
    }

    /// Answers one request after the other, until the connection ends.
    async fn converse(&self, mut connection: BufReader<TcpStream>) -> io::Result<()> {
        while let Some(seen) = read_request(&mut connection).await? {
            let (answer, call) = self.answer(&seen);
            let responds = seen.is_response();
            self.seen.lock().push(seen);
            self.changed.notify_waiters();
            let _response = responds.then(|| Responding::new(&self.responses));
            let written = self.write(&mut connection, answer, &call).await;
            let tool = call.tool();
            self.ended.lock().push(if tool.is_empty() { call.method.to_string() } else { tool });
            self.changed.notify_waiters();
            if !written? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Follows a script; returns whether the connection can carry another request.
    async fn write(&self, connection: &mut BufReader<TcpStream>, answer: Vec<Step>, call: &Seen) -> io::Result<bool> {
        for step in answer {
            match step {
                Step::Raw(text) => connection.write_all(call.fill(&text, 1).as_bytes()).await?,
                Step::Bytes(bytes) => connection.write_all(&bytes).await?,
                Step::Whole(head, body) => {
                    let body = call.fill(&body, 1);
                    let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    connection.write_all(answer.as_bytes()).await?;
                }
                Step::Pieces(size, text) => {
                    for piece in call.fill(&text, 1).as_bytes().chunks(size) {
                        write_chunk(connection, piece).await?;
                    }
                }
                Step::Times(times, text) => {
                    for n in 1..=times {
                        write_chunk(connection, call.fill(&text, n).as_bytes()).await?;
                    }
                }
                Step::Wait(name) => self.until(|shared| shared.signals.lock().contains(name).then_some(())).await,
                Step::Idle(pause) => tokio::time::sleep(pause).await,
                Step::Gone => {
                    // Nothing comes on this connection before its answer has ended.
                    let _ = connection.read(&mut [0]).await;
                    return Ok(false);
                }
                Step::Note(name) => {
                    self.ended.lock().push(name.to_owned());
                    self.changed.notify_waiters();
                }
                Step::Close => return Ok(false),
                Step::Reset => {
                    connection.get_ref().set_zero_linger()?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Handles a request; returns the answer and the call that it is about.
    fn answer(&self, seen: &Seen) -> (Vec<Step>, Seen) {
        if seen.method == Method::GET {
            return self.get(seen);
        }
        if seen.method == Method::DELETE {
            return (vec![Step::Whole("200 OK", String::new())], seen.clone());
        }
        let message = seen.json();
        let answer = match seen.rpc().as_str() {
            "initialize" => {
                let number = self.sessions.fetch_add(1, Ordering::Relaxed) + 1;
                let info = json!({ "name": "bad", "version": "1.0" });
                let result =
                    json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": info });
                let body = format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{result}}}"#);
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
                let length = seen.fill(&body, 1).len();
                vec![Step::Raw(format!("{head}mcp-session-id: bad-{number}\r\ncontent-length: {length}\r\n\r\n{body}"))]
            }
            "tools/call" => self.calls.lock().get(&seen.tool()).cloned().unwrap_or_else(|| vec![json_answer(DONE)]),
            _ if seen.is_response() => {
                let accepted = vec![Step::Whole("202 Accepted", String::new())];
                self.respond.lock().clone().unwrap_or(accepted)
            }
            _ if message.get("id").is_none() || message.get("method").is_none() => {
                vec![Step::Whole("202 Accepted", String::new())]
            }
            _ => vec![json_answer(r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#)],
        };
        (answer, seen.clone())
    }

    fn get(&self, seen: &Seen) -> (Vec<Step>, Seen) {
        let refused = vec![Step::Whole("405 Method Not Allowed", String::new())];
        let event_id = seen.header("last-event-id");
        if event_id.is_empty() {
            return (self.listen.lock().clone().unwrap_or(refused), seen.clone());
        }
        // The event id ends in the call's id and a number.
        let stream = event_id.rsplit_once('/').map_or("", |(stream, _)| stream);
        let number = stream.rsplit_once('/').map_or("", |(_, number)| number);
        let all = self.seen.lock();
        let same = |other: &&Seen| other.header("mcp-session-id") == seen.header("mcp-session-id");
        let call = all.iter().filter(same).find(|other| other.rpc() == "tools/call" && other.id() == number);
        let before = all.iter().filter(same).filter(|other| other.header("last-event-id").starts_with(stream)).count();
        let answers = self.resumptions.lock().get(tool_of(event_id)).cloned().unwrap_or_else(|| vec![refused]);
        let answer = answers[before.min(answers.len() - 1)].clone();
        (answer, call.unwrap_or(seen).clone())
    }
}

async fn write_chunk(connection: &mut BufReader<TcpStream>, data: &[u8]) -> io::Result<()> {
    let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
    chunk.extend_from_slice(data);
    chunk.extend_from_slice(b"\r\n");
    connection.write_all(&chunk).await
}

/// Returns the next request; `None` where the connection ends.
async fn read_request(connection: &mut BufReader<TcpStream>) -> io::Result<Option<Seen>> {
    let mut line = String::new();
    if connection.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ');
    let method = words.next().unwrap_or_default().parse().map_err(io::Error::other)?;
    let uri = words.next().unwrap_or_default().parse().map_err(io::Error::other)?;
    let mut headers = HeaderMap::new();
    loop {
        line.clear();
        connection.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        let name = name.parse::<HeaderName>().map_err(io::Error::other)?;
        headers.append(name, value.parse().map_err(io::Error::other)?);
    }
    let length = headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    Ok(Some(Seen { method, uri, headers, body: Bytes::from(body) }))
}
