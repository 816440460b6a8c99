//! How the server works on one call, whatever it is reached over: as the arguments say.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::book::Book;

/// How long the server waits for an answer before it goes on without, where the caller may never give one.
const WAITS: Duration = Duration::from_millis(500);

/// What the server says in the course of a call, or in its place.
#[derive(Debug)]
pub(crate) enum Said {
    /// A message.
    Line(String),
    /// Where messages go by POST.
    Endpoint(String),
    /// Another status than that of an answer.
    Status(u16),
    /// The connection breaks in the middle of a message.
    Cut,
}

/// Where the server says something.
pub(crate) type Voice = mpsc::Sender<Said>;

/// One call.
pub(crate) struct Run<V, F> {
    pub(crate) book: Arc<Book>,
    /// The session, or the process.
    pub(crate) session: String,
    pub(crate) message: Value,
    /// Cancelled when the client has cancelled the call.
    pub(crate) cancelled: CancellationToken,
    /// Where the answer goes.
    pub(crate) own: Voice,
    /// Returns where everything else goes.
    pub(crate) aside: V,
    /// Has the server forget the session.
    pub(crate) forget: F,
}

impl<V: Fn() -> Option<Voice>, F: Fn()> Run<V, F> {
    /// Works on the call to its end.
    pub(crate) async fn work(self) {
        let _running = self.book.runs();
        let arguments = &self.message["params"]["arguments"];
        let end = arguments["end"].as_str().unwrap();
        // That says that the call has not run, so it may be sent again.
        if end != "404" {
            self.book.begins(self.tag());
        }
        if end.parse::<u16>().is_err() || arguments["questions"] != 0 {
            self.tell().await;
        }
        let asking = async {
            self.pause().await;
            for _ in 0..arguments["questions"].as_u64().unwrap() {
                self.ask(arguments["patient"] == true).await;
            }
        };
        if self.cancelled.run_until_cancelled(asking).await.is_none() {
            self.book.count("cancelled");
            if arguments["late"] == false {
                return self.own.closed().await;
            }
            self.book.count("late");
            self.goes_on().await;
        }
        match end {
            "cut" => {
                self.reply(Said::Cut).await;
                // Where the answer can be resumed, it goes on.
                self.goes_on().await;
                self.answer().await;
            }
            "no id" => {
                let error = json!({ "code": -32600, "message": format!("what is {}?", self.tag()) });
                self.reply(Said::Line(json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string())).await;
                self.goes_on().await;
                // It has no way any more where the error was all of an answer over HTTP.
                self.answer().await;
            }
            "forget" => {
                (self.forget)();
                self.answer().await;
            }
            status => match status.parse() {
                Ok(status) => {
                    self.reply(Said::Status(status)).await;
                    self.goes_on().await;
                }
                Err(_) => self.answer().await,
            },
        }
    }

    pub(crate) fn tag(&self) -> &str {
        self.message["params"]["arguments"]["tag"].as_str().unwrap()
    }

    pub(crate) async fn pause(&self) {
        sleep(Duration::from_millis(self.message["params"]["arguments"]["pause"].as_u64().unwrap())).await;
    }

    /// Tells and asks something when the call may be over for its client.
    async fn goes_on(&self) {
        self.pause().await;
        self.tell().await;
        self.ask(false).await;
    }

    async fn answer(&self) {
        let result = json!({ "content": [{ "type": "text", "text": self.tag() }] });
        self.reply(Said::Line(json!({ "jsonrpc": "2.0", "id": self.message["id"], "result": result }).to_string()))
            .await;
    }

    pub(crate) async fn reply(&self, said: Said) {
        let _ = self.own.send(said).await;
    }

    async fn say(&self, message: Value) {
        if let Some(voice) = (self.aside)() {
            let _ = voice.send(Said::Line(message.to_string())).await;
        }
    }

    pub(crate) async fn tell(&self) {
        let token = &self.message["params"]["_meta"]["progressToken"];
        if !token.is_null() {
            let params = json!({ "progressToken": token, "progress": 1, "message": self.tag() });
            self.say(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })).await;
        }
        let params = json!({ "level": "info", "data": self.tag() });
        self.say(json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params })).await;
    }

    /// Returns a question about the call: a method and its params.
    pub(crate) fn question(&self) -> (&'static str, Value) {
        let tag = self.tag();
        if self.message["params"]["arguments"]["samples"] == true {
            let message = json!({ "role": "user", "content": { "type": "text", "text": tag } });
            ("sampling/createMessage", json!({ "messages": [message], "maxTokens": 10 }))
        } else {
            let schema = json!({ "type": "object", "properties": { "who": { "type": "string" } } });
            ("elicitation/create", json!({ "message": tag, "requestedSchema": schema }))
        }
    }

    /// Asks about the call, and waits for the answer, for ever if the server is patient.
    async fn ask(&self, patient: bool) {
        let (id, answered) = self.book.ask(&self.session, self.tag());
        let (method, params) = self.question();
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        if patient {
            let _ = answered.await;
        } else {
            let _ = timeout(WAITS, answered).await;
        }
    }
}

/// Returns the response to any other request.
pub(crate) fn response(message: &Value) -> String {
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "tools": {}, "logging": {} },
            "serverInfo": { "name": "random", "version": "1" },
        }),
        "tools/list" => json!({ "tools": [{ "name": "work", "inputSchema": { "type": "object" } }] }),
        "server/discover" => {
            let error = json!({ "code": -32601, "message": "no such method" });
            return json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }).to_string();
        }
        _ => json!({}),
    };
    json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string()
}
