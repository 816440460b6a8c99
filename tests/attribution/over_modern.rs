//! The server of revision 2026-07-28: it has no sessions, and asks by its result, to which the next request is the answer.

use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    book::Book,
    over_http::{Body, ROOM, empty, events, whole},
    run::{Run, Said, Voice},
};

/// Answers one request.
pub(crate) async fn answer(book: &Arc<Book>, message: Value) -> Response<Body> {
    let result = match message["method"].as_str().unwrap_or_default() {
        "tools/call" => return call(Arc::clone(book), message).await,
        "server/discover" => json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {}, "logging": {} },
            "ttlMs": 0,
            "cacheScope": "private",
        }),
        "tools/list" => json!({
            "tools": [{ "name": "work", "inputSchema": { "type": "object" } }],
            "ttlMs": 0,
            "cacheScope": "private",
        }),
        _ => return empty(400),
    };
    whole("application/json", response(&message, "complete", result))
}

fn response(message: &Value, of: &str, mut result: Value) -> String {
    result["resultType"] = of.into();
    json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string()
}

async fn call(book: Arc<Book>, message: Value) -> Response<Body> {
    let (own, mut said) = mpsc::channel(ROOM);
    let (session, cancelled, voice) = (String::new(), CancellationToken::new(), own.clone());
    let run = Run { book, session, message, cancelled, own, aside: move || Some(voice.clone()), forget: || () };
    tokio::spawn(run.go_on());
    match said.recv().await {
        Some(Said::Status(status)) => empty(status),
        // It has said nothing before.
        Some(Said::Line(line)) if line.contains("resultType") => whole("application/json", line),
        first => events(first, said),
    }
}

impl<V: Fn() -> Option<Voice>, F: Fn()> Run<V, F> {
    /// Works on the call until it is answered, asks, or is given up by the end of the connection.
    async fn go_on(self) {
        let _running = self.book.runs();
        let gone = self.own.clone();
        tokio::select! {
            () = self.round() => {}
            () = gone.closed() => self.book.count("cancelled"),
        }
    }

    async fn round(&self) {
        let (params, message) = (&self.message["params"], &self.message);
        let arguments = &params["arguments"];
        let state = params["requestState"].as_str().and_then(|state| state.split_once('/'));
        let (asked, question) = state.map_or((0, None), |(asked, id)| (asked.parse().unwrap(), Some(id)));
        if let Some(id) = question {
            let answers = json!({ "id": id, "result": params["inputResponses"], "arguments": arguments["tag"] });
            self.book.answered(&self.session, &answers, true);
            if !id.ends_with(self.tag()) {
                self.book.fault(format!("the server got {message}, whose state is that of another call"));
            }
        } else {
            self.book.begins(self.tag());
        }
        let end = arguments["end"].as_str().unwrap();
        let pause = arguments["pause"].as_u64().unwrap();
        // One in three says nothing else, and one in three says it late.
        if pause % 3 == 1 {
            self.tell().await;
        }
        self.pause().await;
        if pause % 3 == 2 && end.parse::<u16>().is_err() {
            self.tell().await;
        }
        if asked < arguments["questions"].as_u64().unwrap() {
            let (id, _) = self.book.ask(&self.session, self.tag());
            let (method, params) = self.question();
            let requests = json!({ "asked": { "method": method, "params": params } });
            let asks = json!({ "inputRequests": requests, "requestState": format!("{}/{id}", asked + 1) });
            return self.reply(Said::Line(response(message, "input_required", asks))).await;
        }
        let said = match (end, end.parse()) {
            ("cut", _) => Said::Cut,
            ("no id", _) => {
                let error = json!({ "code": -32600, "message": format!("what is {}?", self.tag()) });
                Said::Line(json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string())
            }
            (_, Ok(status)) if pause % 3 != 1 => Said::Status(status),
            _ => {
                let content = json!([{ "type": "text", "text": self.tag() }]);
                Said::Line(response(message, "complete", json!({ "content": content })))
            }
        };
        self.reply(said).await;
    }
}
