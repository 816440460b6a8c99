//! A legacy MCP server over HTTP that acts by itself, in each form that such servers have, and notes which session did
//! what.

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    net::SocketAddr,
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
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use crate::kit::serve;

/// The form of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Answers with JSON, and says everything else on the GET stream.
    Json,
    /// Answers with a stream.
    Sse,
    /// The same without sessions.
    Sessionless,
    /// The transport of 2024-11-05.
    Old,
}

/// A server, which runs until it is killed or the test's runtime ends.
pub(crate) struct Witness {
    shared: Arc<Shared>,
    address: SocketAddr,
    running: Mutex<CancellationToken>,
}

struct Shared {
    form: Form,
    notes: Mutex<Notes>,
}

/// What the server knows and has noted.
#[derive(Default)]
struct Notes {
    sessions: HashMap<String, Session>,
    opened: usize,
    questions: HashMap<String, (String, oneshot::Sender<Value>)>,
    runs: HashMap<String, usize>,
    /// The calls by their session and id.
    calls: HashMap<(String, String), String>,
    cancelled: BTreeSet<String>,
    crossings: Vec<String>,
}

/// Whose calls a session has served.
#[derive(Default)]
struct Session {
    capabilities: Value,
    credential: String,
    owner: Option<String>,
    /// The stream of what belongs to no call.
    listener: Option<mpsc::Sender<String>>,
}

type Body = BoxBody<Bytes, Infallible>;

impl Witness {
    pub(crate) async fn start(form: Form) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { form, notes: Mutex::default() });
        let witness = Self { shared, address, running: Mutex::default() };
        witness.serve(listener);
        witness
    }

    fn serve(&self, listener: TcpListener) {
        let (shared, token) = (Arc::clone(&self.shared), CancellationToken::new());
        *self.running.lock() = token.clone();
        tokio::spawn(serve(listener, token, move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(shared.answer(request).await) }
        }));
    }

    pub(crate) fn url(&self) -> String {
        let path = if self.shared.form == Form::Old { "sse" } else { "mcp" };
        format!("http://{}/{path}", self.address)
    }

    /// Forgets every session, and answers it with 404 from now on.
    pub(crate) fn forget(&self) {
        self.shared.notes.lock().sessions.clear();
    }

    /// Breaks every connection, forgets every session, and comes back on the same port.
    pub(crate) async fn restart(&self) {
        self.running.lock().cancel();
        self.forget();
        let listener = crate::kit::eventually(async || TcpListener::bind(self.address).await.ok()).await;
        self.serve(listener);
    }

    /// Returns how many sessions were opened.
    pub(crate) fn opened(&self) -> usize {
        self.shared.notes.lock().opened
    }

    /// Returns how often a call ran, by its name for itself.
    pub(crate) fn runs(&self, call: &str) -> usize {
        self.shared.notes.lock().runs.get(call).copied().unwrap_or(0)
    }

    /// Returns whether a call was cancelled.
    pub(crate) fn was_cancelled(&self, call: &str) -> bool {
        self.shared.notes.lock().cancelled.contains(call)
    }

    /// Returns what met that should not have.
    pub(crate) fn crossings(&self) -> Vec<String> {
        self.shared.notes.lock().crossings.clone()
    }
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::new()).boxed());
    *response.status_mut() = status;
    response
}

fn document(text: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed());
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

/// Returns a stream of events, and where they go in.
fn events() -> (mpsc::Sender<String>, Response<Body>) {
    let (to, from) = mpsc::channel::<String>(1024);
    let frames = stream::unfold(from, |mut from| async {
        let event = from.recv().await?;
        let event = if event.starts_with("event:") { event } else { format!("event: message\ndata: {event}\n\n") };
        Some((Ok(Frame::data(Bytes::from(event))), from))
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    (to, response)
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

impl Shared {
    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let id = match self.form {
            Form::Old => head.uri.query().unwrap_or_default().to_owned(),
            Form::Sessionless => "the only one".to_owned(),
            Form::Json | Form::Sse => header(&head.headers, "mcp-session-id").to_owned(),
        };
        let initializes = message["method"] == "initialize";
        let opens = match self.form {
            Form::Old => head.method == Method::GET,
            Form::Sessionless => initializes && !self.notes.lock().sessions.contains_key(&id),
            Form::Json | Form::Sse => initializes,
        };
        let id = if opens { self.open(id) } else { id };
        if !self.notes.lock().sessions.contains_key(&id) {
            return empty(StatusCode::NOT_FOUND);
        }
        if initializes {
            let mut notes = self.notes.lock();
            let session = notes.sessions.get_mut(&id).unwrap();
            session.capabilities = message["params"]["capabilities"].clone();
            header(&head.headers, "authorization").clone_into(&mut session.credential);
        }
        match head.method {
            Method::GET if self.form == Form::Sessionless => return empty(StatusCode::METHOD_NOT_ALLOWED),
            Method::GET => return self.listen(&id),
            Method::POST => {}
            _ => return empty(StatusCode::OK),
        }
        if message.get("method").is_none() {
            self.take_answer(&id, &message);
            return empty(StatusCode::ACCEPTED);
        }
        if message.get("id").is_none() {
            if message["method"] == "notifications/cancelled" {
                let mut notes = self.notes.lock();
                let call = notes.calls.get(&(id, message["params"]["requestId"].to_string())).cloned();
                notes.cancelled.extend(call);
            }
            return empty(StatusCode::ACCEPTED);
        }
        if let Some(call) = message["params"]["arguments"]["call"].as_str() {
            self.notes.lock().calls.insert((id.clone(), message["id"].to_string()), call.to_owned());
        }
        self.respond(&id, message, &head.headers).await
    }

    fn open(&self, named: String) -> String {
        let mut notes = self.notes.lock();
        notes.opened += 1;
        let id = if self.form == Form::Sessionless { named } else { format!("session={}", notes.opened) };
        notes.sessions.insert(id.clone(), Session::default());
        id
    }

    fn listen(&self, id: &str) -> Response<Body> {
        let (to, response) = events();
        if self.form == Form::Old {
            to.try_send(format!("event: endpoint\ndata: /messages?{id}\n\n")).unwrap();
        }
        self.notes.lock().sessions.get_mut(id).unwrap().listener = Some(to);
        response
    }

    fn take_answer(&self, id: &str, answer: &Value) {
        let mut notes = self.notes.lock();
        let question = answer["id"].as_str().unwrap_or_default();
        match notes.questions.remove(question) {
            Some((session, reply)) => {
                if session != id {
                    notes.crossings.push(format!("{session} asked and {id} answered"));
                }
                let _ = reply.send(answer.clone());
            }
            None => notes.crossings.push(format!("nothing asked for {answer}")),
        }
    }

    /// Answers a request, in the way of the form.
    async fn respond(self: &Arc<Self>, session: &str, message: Value, headers: &HeaderMap) -> Response<Body> {
        let listener = || self.notes.lock().sessions[session].listener.clone();
        let wants_listener = self.form == Form::Json && message["method"] == "tools/call";
        let listener = if wants_listener {
            // Its client opens the stream beside its first request.
            Some(crate::kit::eventually(async || listener()).await)
        } else {
            listener()
        };
        let credential = header(headers, "authorization").to_owned();
        let (shared, session) = (Arc::clone(self), session.to_owned());
        match self.form {
            Form::Json => {
                let run = Run { shared, session: session.clone(), say: listener };
                let mut response = document(run.response(&message, &credential).await);
                response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
                response
            }
            Form::Sse | Form::Sessionless => {
                let (to, mut response) = events();
                if self.form == Form::Sse {
                    response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
                }
                let run = Run { shared, session, say: Some(to.clone()) };
                tokio::spawn(async move {
                    tokio::select! {
                        document = run.response(&message, &credential) => drop(to.try_send(document)),
                        () = to.closed() => {}
                    }
                });
                response
            }
            Form::Old => {
                let run = Run { shared, session, say: listener.clone() };
                tokio::spawn(async move {
                    let document = run.response(&message, &credential).await;
                    let _ = listener.unwrap().try_send(document);
                });
                empty(StatusCode::ACCEPTED)
            }
        }
    }
}

/// One request, and where the server says what it has to say meanwhile.
struct Run {
    shared: Arc<Shared>,
    session: String,
    say: Option<mpsc::Sender<String>>,
}

impl Run {
    async fn response(&self, message: &Value, credential: &str) -> String {
        let result = match message["method"].as_str().unwrap() {
            "initialize" => json!({
                "protocolVersion": if self.shared.form == Form::Old { "2024-11-05" } else { "2025-06-18" },
                "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": "witness", "version": "1" },
            }),
            "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
            "tools/call" => {
                let params = &message["params"];
                let arguments = &params["arguments"];
                self.note(arguments, credential);
                self.tool(params["name"].as_str().unwrap(), arguments, &params["_meta"]["progressToken"]).await
            }
            _ => json!({}),
        };
        json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string()
    }

    /// Notes a call, and whether it meets one that it should not meet.
    fn note(&self, arguments: &Value, credential: &str) {
        let mut notes = self.shared.notes.lock();
        let call = arguments["call"].as_str().unwrap_or_default();
        *notes.runs.entry(call.to_owned()).or_default() += 1;
        let (Some(owner), Some(session)) = (arguments["owner"].as_str(), notes.sessions.get_mut(&self.session)) else {
            return;
        };
        let first = session.owner.get_or_insert_with(|| owner.to_owned());
        let said = (first.as_str(), session.credential.as_str(), session.capabilities.get("elicitation").is_some());
        let says = (owner, credential, arguments["able"] == true);
        if said != says || arguments["credential"] != credential {
            let crossing = format!("{call} of {says:?} came in a session of {said:?}");
            notes.crossings.push(crossing);
        }
    }

    async fn tool(&self, name: &str, arguments: &Value, token: &Value) -> Value {
        let call = arguments["call"].as_str().unwrap_or_default().to_owned();
        let mut said = call.clone();
        match name {
            "progress" => {
                let params = json!({ "progressToken": token, "progress": 1, "message": call });
                // On its other connection the answer would overtake it.
                let pause = if self.shared.form == Form::Json { 100 } else { 0 };
                self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }));
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            "work" => tokio::time::sleep(Duration::from_millis(20)).await,
            "late" => {
                tokio::time::sleep(Duration::from_millis(300)).await;
                said = self.ask(&call).await;
            }
            "ask" => said = self.ask(&call).await,
            "hold" => std::future::pending().await,
            "change" => {
                let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
                let listener = self.shared.notes.lock().sessions[&self.session].listener.clone();
                let _ = listener.or(self.say.clone()).unwrap().try_send(changed.to_string());
            }
            _ => {}
        }
        json!({ "content": [{ "type": "text", "text": said }] })
    }

    fn say(&self, message: &Value) {
        let _ = self.say.as_ref().expect("there is a stream").try_send(message.to_string());
    }

    /// Asks who the client is, and returns what it answers.
    async fn ask(&self, call: &str) -> String {
        let (reply, answered) = oneshot::channel();
        let id = format!("question of {call}");
        self.shared.notes.lock().questions.insert(id.clone(), (self.session.clone(), reply));
        let schema = json!({ "type": "object", "properties": { "who": { "type": "string" } } });
        let params = json!({ "message": call, "requestedSchema": schema });
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params }));
        let answer = answered.await.unwrap();
        let who = answer["result"]["content"]["who"].as_str().unwrap_or("no answer").to_owned();
        if who != call {
            self.shared.notes.lock().crossings.push(format!("{call} asked and got {answer}"));
        }
        who
    }
}
