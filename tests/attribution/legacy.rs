//! A caller with a session, of revision 2025-11-25. It opens another one where its session has been lost.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    book::tags,
    ear::{Ear, RELATED, Reading, has_ended, is_question, message_in},
    kit::{Client, Stream},
    plan::{Plan, Way},
};

/// How often a task is polled.
const POLL: Duration = Duration::from_millis(30);

/// How long a caller hears on the stream of a call that it has cancelled.
const HEARS: Duration = Duration::from_millis(100);

/// A caller.
pub(crate) struct Legacy {
    pub(crate) ear: Ear,
    /// Without a session.
    http: Client,
    capabilities: Value,
    /// In the newest session, and who reads its GET stream.
    current: Mutex<Option<(Client, JoinHandle<()>)>>,
    /// Who read the GET streams of sessions that were lost, where calls that go on may still ask.
    earlier: Mutex<Vec<JoinHandle<()>>>,
    /// Held while a session is opened.
    opening: tokio::sync::Mutex<()>,
    /// The tags of the calls of its tasks.
    tasks: Mutex<HashMap<String, String>>,
}

impl Legacy {
    pub(crate) async fn connect(ear: Ear, http: Client, capabilities: Value) -> Arc<Self> {
        let (current, earlier, opening, tasks) = <_>::default();
        let caller = Arc::new(Self { ear, http, capabilities, current, earlier, opening, tasks });
        caller.open_session("").await;
        caller
    }

    /// Opens a session in place of the one that was lost, if that is still the newest.
    async fn open_session(self: &Arc<Self>, lost: &str) {
        let _opening = self.opening.lock().await;
        if self.current.lock().as_ref().is_some_and(|(client, _)| client.session() != lost) {
            return;
        }
        // A shared process may die meanwhile.
        let client = loop {
            let answer = self.http.ask_to_initialize("2025-11-25", self.capabilities.clone()).await;
            let client = self.http.with("mcp-session-id", answer.header("mcp-session-id"));
            let client = client.with("mcp-protocol-version", "2025-11-25");
            if answer.status == 200 && client.notify("notifications/initialized", json!({})).await == 202 {
                break client;
            }
            sleep(POLL).await;
        };
        self.listen_in(client);
    }

    fn listen_in(self: &Arc<Self>, client: Client) {
        let (caller, listening) = (Arc::clone(self), client.clone());
        let listening = tokio::spawn(async move { caller.listen(listening).await });
        let session = client.session().to_owned();
        match self.current.lock().replace((client, listening)) {
            Some((client, earlier)) if client.session() == session => earlier.abort(),
            Some((_, earlier)) => self.earlier.lock().push(earlier),
            None => {}
        }
    }

    /// Opens the GET stream again, in the same session.
    pub(crate) fn comes_back(self: &Arc<Self>) {
        self.listen_in(self.client());
    }

    fn client(&self) -> Client {
        self.current.lock().as_ref().unwrap().0.clone()
    }

    /// Hears what comes on the GET stream.
    async fn listen(&self, client: Client) {
        let opening = client.clone();
        let mut reading = Reading::of(Stream::new(async move { opening.open(Method::GET, "").await }));
        while let Some(message) = reading.next().await {
            let task = message["params"]["_meta"][RELATED]["taskId"].as_str();
            let call = task.and_then(|task| self.tasks.lock().get(task).cloned());
            self.ear.hear(&message, call.as_deref());
            self.answer(&client, &message).await;
        }
    }

    /// Answers a message that is a question. Returns whether it is one.
    async fn answer(&self, client: &Client, message: &Value) -> bool {
        let method = message["method"].as_str().unwrap_or_default();
        if is_question(method) {
            self.ear.book.count("sessions asked");
            client.respond(&message["id"], self.ear.answer(method, &message["params"])).await;
        }
        is_question(method)
    }

    /// Makes a call.
    pub(crate) async fn call(self: &Arc<Self>, plan: &Plan) {
        let client = self.client();
        let meta = json!({ "progressToken": plan.tag });
        let mut params = json!({ "name": "work", "arguments": plan.arguments, "_meta": meta });
        let status = if plan.task {
            params["task"] = json!({ "ttl": 60_000 });
            self.call_as_task(&client, plan, params).await
        } else {
            self.call_plainly(&client, plan, params).await
        };
        if status == 404 {
            self.open_session(client.session()).await;
        }
    }

    /// Returns the HTTP status, 0 if there was none yet.
    async fn call_plainly(&self, client: &Client, plan: &Plan, params: Value) -> u16 {
        let id = client.next_id();
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string();
        let opening = client.clone();
        let mut reading = Reading::of(Stream::new(async move { opening.open(Method::POST, body).await }));
        let mut following = Box::pin(async {
            while let Some(message) = reading.next().await {
                self.ear.hear(&message, Some(&plan.tag));
                if message["result"]["content"].is_array() {
                    self.ear.book.count("results");
                }
                // It may be asked here what another call of its session asks, and that one stays.
                let is_own = is_question(message["method"].as_str().unwrap_or_default())
                    && tags(&message.to_string()).any(|tag| tag == plan.tag);
                if plan.way == Way::LeavesAsked && is_own {
                    break;
                }
                self.answer(client, &message).await;
            }
        });
        match plan.way {
            Way::Leaves(after) => drop(tokio::time::timeout(after, &mut following).await),
            Way::Cancels(after) => {
                if tokio::time::timeout(after, &mut following).await.is_err() {
                    client.notify("notifications/cancelled", json!({ "requestId": id })).await;
                    // It hears for a while what may still come, although the server may never answer.
                    drop(tokio::time::timeout(HEARS, &mut following).await);
                }
            }
            Way::Stays | Way::LeavesAsked => following.as_mut().await,
        }
        drop(following);
        reading.status
    }

    async fn call_as_task(self: &Arc<Self>, client: &Client, plan: &Plan, params: Value) -> u16 {
        let answer = client.answer("tools/call", params).await;
        let message = message_in(&answer);
        self.ear.hear(&message, Some(&plan.tag));
        let Some(id) = message["result"]["task"]["taskId"].as_str() else { return answer.status.as_u16() };
        self.ear.book.count("tasks");
        self.tasks.lock().insert(id.to_owned(), plan.tag.clone());
        match plan.way {
            Way::Stays => {
                self.until_ended(id, &plan.tag).await;
                let result = self.ask("tasks/result", id, &plan.tag).await;
                if result["content"].is_array() {
                    self.ear.book.count("results");
                }
            }
            Way::Cancels(after) => {
                sleep(after).await;
                self.ask("tasks/cancel", id, &plan.tag).await;
            }
            Way::Leaves(_) | Way::LeavesAsked => {}
        }
        200
    }

    /// Asks about a task, in whatever session, and returns the result.
    async fn ask(self: &Arc<Self>, method: &str, task: &str, tag: &str) -> Value {
        loop {
            let client = self.client();
            let answer = client.answer(method, json!({ "taskId": task })).await;
            if answer.status != 404 {
                let message = message_in(&answer);
                self.ear.hear(&message, Some(tag));
                if method == "tasks/get" && message["result"].is_null() {
                    self.ear.book.fault(format!("the task of {tag} is not there: {message}"));
                    return json!({ "status": "failed" });
                }
                return message["result"].clone();
            }
            self.open_session(client.session()).await;
        }
    }

    async fn until_ended(self: &Arc<Self>, task: &str, tag: &str) -> Value {
        loop {
            let polled = self.ask("tasks/get", task, tag).await;
            if has_ended(&polled) {
                return polled;
            }
            sleep(POLL).await;
        }
    }

    /// Returns its tasks, with the tags of their calls.
    pub(crate) fn tasks(&self) -> Vec<(String, String)> {
        self.tasks.lock().clone().into_iter().collect()
    }

    /// Waits until a task has ended, and returns its status, its message and its result.
    pub(crate) async fn outcome(self: &Arc<Self>, task: &str, tag: &str) -> [Value; 3] {
        let ended = self.until_ended(task, tag).await;
        let result = self.ask("tasks/result", task, tag).await;
        [ended["status"].clone(), ended["statusMessage"].clone(), result]
    }

    /// Polls a task of another owner, and returns the answer.
    pub(crate) async fn asks_for(self: &Arc<Self>, task: &str) -> Value {
        loop {
            let client = self.client();
            let answer = client.answer("tasks/get", json!({ "taskId": task })).await;
            if answer.status != 404 {
                return message_in(&answer);
            }
            self.open_session(client.session()).await;
        }
    }

    /// Waits until every task has ended, and ends the session.
    pub(crate) async fn ends(self: Arc<Self>) {
        let tasks = self.tasks.lock().clone();
        for (task, tag) in tasks {
            self.until_ended(&task, &tag).await;
        }
        for earlier in self.earlier.lock().drain(..) {
            earlier.abort();
        }
        self.client().delete().await;
    }
}
