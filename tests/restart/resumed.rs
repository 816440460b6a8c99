//! Calls whose answers can be resumed go on in the next process: they run once, and their clients notice nothing.

use serde_json::{Value, json};

use crate::{
    House,
    kit::{Client, Sse, Stream, Upstream, eventually, soon, status_of},
    written,
};

const ELICITS: &str = r#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"How many?","requestedSchema":{"type":"object","properties":{}}}}"#;

/// Sends an event with an id.
pub(crate) async fn event(stream: &Sse, id: &str, document: &str) {
    stream.raw(&format!("id: {id}\ndata: {document}\n\n")).await;
}

/// Sends the response as the last event of an answer that was resumed.
pub(crate) async fn answer(stream: Sse, call: &str, result: &Value) {
    event(&stream, "last", &format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{result}}}"#)).await;
}

/// Returns the next question on a stream.
async fn question(stream: &mut Stream) -> Value {
    loop {
        let message = stream.message().await;
        if message["method"] == "elicitation/create" {
            return message;
        }
    }
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// A task whose server has begun to answer.
struct Running {
    upstream: Upstream,
    house: House,
    client: Client,
    id: String,
    stream: Sse,
    /// The raw id of the request.
    call: String,
}

impl Running {
    async fn with(config: &str, capabilities: Value) -> Self {
        let upstream = Upstream::sse().await;
        let house = House::before(&upstream.url(), config).await;
        let client = Client::connect_as(&house.url, "2025-11-25", capabilities).await;
        Self::of(upstream, house, client).await
    }

    async fn of(upstream: Upstream, house: House, client: Client) -> Self {
        let id = client.create_id("slow").await;
        let stream = upstream.held("slow").await.sse();
        let call = stream.seen.id();
        event(&stream, "e1", "").await;
        Self { upstream, house, client, id, stream, call }
    }

    /// Sends progress in an event with this id, and waits until the task shows it and the point is on the disk.
    async fn reach(&self, stream: &Sse, event_id: &str, progress: u32) {
        self.progress(stream, event_id, progress).await;
        // What is shown was heard after the event before it.
        self.progress(stream, event_id, progress + 1).await;
        written(&self.client).await;
    }

    /// Sends progress in an event with this id, and waits until the task shows it.
    async fn progress(&self, stream: &Sse, event_id: &str, progress: u32) {
        let params = json!({ "progressToken": self.call.parse::<u64>().unwrap(), "progress": progress,
            "message": format!("step {progress}") });
        let document = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
        event(stream, event_id, &document.to_string()).await;
        let step = format!("step {progress}");
        self.client.until_task(&self.id, |task| task["statusMessage"].as_str().unwrap_or("").contains(&step)).await;
    }
}

#[tokio::test]
async fn a_call_whose_answer_can_be_resumed_runs_once_and_its_client_notices_nothing() {
    let mut running = Running::with("", json!({})).await;
    running.reach(&running.stream, "e2", 1).await;
    running.house.restart().await;
    let resumed = running.upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "e2");
    assert_eq!(resumed.seen.header("mcp-session-id"), "upstream-1");
    assert_eq!(status_of(&running.client.get(&running.id).await), "working");
    running.reach(&resumed, "e3", 3).await;
    // And again.
    running.house.restart().await;
    let resumed = running.upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "e3");
    let waiting = tokio::spawn({
        let (client, id) = (running.client.clone(), running.id.clone());
        async move { client.response("tasks/result", json!({ "taskId": id })).await }
    });
    answer(resumed, &running.call, &text("done")).await;
    let result = soon(waiting).await.unwrap();
    assert_eq!(result["result"]["content"], text("done")["content"]);
    running.client.until(&running.id, "completed").await;
    assert_eq!(running.upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_running_call_whose_credentials_were_not_kept_is_not_resumed_and_says_why() {
    let upstream = Upstream::sse().await;
    let server = format!("[[upstream]]\nurl = \"{}\"\nforward_authorization = true\n", upstream.url());
    let house = House::configured(&format!("[auth]\nmode = \"bearer\"\n{server}"), &[]).await;
    let client = Client::new(&house.url).with("authorization", "Bearer ann").initialize("2025-11-25", json!({})).await;
    let mut running = Running::of(upstream, house, client).await;
    running.reach(&running.stream, "e2", 1).await;
    running.house.restart().await;
    let task = running.client.until(&running.id, "failed").await;
    let why = task["statusMessage"].as_str().unwrap();
    assert!(why.contains("was not sent again") && why.contains("credentials were not kept"), "{why}");
    assert_eq!(running.upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_running_call_whose_upstream_has_another_url_now_is_not_resumed_and_says_why() {
    let mut running = Running::with("", json!({})).await;
    running.reach(&running.stream, "e2", 1).await;
    let url = running.upstream.url().replace("127.0.0.1", "localhost");
    running.house.configure(&format!("[[upstream]]\nurl = \"{url}\"\n"));
    running.house.restart().await;
    let task = running.client.until(&running.id, "failed").await;
    let told = running.house.end(rustix::process::Signal::KILL).await.stderr;
    let logged = told.lines().find(|line| line.contains("a task cannot go on"));
    for said in [task["statusMessage"].as_str(), logged] {
        let why = said.unwrap();
        assert!(why.contains("was not sent again") && why.contains("its upstream has another url now"), "{why}");
    }
    assert_eq!(running.upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_question_that_is_open_is_asked_again() {
    let mut running = Running::with("", json!({ "elicitation": {} })).await;
    let mut asked = running.client.get_stream().await;
    event(&running.stream, "e2", ELICITS).await;
    let first = question(&mut asked).await;
    assert_eq!(first["params"]["message"], "How many?");
    // What comes behind the question does not move the point at which the answer is resumed.
    event(
        &running.stream,
        "e3",
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#,
    )
    .await;
    running.client.until(&running.id, "input_required").await;
    written(&running.client).await;
    running.house.restart().await;
    let resumed = running.upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "e1");
    let mut asked = running.client.get_stream().await;
    event(&resumed, "e2", ELICITS).await;
    let again = question(&mut asked).await;
    assert_eq!(again["params"]["message"], "How many?");
    running.client.until(&running.id, "input_required").await;
    let status = running.client.respond(&again["id"], json!({ "action": "accept", "content": {} })).await;
    assert_eq!(status, 202);
    let answered = running.upstream.wait_for(|seen| seen.json()["id"] == "q1" && seen.rpc().is_empty()).await;
    assert_eq!(answered.json()["result"]["action"], "accept");
    // Now that it is answered, it is not asked again.
    event(&resumed, "e4", "").await;
    running.reach(&resumed, "e5", 1).await;
    running.house.restart().await;
    let resumed = running.upstream.resumed().await;
    assert_eq!(resumed.seen.header("last-event-id"), "e5");
    answer(resumed, &running.call, &text("done")).await;
    running.client.until(&running.id, "completed").await;
}

#[tokio::test]
async fn a_call_that_was_resumed_can_be_cancelled() {
    let mut running = Running::with("", json!({})).await;
    running.reach(&running.stream, "e2", 1).await;
    running.house.restart().await;
    let resumed = running.upstream.resumed().await;
    running.client.cancel(&running.id).await;
    let cancelled = running.upstream.wait_for_message("notifications/cancelled").await;
    assert_eq!(cancelled.json()["params"]["requestId"].to_string(), running.call);
    resumed.abandoned().await;
    assert_eq!(status_of(&running.client.get(&running.id).await), "cancelled");
}

#[tokio::test]
async fn the_timeout_of_a_call_counts_from_its_real_beginning() {
    let mut running = Running::with("[tasks]\ntimeout = \"8s\"\n", json!({})).await;
    let began = std::time::Instant::now();
    running.reach(&running.stream, "e2", 1).await;
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    running.house.restart().await;
    let resumed = running.upstream.resumed().await;
    let task = running.client.until(&running.id, "failed").await;
    assert!(began.elapsed().as_secs() < 12, "it began anew");
    assert!(task["statusMessage"].as_str().unwrap().contains("timeout = 8s is over"), "{task}");
    resumed.abandoned().await;
}

#[tokio::test]
async fn a_timeout_that_was_made_longer_holds_and_the_task_lives_as_long() {
    let tasks = |timeout| format!("[tasks]\nttl = \"1s\"\npoll_interval = \"100ms\"\ntimeout = \"{timeout}\"\n");
    let mut running = Running::with(&tasks("2s"), json!({})).await;
    running.reach(&running.stream, "e2", 1).await;
    let before = running.client.get(&running.id).await["ttl"].as_u64().unwrap();
    running.house.configure(&format!("{}[[upstream]]\nurl = \"{}\"\n", tasks("1m"), running.upstream.url()));
    running.house.restart().await;
    let resumed = running.upstream.resumed().await;
    let task = running.client.get(&running.id).await;
    assert!(before < 4000 && task["ttl"].as_u64().unwrap() > 60_000, "{before}, {task}");
    // Its first ttl is over.
    tokio::time::sleep(std::time::Duration::from_millis(before + 500)).await;
    assert_eq!(status_of(&running.client.get(&running.id).await), "working");
    answer(resumed, &running.call, &text("done")).await;
    running.client.until(&running.id, "completed").await;
}

#[tokio::test]
async fn a_call_whose_server_does_not_know_the_session_any_more_fails_and_says_what_is_not_known() {
    let mut running = Running::with("", json!({})).await;
    running.reach(&running.stream, "e2", 1).await;
    running.upstream.forget_sessions();
    running.house.restart().await;
    let task = running.client.until(&running.id, "failed").await;
    let why = task["statusMessage"].as_str().unwrap();
    assert!(why.contains("may or may not have had its effect") && why.contains("could not be resumed"), "{why}");
    assert_eq!(running.upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_call_is_resumed_although_its_client_has_ended_its_session() {
    let upstream = Upstream::sse().await;
    let auth = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";
    let mut house = House::before(&upstream.url(), auth).await;
    let ann = Client::new(&house.url).with("x-user", "ann");
    let first = ann.clone().initialize("2025-11-25", json!({})).await;
    let id = first.create_id("slow").await;
    let stream = upstream.held("slow").await.sse();
    let call = stream.seen.id();
    event(&stream, "e1", "").await;
    eventually(async || Some(first.delete().await.status).filter(|status| *status == 200)).await;
    let second = ann.initialize("2025-11-25", json!({})).await;
    written(&second).await;
    house.restart().await;
    let resumed = upstream.resumed().await;
    assert_eq!(resumed.seen.header("mcp-session-id"), "upstream-1");
    answer(resumed, &call, &text("done")).await;
    second.until(&id, "completed").await;
    // Nothing else is left in the session.
    let ended = upstream.wait_for(|seen| seen.method == http::Method::DELETE).await;
    assert_eq!(ended.header("mcp-session-id"), "upstream-1");
}
