//! What each owner can reach of another's, in every mode: nothing, not even whether it exists.

use http::Method;
use serde_json::{Value, json};

use crate::{
    introspection::{active, secret},
    issuer::{Issuer, Signer},
    kit::{Client, Gate, Sse, Upstream, eventually, status_of},
};

/// Two owners and a client without any proof, in front of one taskgate.
struct House {
    upstream: Upstream,
    ann: Client,
    bob: Client,
    unproven: Client,
    /// The HTTP status for a client without a valid proof.
    refusal: u16,
    _gate: Gate,
}

impl House {
    /// Starts the house; `proofs` are the headers that make a request Ann's or Bob's.
    async fn new(auth: &str, [ann, bob]: [Option<(&str, &str)>; 2], refusal: u16) -> Self {
        let upstream = Upstream::sse().await;
        let gate = Gate::with(&upstream, auth).await;
        let unproven = Client::new(&gate.url);
        let owner = async |proof: Option<(&str, &str)>| {
            let client = proof.map_or_else(|| unproven.clone(), |(name, value)| unproven.with(name, value));
            client.initialize("2025-11-25", json!({ "elicitation": {} })).await
        };
        let (ann, bob) = (owner(ann).await, owner(bob).await);
        Self { upstream, ann, bob, unproven, refusal, _gate: gate }
    }

    /// Creates a task of Ann's that asks something; returns its id, the question, and the id of an event of her GET
    /// stream.
    async fn asking(&self) -> (String, Sse, Value, String) {
        let id = self.ann.create_id("slow").await;
        let slow = self.upstream.held("slow").await.sse();
        let mut stream = self.ann.get_stream().await;
        let params = json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } });
        let question = json!({ "jsonrpc": "2.0", "id": "ask", "method": "elicitation/create", "params": params });
        slow.event(&question.to_string()).await;
        let asked = loop {
            let event = stream.next().await.unwrap();
            if event.json()["method"] == "elicitation/create" {
                break event;
            }
        };
        self.ann.until(&id, "input_required").await;
        (id, slow, asked.json()["id"].clone(), asked.id.unwrap())
    }

    /// Checks the whole table.
    async fn keeps_to_themselves(self) {
        let done = self.ann.create_id("echo").await;
        self.ann.until(&done, "completed").await;
        let (asking, slow, question, event) = self.asking().await;
        let ours = [&done, &asking];
        self.foreign_owner_finds_nothing(ours, &question, &event).await;
        self.unproven_is_refused(ours, &question, &event).await;
        // None of these attempts has changed anything, and the owner finds everything.
        assert_eq!(status_of(&self.ann.get(&asking).await), "input_required");
        assert_eq!(self.ann.list().await.len(), 2);
        assert!(self.ann.collect(&done).await["result"].is_object());
        let mut resumed = self.ann.with("last-event-id", &event).get_stream().await;
        assert_eq!(self.ann.respond(&question, json!({ "action": "accept", "content": { "of": "ann" } })).await, 202);
        let answer = self.upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "ask").await;
        assert_eq!(answer.json()["result"]["content"], json!({ "of": "ann" }));
        assert_eq!(resumed.message().await["method"], "notifications/tasks/status");
        assert_eq!(status_of(&self.ann.cancel(&asking).await), "cancelled");
        drop(slow);
        assert_eq!(self.ann.delete().await.status, 200);
        assert_eq!(self.bob.ask("ping", json!({})).await, json!({}));
    }

    async fn foreign_owner_finds_nothing(&self, ours: [&String; 2], question: &Value, event: &str) {
        let bob = &self.bob;
        for id in ours {
            for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
                let foreign = bob.error(method, json!({ "taskId": id })).await;
                let unknown = bob.error(method, json!({ "taskId": uuid::Uuid::new_v4().to_string() })).await;
                assert_eq!(foreign, unknown, "{method}");
            }
        }
        assert_eq!(bob.list().await, Vec::<String>::new());
        assert_eq!(bob.respond(question, json!({ "action": "accept", "content": { "of": "bob" } })).await, 202);
        let status = bob.with("last-event-id", event).send(Method::GET, "").await.status;
        assert_eq!(status, 400, "an event of another session");
        if bob.headers.keys().len() == self.unproven.headers.keys().len() + 2 {
            // Without authentication the session id is the only secret.
            return;
        }
        let intruder = bob.with("mcp-session-id", self.ann.session());
        self.every_request_gets(&intruder, ours, question, event, 404).await;
    }

    async fn unproven_is_refused(&self, ours: [&String; 2], question: &Value, event: &str) {
        self.every_request_gets(&self.unproven, ours, question, event, self.refusal).await;
        if self.refusal == 401 {
            let intruder = self.unproven.with("mcp-session-id", self.ann.session());
            self.every_request_gets(&intruder, ours, question, event, 401).await;
        }
        let stranger = self.unproven.with("mcp-session-id", &uuid::Uuid::new_v4().to_string());
        let unknown = if self.refusal == 401 { 401 } else { 404 };
        self.every_request_gets(&stranger, ours, question, event, unknown).await;
    }

    /// Checks that every attempt of the client gets this HTTP status.
    async fn every_request_gets(
        &self,
        client: &Client,
        ours: [&String; 2],
        question: &Value,
        event: &str,
        status: u16,
    ) {
        for id in ours {
            for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
                assert_eq!(client.answer(method, json!({ "taskId": id })).await.status, status, "{method}");
            }
        }
        assert_eq!(client.answer("tasks/list", json!({})).await.status, status);
        let call = json!({ "name": "echo", "arguments": {}, "task": {} });
        assert_eq!(client.answer("tools/call", call).await.status, status);
        assert_eq!(client.respond(question, json!({ "action": "decline" })).await, status);
        let cancelled = json!({ "requestId": 1 });
        assert_eq!(client.notify("notifications/cancelled", cancelled).await, status);
        assert_eq!(client.send(Method::GET, "").await.status, status);
        assert_eq!(client.with("last-event-id", event).send(Method::GET, "").await.status, status);
        assert_eq!(client.delete().await.status, status);
    }
}

#[tokio::test]
async fn without_authentication_each_session_sees_its_own_tasks_only() {
    House::new("", [None, None], 400).await.keeps_to_themselves().await;
}

#[tokio::test]
async fn users_of_a_trusted_gateway_see_their_own_tasks_only() {
    let auth = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]";
    House::new(auth, [Some(("x-user", "ann")), Some(("x-user", "bob"))], 401).await.keeps_to_themselves().await;
}

#[tokio::test]
async fn subjects_of_one_issuer_see_their_own_tasks_only() {
    let key = Signer::ec("key");
    let issuer = Issuer::start(&[&key]).await;
    let [ann, bob] = ["ann", "bob"].map(|sub| format!("Bearer {}", key.token(&issuer.claims(sub))));
    let proofs = [Some(("authorization", &*ann)), Some(("authorization", &*bob))];
    House::new(&issuer.jwt(), proofs, 401).await.keeps_to_themselves().await;
}

#[tokio::test]
async fn subjects_of_introspected_tokens_see_their_own_tasks_only() {
    let (issuer, secret) = (Issuer::start(&[]).await, secret());
    issuer.say("ann", active(&issuer, "ann"));
    issuer.say("bob", active(&issuer, "bob"));
    let auth = issuer.introspect(secret.path().to_str().unwrap());
    let proofs = [Some(("authorization", "Bearer ann")), Some(("authorization", "Bearer bob"))];
    House::new(&auth, proofs, 401).await.keeps_to_themselves().await;
}

#[tokio::test]
async fn holders_of_opaque_tokens_see_their_own_tasks_only() {
    let proofs = [Some(("authorization", "Bearer ann")), Some(("authorization", "Bearer bob"))];
    House::new("[auth]\nmode = \"bearer\"\n", proofs, 401).await.keeps_to_themselves().await;
}

#[tokio::test]
async fn the_same_subject_of_another_issuer_is_another_owner() {
    let key = Signer::ec("key");
    let (here, there) = (Issuer::start(&[&key]).await, Issuer::start(&[&key]).await);
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &here.jwt()).await;
    let ann = crate::session(&gate, &key.token(&here.claims("ann"))).await;
    ann.create_id("slow").await;
    // Even with the same key: the token names another issuer.
    let answer = crate::attempt(&gate, &key.token(&there.claims("ann"))).await;
    assert_eq!(answer.refusal().2, "Unauthorized: the token is from another issuer");
    eventually(async || (ann.list().await.len() == 1).then_some(())).await;
}
