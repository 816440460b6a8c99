//! A caller without a session, of revision 2026-07-28.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use crate::{
    client::{Modern, TASKS},
    ear::{Ear, Reading, has_ended},
    kit::Client,
    plan::{Plan, Way},
};

/// How often a task is polled.
const POLL: Duration = Duration::from_millis(30);

/// A caller.
pub(crate) struct Sessionless {
    pub(crate) ear: Ear,
    http: Client,
    /// Without tasks.
    capabilities: Value,
    /// Its tasks, with the tags of their calls.
    tasks: Mutex<Vec<(String, String)>>,
}

impl Sessionless {
    pub(crate) fn new(ear: Ear, http: Client, capabilities: Value) -> Self {
        Self { ear, http, capabilities, tasks: Mutex::default() }
    }

    fn client(&self, tasks: bool) -> Modern {
        let mut capabilities = self.capabilities.clone();
        if tasks {
            capabilities["extensions"] = json!({ TASKS: {} });
        }
        Modern { http: self.http.clone(), capabilities }
    }

    /// Makes a call.
    pub(crate) async fn call(&self, plan: &Plan) {
        match plan.way {
            Way::Leaves(after) => drop(tokio::time::timeout(after, self.converse(plan)).await),
            Way::Cancels(after) => {
                drop(tokio::time::timeout(after, self.converse(plan)).await);
                let task = self.tasks.lock().iter().find(|(_, tag)| *tag == plan.tag).cloned();
                if let Some((task, tag)) = task {
                    self.ask("tasks/cancel", json!({ "taskId": task }), &tag).await;
                }
            }
            Way::Stays | Way::LeavesAsked => self.converse(plan).await,
        }
    }

    async fn converse(&self, plan: &Plan) {
        let client = self.client(plan.task);
        let meta = json!({ "progressToken": plan.tag, "io.modelcontextprotocol/logLevel": "info" });
        let params = json!({ "name": "work", "arguments": plan.arguments, "_meta": meta });
        let mut request = params.clone();
        loop {
            let mut reading = Reading::of(client.stream("tools/call", request));
            let mut result = Value::Null;
            while let Some(message) = reading.next().await {
                self.ear.hear(&message, Some(&plan.tag));
                result = message["result"].clone();
            }
            match result["resultType"].as_str() {
                Some("task") => {
                    let id = result["taskId"].as_str().unwrap().to_owned();
                    self.ear.book.count("tasks");
                    self.tasks.lock().push((id.clone(), plan.tag.clone()));
                    return self.follow(&id, plan).await;
                }
                Some("input_required") if plan.way != Way::LeavesAsked => {
                    request = params.clone();
                    request["requestState"] = result["requestState"].clone();
                    request["inputResponses"] = self.answers(&result);
                }
                of => {
                    self.ear.book.count(if of == Some("complete") { "results" } else { "failures" });
                    return;
                }
            }
        }
    }

    /// Polls a task to its end, and answers what it asks.
    async fn follow(&self, id: &str, plan: &Plan) {
        loop {
            let task = self.ask("tasks/get", json!({ "taskId": id }), &plan.tag).await;
            if has_ended(&task) {
                return;
            }
            if task["status"] == "input_required" {
                if plan.way == Way::LeavesAsked {
                    return;
                }
                let params = json!({ "taskId": id, "inputResponses": self.answers(&task) });
                self.ask("tasks/update", params, &plan.tag).await;
            }
            sleep(POLL).await;
        }
    }

    /// Returns the answers to questions.
    fn answers(&self, asked: &Value) -> Value {
        self.ear.book.count("sessionless asked");
        let answer = |(key, question): (&String, &Value)| {
            let method = question["method"].as_str().unwrap();
            (key.clone(), self.ear.answer(method, &question["params"]))
        };
        asked["inputRequests"].as_object().unwrap().iter().map(answer).collect::<Map<_, _>>().into()
    }

    /// Asks about a task, and returns the result.
    async fn ask(&self, method: &str, params: Value, tag: &str) -> Value {
        let message = self.client(true).answer(method, params).await.json();
        self.ear.hear(&message, Some(tag));
        if method == "tasks/get" && message["result"].is_null() {
            self.ear.book.fault(format!("the task of {tag} is not there: {message}"));
            return json!({ "status": "failed" });
        }
        message["result"].clone()
    }

    /// Returns its tasks, with the tags of their calls.
    pub(crate) fn tasks(&self) -> Vec<(String, String)> {
        self.tasks.lock().clone()
    }

    /// Waits until a task has ended, and returns its status, its message and its result.
    pub(crate) async fn outcome(&self, id: &str, tag: &str) -> [Value; 3] {
        loop {
            let task = self.ask("tasks/get", json!({ "taskId": id }), tag).await;
            if has_ended(&task) {
                return [task["status"].clone(), task["error"]["message"].clone(), task["result"].clone()];
            }
            sleep(POLL).await;
        }
    }

    /// Polls a task of another owner, and returns the answer.
    pub(crate) async fn asks_for(&self, task: &str) -> Value {
        self.client(true).answer("tasks/get", json!({ "taskId": task })).await.json()
    }

    /// Waits until every task has ended.
    pub(crate) async fn ends(&self) {
        for (id, tag) in self.tasks() {
            self.outcome(&id, &tag).await;
        }
    }
}
