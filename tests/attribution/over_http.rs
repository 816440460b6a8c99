//! The server over HTTP: it says everything on the stream that answers a call, or all but the answer on the GET stream.
//! Over HTTP+SSE, the transport of revision 2024-11-05, it says everything on the one stream of the session.

use std::{collections::HashMap, convert::Infallible, io, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::{net::TcpListener, sync::mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    Form,
    book::Book,
    kit::serve,
    over_modern,
    resumable::Answers,
    run::{Run, Said, Voice, response},
};

/// A server, which runs until the test's runtime ends.
pub(crate) struct OverHttp {
    form: Form,
    book: Arc<Book>,
    sessions: Mutex<HashMap<String, Session>>,
    opened: Mutex<usize>,
    answers: Answers,
}

#[derive(Default)]
struct Session {
    /// The GET stream.
    listener: Option<Voice>,
    /// The calls by their ids.
    calls: HashMap<String, CancellationToken>,
}

pub(crate) type Body = BoxBody<Bytes, io::Error>;

/// How many messages wait for a connection.
pub(crate) const ROOM: usize = 64;

impl OverHttp {
    /// Starts one, and returns its url.
    pub(crate) async fn start(form: Form, book: &Arc<Book>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (sessions, opened, answers) = (Mutex::default(), Mutex::default(), Answers::default());
        let server = Arc::new(Self { form, book: Arc::clone(book), sessions, opened, answers });
        tokio::spawn(serve(listener, CancellationToken::new(), move |request| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        }));
        url
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        if self.form == Form::Modern {
            return over_modern::answer(&self.book, message).await;
        }
        let is_sse = self.form == Form::Sse;
        if is_sse && head.method == Method::GET {
            let (voice, said) = mpsc::channel(ROOM);
            let id = self.open(Session { listener: Some(voice), ..<_>::default() });
            return events(Some(Said::Endpoint(format!("/message?{id}"))), said);
        }
        if !is_sse && message["method"] == "initialize" {
            let mut answer = whole("application/json", response(&message));
            answer.headers_mut().insert("mcp-session-id", self.open(Session::default()).parse().unwrap());
            return answer;
        }
        let in_header = head.headers.get("mcp-session-id").map(|id| id.to_str().unwrap());
        let session = in_header.or(head.uri.query()).unwrap_or_default().to_owned();
        if message.get("method").is_none() && message.get("id").is_some() {
            self.book.answered(&session, &message, self.sessions.lock().contains_key(&session));
        }
        let Some(cancelled) = self.note(&session, &message, &head.method) else { return forgotten(&session, is_sse) };
        if let Some(event) = head.headers.get("last-event-id") {
            self.book.count("resumed");
            return self.answers.resume(event.to_str().unwrap());
        }
        if head.method == Method::GET {
            let (voice, said) = mpsc::channel(ROOM);
            if let Some(session) = self.sessions.lock().get_mut(&session) {
                session.listener = Some(voice);
            }
            return events(None, said);
        }
        if head.method != Method::POST || message.get("id").is_none() || message.get("method").is_none() {
            return empty(if head.method == Method::POST { 202 } else { 200 });
        }
        if message["method"] == "tools/call" {
            return self.call(session, message, cancelled).await;
        }
        let Some(stream) = self.listener(&session).filter(|_| is_sse) else {
            return whole("application/json", response(&message));
        };
        let _ = stream.send(Said::Line(response(&message))).await;
        empty(202)
    }

    /// Begins a session, and returns its id.
    fn open(&self, session: Session) -> String {
        let mut opened = self.opened.lock();
        *opened += 1;
        let id = format!("session-{opened}");
        self.sessions.lock().insert(id.clone(), session);
        id
    }

    /// Returns the GET stream of a session.
    fn listener(&self, session: &str) -> Option<Voice> {
        self.sessions.lock().get(session)?.listener.clone()
    }

    /// Notes what a message changes. Returns what is cancelled with the request; `None` if there is no such session.
    fn note(&self, session: &str, message: &Value, method: &Method) -> Option<CancellationToken> {
        let mut sessions = self.sessions.lock();
        if *method == Method::DELETE {
            sessions.remove(session)?;
            return Some(CancellationToken::new());
        }
        let session = sessions.get_mut(session)?;
        if message["method"] == "notifications/cancelled"
            && let Some(cancelled) = session.calls.get(&message["params"]["requestId"].to_string())
        {
            cancelled.cancel();
        }
        let cancelled = CancellationToken::new();
        if message["method"] == "tools/call" {
            session.calls.insert(message["id"].to_string(), cancelled.clone());
        }
        Some(cancelled)
    }

    async fn call(self: Arc<Self>, session: String, message: Value, cancelled: CancellationToken) -> Response<Body> {
        let (own, mut said) = mpsc::channel(ROOM);
        let server = Arc::clone(&self);
        let (named, voice) = (session.clone(), own.clone());
        // That of HTTP+SSE goes on where the session has been forgotten.
        let stream = self.listener(&session).filter(|_| self.form == Form::Sse);
        let its = stream.clone();
        let aside = move || match server.form {
            Form::Stream | Form::Resumable => Some(voice.clone()),
            _ => its.clone().or_else(|| server.listener(&named)),
        };
        let has_status = message["params"]["arguments"]["end"].as_str().unwrap().parse::<u16>().is_ok();
        let (server, named) = (Arc::clone(&self), session.clone());
        let forget = move || drop(server.sessions.lock().remove(&named));
        let book = Arc::clone(&self.book);
        let run = Run { book, session, message, cancelled, own, aside, forget };
        tokio::spawn(run.work());
        if let Some(stream) = stream.filter(|_| !has_status) {
            tokio::spawn(async move {
                while let Some(Some(said)) = or_closed(&stream, said.recv()).await {
                    let _ = stream.send(said).await;
                }
            });
            return empty(202);
        }
        match said.recv().await {
            Some(Said::Line(line)) if self.form == Form::Listener => whole("application/json", line),
            Some(Said::Status(status)) => empty(status),
            first if self.form == Form::Resumable => self.answers.keep(first, said),
            first => events(first, said),
        }
    }
}

/// Says that there is no such session. Over HTTP+SSE some servers do so with status 400.
fn forgotten(session: &str, is_sse: bool) -> Response<Body> {
    if !is_sse || session.ends_with(['1', '3', '5', '7', '9']) {
        return empty(404);
    }
    let mut response = whole("text/plain", "No transport found for sessionId".to_owned());
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
}

pub(crate) fn empty(status: u16) -> Response<Body> {
    let mut response = whole("text/plain", String::new());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

pub(crate) fn whole(content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed());
    response.headers_mut().insert("content-type", content_type.parse().unwrap());
    response
}

/// Returns a stream of what is said, which ends with the answer.
pub(crate) fn events(first: Option<Said>, said: mpsc::Receiver<Said>) -> Response<Body> {
    let frames = stream::unfold((first, said, false), |(first, mut said, cut)| async move {
        if cut {
            return Some((Err(io::Error::other("cut by the test")), (None, said, false)));
        }
        let next = match first {
            Some(first) => first,
            None => said.recv().await?,
        };
        let (event, cut) = match next {
            Said::Line(line) => (format!("event: message\ndata: {line}\n\n"), false),
            Said::Endpoint(path) => (format!("event: endpoint\ndata: {path}\n\n"), false),
            Said::Status(_) | Said::Cut => ("event: message\ndata: {\"jsonrpc\":".to_owned(), true),
        };
        Some((Ok(Frame::data(Bytes::from(event))), (None, said, cut)))
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    response
}

/// Returns the next of what is said; `None` where the stream has ended on which it would go on.
async fn or_closed<T>(stream: &Voice, said: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        said = said => Some(said),
        () = stream.closed() => None,
    }
}
