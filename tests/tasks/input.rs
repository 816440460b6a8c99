//! What the server asks during a task reaches the client on exactly one stream, and the answers find their way back.

use serde_json::{Value, json};

use crate::kit::{Client, Gate, Sse, Stream, Upstream, status_of};

const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A task that runs, and the stream on which its server can ask.
pub(super) struct House {
    pub(super) upstream: Upstream,
    pub(super) gate: Gate,
    pub(super) client: Client,
    pub(super) id: String,
    pub(super) slow: Sse,
}

pub(super) async fn house() -> House {
    house_with("").await
}

pub(super) async fn house_with(toml: &str) -> House {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, toml).await;
    let able = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    let client = Client::connect_as(&gate.url, "2025-11-25", able).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    House { upstream, gate, client, id, slow }
}

impl House {
    pub(super) async fn asks(&self, id: &str, message: &str) {
        let params = json!({ "message": message, "requestedSchema": { "type": "object", "properties": {} } });
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params });
        self.slow.event(&request.to_string()).await;
    }

    pub(super) async fn waiting(&self) -> Stream {
        let mut waiting = self.client.stream("tasks/result", json!({ "taskId": self.id }));
        waiting.head().await;
        waiting
    }

    /// Returns the answer that the server gets to its question `id`.
    pub(super) async fn answer_to(&self, id: &str) -> Value {
        self.upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == id).await.json()
    }

    pub(super) async fn accept(&self, question: &Value) {
        let result = json!({ "action": "accept", "content": {}, "_meta": { RELATED: { "taskId": self.id } } });
        assert_eq!(self.client.respond(&question["id"], result).await, 202);
    }

    pub(super) async fn completes(self) {
        self.slow.result(r#"{"content":[]}"#).await;
        self.client.until(&self.id, "completed").await;
    }
}

/// Returns the next request of the server, and skips other messages.
pub(super) async fn question(stream: &mut Stream) -> Value {
    loop {
        let message = stream.message().await;
        if message.get("id").is_some() && message.get("method").is_some() {
            return message;
        }
    }
}

/// Returns the next message of a method, and skips others.
pub(super) async fn next(stream: &mut Stream, method: &str) -> Value {
    loop {
        let mut message = stream.message().await;
        if message["method"] == method {
            return message["params"].take();
        }
    }
}

#[tokio::test]
async fn a_question_moves_the_task_to_input_required_and_its_answer_back_to_working() {
    let house = house().await;
    house.asks("ask", "Which account?").await;
    let task = house.client.until(&house.id, "input_required").await;
    assert_eq!(task["statusMessage"], "Input required: Which account?");
    let mut waiting = house.waiting().await;
    let asked = question(&mut waiting).await;
    house.accept(&asked).await;
    house.client.until(&house.id, "working").await;
    house.answer_to("ask").await;
    house.completes().await;
}

#[tokio::test]
async fn a_question_comes_on_the_get_stream_if_one_is_open_and_names_the_task() {
    let house = house().await;
    let mut listener = house.client.get_stream().await;
    let mut waiting = house.waiting().await;
    house.asks("ask", "?").await;
    let asked = question(&mut listener).await;
    assert_eq!(asked["params"]["_meta"], json!({ RELATED: { "taskId": house.id } }));
    assert_eq!(asked["params"]["message"], "?");
    house.accept(&asked).await;
    assert_eq!(house.answer_to("ask").await["result"], json!({ "action": "accept", "content": {}, "_meta": {} }));
    house.slow.result(r#"{"content":[]}"#).await;
    // On exactly one stream: the other one only has the result.
    assert!(waiting.message().await["result"].is_object());
    assert_eq!(waiting.next().await, None);
}

#[tokio::test]
async fn a_question_is_held_for_the_next_stream_that_waits_for_the_result() {
    let house = house().await;
    house.asks("ask", "?").await;
    house.client.until(&house.id, "input_required").await;
    let mut waiting = house.waiting().await;
    let asked = question(&mut waiting).await;
    house.accept(&asked).await;
    house.answer_to("ask").await;
    house.completes().await;
    assert!(waiting.message().await["result"].is_object());
}

#[tokio::test]
async fn a_question_is_held_for_the_get_stream_that_opens_next() {
    let house = house().await;
    house.asks("ask", "?").await;
    house.client.until(&house.id, "input_required").await;
    let mut listener = house.client.get_stream().await;
    assert_eq!(question(&mut listener).await["params"]["message"], "?");
}

#[tokio::test]
async fn several_questions_are_answered_in_any_order_and_the_task_works_again_after_the_last() {
    let house = house().await;
    house.asks("one", "1").await;
    house.asks("two", "2").await;
    let mut waiting = house.waiting().await;
    let (one, two) = (question(&mut waiting).await, question(&mut waiting).await);
    assert_eq!((&one["params"]["message"], &two["params"]["message"]), (&json!("1"), &json!("2")));
    house.accept(&two).await;
    house.answer_to("two").await;
    assert_eq!(status_of(&house.client.get(&house.id).await), "input_required");
    house.accept(&one).await;
    house.answer_to("one").await;
    assert_eq!(status_of(&house.client.get(&house.id).await), "working");
    house.completes().await;
}

#[tokio::test]
async fn an_answer_that_declines_fails_or_is_odd_reaches_the_server_unchanged() {
    let house = house().await;
    let mut waiting = house.waiting().await;
    for (n, outcome) in
        [r#""result":{"action":"decline"}"#, r#""result":7.50"#, r#""error":{"code":-1,"message":"no"}"#]
            .iter()
            .enumerate()
    {
        let own = format!("q{n}");
        house.asks(&own, "?").await;
        let asked = question(&mut waiting).await;
        let text = format!(r#"{{"jsonrpc":"2.0","id":{},{outcome}}}"#, asked["id"]);
        assert_eq!(house.client.post(text).await.status, 202);
        house.answer_to(&own).await;
        let got = house.upstream.wait_for(|seen| seen.json()["id"] == own).await;
        assert_eq!(got.text(), format!(r#"{{"jsonrpc":"2.0","id":"{own}",{outcome}}}"#));
    }
    house.completes().await;
}

#[tokio::test]
async fn the_second_answer_to_a_question_goes_nowhere() {
    let house = house().await;
    house.asks("ask", "?").await;
    let mut waiting = house.waiting().await;
    let asked = question(&mut waiting).await;
    house.accept(&asked).await;
    house.answer_to("ask").await;
    house.accept(&asked).await;
    // The message after it shows that it went nowhere.
    house.client.ask("ping", json!({})).await;
    let answers = house.upstream.seen().into_iter().filter(|seen| seen.rpc().is_empty() && seen.method == "POST");
    assert_eq!(answers.count(), 1);
    house.completes().await;
}

#[tokio::test]
async fn another_session_cannot_answer_a_question() {
    let house = house().await;
    house.asks("ask", "?").await;
    let mut waiting = house.waiting().await;
    let asked = question(&mut waiting).await;
    let stranger = Client::connect(&house.gate.url).await;
    assert_eq!(stranger.respond(&asked["id"], json!({ "action": "accept" })).await, 202);
    assert_eq!(status_of(&house.client.get(&house.id).await), "input_required");
    house.accept(&asked).await;
    assert_eq!(house.answer_to("ask").await["result"]["content"], json!({}));
}

#[tokio::test]
async fn a_question_that_the_server_withdraws_is_withdrawn_from_the_client() {
    let house = house().await;
    house.asks("ask", "?").await;
    let mut waiting = house.waiting().await;
    let asked = question(&mut waiting).await;
    house.slow.notify("notifications/cancelled", json!({ "requestId": "ask" })).await;
    let cancelled = next(&mut waiting, "notifications/cancelled").await;
    assert_eq!(cancelled["requestId"], asked["id"]);
    assert_eq!(cancelled["_meta"][RELATED]["taskId"], json!(house.id));
    house.client.until(&house.id, "working").await;
    house.completes().await;
}

#[tokio::test]
async fn a_question_withdrawn_before_it_was_asked_is_never_asked() {
    let house = house().await;
    house.asks("ask", "?").await;
    house.client.until(&house.id, "input_required").await;
    house.slow.notify("notifications/cancelled", json!({ "requestId": "ask" })).await;
    house.client.until(&house.id, "working").await;
    let mut waiting = house.waiting().await;
    house.completes().await;
    assert!(waiting.message().await["result"].is_object());
}

#[tokio::test]
async fn a_question_without_an_answer_in_time_is_an_error_for_the_server_and_the_task_goes_on() {
    let house = house_with("[tasks]\ninput_timeout = \"50ms\"").await;
    let mut waiting = house.waiting().await;
    house.asks("ask", "?").await;
    let asked = question(&mut waiting).await;
    let answer = house.answer_to("ask").await;
    assert_eq!(answer["error"]["code"], -32603);
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.contains("input_timeout = 50ms"), "{why}");
    // The client need not ask its user any longer.
    assert_eq!(next(&mut waiting, "notifications/cancelled").await["requestId"], asked["id"]);
    house.client.until(&house.id, "working").await;
    house.completes().await;
}

#[tokio::test]
async fn questions_beyond_the_limit_of_open_ones_get_an_error_at_once() {
    let house = house().await;
    for n in 0..65 {
        house.asks(&format!("q{n}"), "?").await;
    }
    let refused = house.answer_to("q64").await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("limit reached"), "{refused}");
    // The others are asked, and the one that is answered makes room.
    let mut waiting = house.waiting().await;
    let first = question(&mut waiting).await;
    house.accept(&first).await;
    house.answer_to("q0").await;
    house.asks("q65", "?").await;
    for _ in 1..64 {
        question(&mut waiting).await;
    }
    assert_eq!(question(&mut waiting).await["params"]["message"], "?");
    house.completes().await;
}

#[tokio::test]
async fn a_question_that_the_client_does_not_support_gets_an_error_at_once() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": { "form": {} } })).await;
    let id = client.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    for (n, (method, params, code)) in [
        ("sampling/createMessage", json!({}), -32601),
        ("roots/list", json!({}), -32601),
        ("elicitation/create", json!({ "mode": "url" }), -32602),
    ]
    .into_iter()
    .enumerate()
    {
        slow.event(&json!({ "jsonrpc": "2.0", "id": n, "method": method, "params": params }).to_string()).await;
        let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == n).await;
        assert_eq!(answer.json()["error"]["code"], code, "{method}");
        assert_eq!(status_of(&client.get(&id).await), "working");
    }
}

#[tokio::test]
async fn a_ping_during_a_task_is_answered_without_the_client() {
    let house = house().await;
    house.slow.event(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).await;
    assert_eq!(house.answer_to("p").await["result"], json!({}));
    assert_eq!(status_of(&house.client.get(&house.id).await), "working");
}

#[tokio::test]
async fn the_end_of_a_task_closes_its_questions() {
    let house = house().await;
    house.asks("ask", "?").await;
    let mut waiting = house.waiting().await;
    let asked = question(&mut waiting).await;
    house.client.cancel(&house.id).await;
    assert_eq!(next(&mut waiting, "notifications/cancelled").await["requestId"], asked["id"]);
    house.accept(&asked).await;
    let task = house.client.get(&house.id).await;
    assert_eq!(status_of(&task), "cancelled");
}

#[tokio::test]
async fn a_call_may_end_while_a_question_is_open() {
    let house = house().await;
    house.asks("ask", "?").await;
    house.client.until(&house.id, "input_required").await;
    house.completes().await;
}

#[tokio::test]
async fn a_question_that_comes_apart_from_its_call_belongs_to_the_only_task_that_runs() {
    let house = house().await;
    let apart = house.upstream.get_stream().await;
    apart.event(r#"{"jsonrpc":"2.0","id":"ask","method":"sampling/createMessage","params":{}}"#).await;
    house.client.until(&house.id, "input_required").await;
    let mut waiting = house.waiting().await;
    let asked = question(&mut waiting).await;
    assert_eq!(asked["params"]["_meta"][RELATED]["taskId"], json!(house.id));
    assert_eq!(house.client.respond(&asked["id"], json!({ "role": "assistant" })).await, 202);
    assert_eq!(house.answer_to("ask").await["result"]["role"], "assistant");
    apart.notify("notifications/x", json!({})).await;
    house.completes().await;
}

#[tokio::test]
async fn a_question_of_a_principals_task_is_answered_from_another_session_of_the_principal() {
    let upstream = Upstream::sse().await;
    let auth = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]";
    let gate = Gate::with(&upstream, auth).await;
    let connect = async |user: &str| {
        let client = Client::new(&gate.url).with("x-user", user);
        client.initialize("2025-11-25", json!({ "elicitation": {} })).await
    };
    let ann = connect("ann").await;
    let id = ann.create_id("slow").await;
    let slow = upstream.held("slow").await.sse();
    assert_eq!(ann.delete().await.status, 200);
    slow.event(r#"{"jsonrpc":"2.0","id":"ask","method":"elicitation/create","params":{"message":"?"}}"#).await;
    let (again, bob) = (connect("ann").await, connect("bob").await);
    let mut bobs = bob.get_stream().await;
    let mut waiting = again.stream("tasks/result", json!({ "taskId": id }));
    let asked = question(&mut waiting).await;
    // Only where it was asked: not in another session of the same owner.
    let unasked = connect("ann").await;
    assert_eq!(unasked.respond(&asked["id"], json!({ "action": "accept" })).await, 202);
    assert_eq!(status_of(&unasked.get(&id).await), "input_required");
    assert_eq!(again.respond(&asked["id"], json!({ "action": "cancel" })).await, 202);
    let answer = upstream.wait_for(|seen| seen.json()["result"]["action"] == "cancel").await;
    assert_eq!(answer.json()["id"], "ask");
    slow.result("{}").await;
    assert!(waiting.message().await["result"].is_object());
    assert_eq!(bob.delete().await.status, 200);
    assert_eq!(bobs.next().await, None);
}

#[tokio::test]
async fn a_notification_of_a_task_names_the_task_too() {
    let house = house().await;
    let mut listener = house.client.get_stream().await;
    house.slow.notify("notifications/message", json!({ "level": "info", "data": "x" })).await;
    house.slow.event(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#).await;
    let related = json!({ RELATED: { "taskId": house.id } });
    assert_eq!(listener.message().await["params"], json!({ "level": "info", "data": "x", "_meta": related }));
    assert_eq!(listener.message().await["params"], json!({ "_meta": related }));
}
