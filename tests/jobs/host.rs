//! A host as a test drives it: it makes calls, and does what the words of the answers say.

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Options, Sse, Stream, Upstream};

/// The settings of a tool whose calls soon become jobs.
pub(crate) const SOON: &str = r#"tasks.job_after = "80ms""#;

/// A server whose answers are streams, taskgate in front of it, and a host in a session.
pub(crate) struct House {
    pub(crate) upstream: Upstream,
    pub(crate) gate: Gate,
    pub(crate) host: Client,
}

impl House {
    /// Opens a house whose server streams.
    pub(crate) async fn open(toml: &str) -> Self {
        Self::with(Upstream::sse().await, toml, json!({})).await
    }

    /// Opens a house of any server.
    pub(crate) async fn of(options: Options, toml: &str) -> Self {
        Self::with(Upstream::start(options).await, toml, json!({})).await
    }

    /// Opens a house whose host declares `capabilities`.
    pub(crate) async fn with(upstream: Upstream, toml: &str, capabilities: Value) -> Self {
        let gate = Gate::with(&upstream, toml).await;
        let host = Client::connect_as(&gate.url, "2025-06-18", capabilities).await;
        Self { upstream, gate, host }
    }

    /// Calls `slow`, and returns the server's end of the call and the answer, which is a job.
    pub(crate) async fn job(&self) -> (Sse, Job) {
        self.job_of(&self.host, "slow").await
    }

    /// Calls a tool from a host, and returns the same. What was due of calls before it has happened by then, so it is a
    /// witness where nothing should.
    pub(crate) async fn job_of(&self, host: &Client, tool: &str) -> (Sse, Job) {
        let calling = host.stream("tools/call", json!({ "name": tool, "arguments": {} }));
        let held = self.upstream.held(tool).await.sse();
        (held, Job::in_words(&calling.last().await["result"]))
    }
}

/// A job as a host knows it: by words alone.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) words: String,
}

impl Job {
    /// Reads the words of an answer, as a model does.
    #[track_caller]
    pub(crate) fn in_words(result: &Value) -> Self {
        assert!(result.get("structuredContent").is_none() && result.get("isError").is_none(), "{result}");
        let words = text(result);
        let (_, call) =
            words.split_once("call wait_for_job with {\"job_ids\":[\"").unwrap_or_else(|| panic!("{words}"));
        Self { id: call.split('"').next().unwrap().to_owned(), words }
    }

    /// Returns the arguments of a call that waits.
    pub(crate) fn waits(&self, seconds: f64) -> Value {
        json!({ "name": "wait_for_job", "arguments": { "job_ids": [self.id], "seconds": seconds } })
    }
}

/// Returns the text of a result.
#[track_caller]
pub(crate) fn text(result: &Value) -> String {
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}"));
    text.to_owned()
}

/// Calls a tool, and returns its result.
pub(crate) async fn call(host: &Client, tool: &str, arguments: Value) -> Value {
    host.response("tools/call", json!({ "name": tool, "arguments": arguments })).await["result"].take()
}

/// Waits for a job, and returns the result.
pub(crate) async fn wait(host: &Client, job: &Job, seconds: f64) -> Value {
    host.response("tools/call", job.waits(seconds)).await["result"].take()
}

/// Returns the next message with a method, and skips others.
pub(crate) async fn next(stream: &mut Stream, method: &str) -> Value {
    loop {
        let message = stream.message().await;
        if message["method"] == method {
            return message;
        }
    }
}
