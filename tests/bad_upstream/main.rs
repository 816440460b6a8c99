//! An HTTP upstream that breaks, lies, floods and repeats itself: each call and each task comes to the right end and
//! says why, no tool runs twice, and the other sessions go on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod answers;
mod closing;
mod cuts;
mod floods;
mod framing;
mod heads;
mod ids;
mod resuming;
mod retrying;
mod sizes;

use std::time::Duration;

use kit::{
    BadUpstream, Client, Gate, Stream,
    bad::{DONE, PROGRESS, Step, end, event, stream},
    eventually, status_of, within,
};
use serde_json::{Value, json};

/// How long a call may take: more than any pause in these tests.
const PATIENCE: Duration = Duration::from_mins(1);

/// The outcome of a call: the text of its result, or the message of its error.
type Outcome = Result<String, String>;

/// A gate in front of a bad upstream, a client, and another session with a call in flight that must not notice
/// anything.
struct House {
    bad: BadUpstream,
    gate: Gate,
    client: Client,
    witness: Client,
    open_call: Stream,
}

impl House {
    async fn new() -> Self {
        let bad = BadUpstream::start().await;
        let gate = Gate::to(&bad.url(), "").await;
        Self::with(bad, gate).await
    }

    async fn with(bad: BadUpstream, gate: Gate) -> Self {
        bad.on_call("steady", vec![stream(), event(PROGRESS), Step::Wait("all over"), event(DONE), end()]);
        let (client, witness) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
        let mut open_call = witness.stream("tools/call", call_of("steady"));
        assert_eq!(open_call.message().await["method"], "notifications/progress");
        Self { bad, gate, client, witness, open_call }
    }

    /// Makes a plain call of the tool.
    async fn call(&self, tool: &str) -> Outcome {
        outcome_in(&within(PATIENCE, self.client.response("tools/call", call_of(tool))).await)
    }

    /// Calls the tool as a task, whose `statusMessage` and `tasks/result` have to say the same.
    async fn task(&self, tool: &str) -> Outcome {
        let mut params = call_of(tool);
        params["task"] = json!({});
        let id = self.client.ask("tools/call", params).await["task"]["taskId"].as_str().unwrap().to_owned();
        let outcome =
            outcome_in(&within(PATIENCE, self.client.response("tasks/result", json!({ "taskId": id }))).await);
        let task = self.client.get(&id).await;
        match &outcome {
            Ok(_) => assert_eq!(status_of(&task), "completed", "{task}"),
            Err(why) => assert_eq!((status_of(&task), task["statusMessage"].as_str()), ("failed", Some(&**why))),
        }
        outcome
    }

    /// Makes a plain call of the tool and a task, which run it once each.
    async fn both(&self, tool: &str) -> [Outcome; 2] {
        let before = self.bad.runs(tool);
        let outcomes = [self.call(tool).await, self.task(tool).await];
        assert_eq!(self.bad.runs(tool) - before, 2, "{tool}");
        assert_eq!(self.witness.ask("ping", json!({})).await, json!({}));
        outcomes
    }

    /// Checks that both give the answer of [`DONE`].
    async fn succeeds(&self, tool: &str) {
        for outcome in self.both(tool).await {
            assert_eq!(outcome.as_deref(), Ok("done"), "{tool}");
        }
    }

    /// Checks that both fail, and that each error contains all of `words`.
    async fn fails(&self, tool: &str, words: &[&str]) {
        for outcome in self.both(tool).await {
            let why = outcome.expect_err(tool);
            assert!(why.contains("the MCP server behind taskgate"), "{tool}: {why}");
            assert!(words.iter().all(|words| why.contains(words)), "{tool}: {why:?} does not say {words:?}");
        }
    }

    /// Checks that the other session's call gets its answer and was run once. So does the next call of the client
    /// itself.
    async fn still_works(mut self) {
        self.succeeds("anything else").await;
        self.bad.signal("all over");
        assert_eq!(self.open_call.message().await["result"]["content"][0]["text"], "done");
        assert_eq!(self.bad.runs("steady"), 1);
        self.gate.stop().await;
    }
}

fn call_of(tool: &str) -> Value {
    json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": "t" } })
}

fn outcome_in(response: &Value) -> Outcome {
    match response["result"]["content"][0]["text"].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(response["error"]["message"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()),
    }
}
