//! Subscriptions while taskgate drains.

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    client::Modern,
    kit::{Gate, Held, Stream, Upstream, soon},
};

const DONE: &str = r#"{"resultType":"complete","content":[]}"#;
/// Longer than every test.
const LONG: &str = "[server]\ndrain_timeout = \"1h\"\n[tasks]\ntask_after = \"0s\"\n";
const HEADER: &str = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";

/// Returns a client who is this user.
fn user(gate: &Gate, name: &str) -> Modern {
    let client = Modern::with_tasks(&gate.url);
    Modern { http: client.http.with("x-user", name), ..client }
}

/// Calls a tool that waits for the test. Returns the task's id and the call at the server.
async fn running(upstream: &Upstream, client: &Modern) -> (Value, Held) {
    let id = client.call("slow").await["taskId"].clone();
    (id, upstream.held("slow").await)
}

fn listen(client: &Modern, filter: &Value) -> Stream {
    client.stream("subscriptions/listen", json!({ "notifications": filter }))
}

/// Begins to stop taskgate; it drains when this returns, as a subscription without a task has ended, with a result.
async fn stop(gate: Gate) -> JoinHandle<()> {
    let mut bystander = listen(&user(&gate, "bystander"), &json!({ "taskIds": ["unknown"] }));
    assert_eq!(bystander.message().await["method"], "notifications/subscriptions/acknowledged");
    let stopping = tokio::spawn(gate.stop());
    ends(bystander).await;
    stopping
}

/// Checks that a subscription tells that a task ends with this status.
async fn tells(stream: &mut Stream, status: &str) {
    let told = loop {
        let told = stream.message().await;
        if told["params"]["status"] != "working" {
            break told;
        }
    };
    assert_eq!((&told["method"], &told["params"]["status"]), (&json!("notifications/tasks"), &json!(status)), "{told}");
}

/// Checks that a subscription ends next, gracefully.
async fn ends(mut stream: Stream) {
    let cancelled = stream.message().await;
    assert_eq!(cancelled["method"], "notifications/cancelled", "{cancelled}");
    let end = stream.message().await;
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&cancelled["params"]["requestId"], &json!("complete")));
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_subscription_stays_while_a_task_of_it_runs_and_ends_when_it_has_told_the_end_which_the_drain_waits_for() {
    for is_modern in [false, true] {
        let able = json!({ "tools": { "listChanged": true } });
        let upstream = if is_modern { Upstream::modern(able).await } else { Upstream::json().await };
        let gate = Gate::with(&upstream, LONG).await;
        let client = Modern::with_tasks(&gate.url);
        let ((first, one), (second, two)) = (running(&upstream, &client).await, running(&upstream, &client).await);
        let mut to_tasks = listen(&client, &json!({ "taskIds": [first, second] }));
        let mut to_more = listen(&client, &json!({ "taskIds": [first, second], "toolsListChanged": true }));
        let theirs = if is_modern { Some(upstream.held("subscriptions/listen").await.sse()) } else { None };
        if let Some(theirs) = &theirs {
            let meta = json!({ "io.modelcontextprotocol/subscriptionId": theirs.seen.json()["id"] });
            let params = json!({ "_meta": meta, "notifications": {} });
            theirs.notify("notifications/subscriptions/acknowledged", params).await;
        }
        for stream in [&mut to_tasks, &mut to_more] {
            assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
        }
        let stopping = stop(gate).await;
        for call in [one, two] {
            call.result(DONE);
            tells(&mut to_tasks, "completed").await;
            tells(&mut to_more, "completed").await;
        }
        ends(to_tasks).await;
        ends(to_more).await;
        soon(stopping).await.unwrap();
    }
}

#[tokio::test]
async fn a_subscription_that_begins_in_a_drain_tells_of_a_task_that_runs() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, LONG).await;
    let client = Modern::with_tasks(&gate.url);
    let (task, call) = running(&upstream, &client).await;
    let stopping = stop(gate).await;
    let mut stream = listen(&client, &json!({ "taskIds": [task] }));
    assert_eq!(stream.message().await["params"]["notifications"], json!({ "taskIds": [task] }));
    call.result(DONE);
    tells(&mut stream, "completed").await;
    ends(stream).await;
    soon(stopping).await.unwrap();
}

#[tokio::test]
async fn in_a_drain_a_subscription_without_a_running_task_of_its_owner_is_refused_and_its_client_told_when_to_return() {
    for is_modern in [false, true] {
        let upstream = if is_modern { Upstream::modern(json!({})).await } else { Upstream::sse().await };
        let gate = Gate::with(&upstream, &format!("{LONG}{HEADER}")).await;
        let (ann, bob) = (user(&gate, "ann"), user(&gate, "bob"));
        let ended = bob.call("echo").await["taskId"].clone();
        bob.until(ended.as_str().unwrap(), "completed").await;
        let (task, call) = running(&upstream, &ann).await;
        let stopping = stop(gate).await;
        for filter in [json!({}), json!({ "toolsListChanged": true }), json!({ "taskIds": [ended, task] })] {
            let refused = bob.answer("subscriptions/listen", json!({ "notifications": filter })).await;
            let why = "taskgate is stopping; try again when it is back".to_owned();
            assert_eq!((refused.refusal(), refused.header("retry-after")), ((503, -32603, why), "5"), "{filter}");
        }
        call.result(DONE);
        ann.until(task.as_str().unwrap(), "completed").await;
        soon(stopping).await.unwrap();
    }
}

#[tokio::test]
async fn a_subscription_tells_of_a_task_that_drain_timeout_has_failed_and_ends() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, &LONG.replace("1h", "1ms")).await;
    let client = Modern::with_tasks(&gate.url);
    let (task, _call) = running(&upstream, &client).await;
    let mut stream = listen(&client, &json!({ "taskIds": [task] }));
    assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
    let stopping = tokio::spawn(gate.stop());
    tells(&mut stream, "failed").await;
    ends(stream).await;
    soon(stopping).await.unwrap();
}

#[tokio::test]
async fn a_subscription_to_a_task_that_the_next_process_goes_on_with_ends_with_the_drain() {
    let (upstream, folder) = (Upstream::sse().await, tempfile::tempdir().unwrap());
    let store = format!("[store]\nkind = \"file\"\npath = {:?}\n", folder.path().join("tasks.db"));
    let gate = Gate::with(&upstream, &format!("{}max_running = 1\n{store}", LONG.replace("1h", "1ms"))).await;
    let client = Modern::with_tasks(&gate.url);
    let (task, _call) = running(&upstream, &client).await;
    let waits = client.call("slow").await["taskId"].clone();
    let (mut to_both, mut to_one) =
        (listen(&client, &json!({ "taskIds": [task, waits] })), listen(&client, &json!({ "taskIds": [waits] })));
    for stream in [&mut to_both, &mut to_one] {
        assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
    }
    let stopping = tokio::spawn(gate.stop());
    tells(&mut to_both, "failed").await;
    ends(to_both).await;
    ends(to_one).await;
    soon(stopping).await.unwrap();
}
