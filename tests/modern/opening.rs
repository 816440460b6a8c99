//! A call that can be a task waits for its session for a while, and is a task then, which gets that very session.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    client::{Modern, TASKS},
    kit::{Children, Gate, Options, Script, Upstream, eventually, soon},
};

/// A client that needs a session of its own, whose handshake waits for the test. `toml` goes on with the upstream.
async fn opening(toml: &str) -> (Upstream, Gate, Modern) {
    let upstream = Upstream::start(Options { sessions: false, ..Options::default() }).await;
    let gate = Gate::configured(&format!("[[upstream]]\nurl = {:?}\n{toml}", upstream.url())).await;
    // From here on it is known which generation the server is of.
    Modern::with_tasks(&gate.url).call("echo").await;
    upstream.hold("initialize");
    // What it can be asked keeps it apart from the session that is open.
    let capabilities = json!({ "elicitation": {}, "extensions": { TASKS: {} } });
    let client = Modern::able(&gate.url, capabilities);
    (upstream, gate, client)
}

const AGREED: &str =
    r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"server","version":"1"}}"#;

/// Has a client call, and its session open only after so long.
async fn opening_after(delay: Duration, upstream: &Upstream, client: &Modern) -> JoinHandle<Value> {
    let client = client.clone();
    let calling = tokio::spawn(async move { client.call("slow").await });
    let initialize = upstream.held("initialize").await;
    tokio::time::sleep(delay).await;
    initialize.result(AGREED);
    calling
}

#[tokio::test]
async fn a_call_for_which_no_session_opens_in_time_is_a_task_that_runs_in_the_one_that_was_being_opened() {
    for sessions in ["owner", "request"] {
        for toml in ["task_after = \"0s\"", "task_after = \"300ms\"", "support = \"required\""] {
            let (upstream, _gate, client) =
                opening(&format!("sessions = {sessions:?}\n[upstream.tools.slow]\n{toml}\n")).await;
            let initialized = upstream.count("initialize");
            let task = client.call("slow").await;
            assert_eq!(task["resultType"], "task", "{sessions} {toml}");
            upstream.held("initialize").await.result(AGREED);
            upstream.held("slow").await.result(r#"{"content":[]}"#);
            client.until(task["taskId"].as_str().unwrap(), "completed").await;
            let counts = (upstream.count("slow"), upstream.count("initialize") - initialized);
            assert_eq!(counts, (1, 1), "{sessions} {toml}");
        }
    }
}

#[tokio::test]
async fn a_call_that_may_become_no_task_goes_on_when_its_session_is_open() {
    let toml = "[upstream.tools.echo]\ntask_after = \"0s\"\n[upstream.tools.slow]\ntask_after = \"300ms\"\n[rate]\ncreations = \"1/h\"\n";
    let (upstream, _gate, client) = opening(toml).await;
    let calling = opening_after(Duration::from_millis(1500), &upstream, &client).await;
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    assert_eq!(soon(calling).await.unwrap()["resultType"], "complete");
}

#[tokio::test]
async fn a_refusal_of_the_session_is_told_to_the_client_of_a_call_that_is_no_task_yet() {
    for task_after in ["20s", "0s"] {
        let (upstream, _gate, client) = opening(&format!("[upstream.tools.slow]\ntask_after = {task_after:?}\n")).await;
        let refused = async || {
            let calling = client.send("tools/call", json!({ "name": "slow" }));
            let refusing = async {
                upstream.held("initialize").await.status(401, &[("www-authenticate", "Bearer scope=\"all\"")], "");
            };
            let answer = tokio::join!(calling, refusing).0;
            // A machine with other work may take longer than the second after which the call is a task.
            (task_after != "0s" || answer.status.as_u16() != 200).then_some(answer)
        };
        let answer = eventually(refused).await;
        assert_eq!((answer.status.as_u16(), answer.header("www-authenticate")), (401, "Bearer scope=\"all\""));
    }
}

#[tokio::test]
async fn what_a_call_whose_client_leaves_has_begun_to_open_is_given_up() {
    let (upstream, _gate, client) = opening("[upstream.tools.slow]\ntask_after = \"20s\"\n").await;
    let leaving = tokio::spawn({
        let client = client.clone();
        async move { client.call("slow").await }
    });
    let initialize = upstream.held("initialize").await;
    leaving.abort();
    initialize.abandoned().await;
}

#[tokio::test]
async fn the_timeout_of_a_call_begins_when_it_is_sent() {
    let (upstream, _gate, client) = opening("[upstream.tools.slow]\ntimeout = \"6s\"\ntask_after = \"5s\"\n").await;
    let begun = Instant::now();
    let calling = opening_after(Duration::from_secs(4), &upstream, &client).await;
    let slow = upstream.held("slow").await;
    let task = soon(calling).await.unwrap();
    assert_eq!(task["resultType"], "task", "{task}");
    tokio::time::sleep(Duration::from_millis(6300).saturating_sub(begun.elapsed())).await;
    slow.result(r#"{"content":[]}"#);
    client.until(task["taskId"].as_str().unwrap(), "completed").await;
}

#[tokio::test]
async fn the_ttl_of_a_task_covers_the_timeout_of_its_call_however_long_its_session_takes_to_open() {
    let toml =
        "[upstream.tools.slow]\ntask_after = \"0s\"\ntimeout = \"4s\"\nttl = \"1s\"\npoll_interval = \"100ms\"\n";
    let (upstream, _gate, client) = opening(toml).await;
    let task = client.call("slow").await;
    assert_eq!(task["ttlMs"], 5000, "the timeout, and ten polls to collect the result");
    let initialize = upstream.held("initialize").await;
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let opened_after = u64::try_from(begun.elapsed().as_millis()).unwrap();
    initialize.result(AGREED);
    let slow = upstream.held("slow").await;
    let ttl = client.get(task["taskId"].as_str().unwrap()).await["ttlMs"].as_u64().unwrap();
    assert!(ttl >= 5000 + opened_after, "{ttl} ms, and the session was open after {opened_after} ms");
    slow.result(r#"{"content":[]}"#);
    client.until(task["taskId"].as_str().unwrap(), "completed").await;
}

#[tokio::test]
async fn a_task_that_is_cancelled_gives_up_the_session_that_is_being_opened_for_it() {
    let (upstream, _gate, client) = opening("[upstream.tools.slow]\ntask_after = \"300ms\"\n").await;
    let task = client.call("slow").await;
    let initialize = upstream.held("initialize").await;
    client.result("tasks/cancel", json!({ "taskId": task["taskId"] })).await;
    initialize.abandoned().await;
}

#[tokio::test]
async fn a_task_whose_session_failed_to_open_while_it_waited_for_its_turn_opens_another() {
    let (upstream, gate, client) = opening("[upstream.tools.slow]\ntask_after = \"0s\"\nmax_running = 1\n").await;
    let other = Modern::with_tasks(&gate.url);
    let first = other.call("slow").await;
    let running = upstream.held("slow").await;
    let queued = client.call("slow").await;
    assert!(queued["statusMessage"].as_str().unwrap().starts_with("Queued"), "{queued}");
    upstream.held("initialize").await.status(503, &[], "");
    // Either waits for the handshake that fails, or comes after it and begins another.
    let echoing = client.answer("tools/call", json!({ "name": "echo", "arguments": {} }));
    tokio::select! {
        refused = echoing => assert!(refused.json()["error"].is_object(), "{refused:?}"),
        again = upstream.held("initialize") => again.status(503, &[], ""),
    }
    running.result(r#"{"content":[]}"#);
    other.until(first["taskId"].as_str().unwrap(), "completed").await;
    upstream.held("initialize").await.result(AGREED);
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    client.until(queued["taskId"].as_str().unwrap(), "completed").await;
}

#[tokio::test]
async fn a_task_that_waits_for_its_turn_keeps_no_process_from_the_others() {
    let children = Children::new(Script { setup: "", tools: "", after: "" });
    let users = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";
    let tasks = "[tasks]\ntask_after = \"0s\"\nmax_running = 1\n[[upstream]]\nmax_children = 2\n";
    let gate = children.gate(&format!("{users}{tasks}")).await;
    let [ann, bob, eve] = ["ann", "bob", "eve"].map(|user| {
        let client = Modern::with_tasks(&gate.url);
        Modern { http: client.http.with("x-user", user), ..client }
    });
    ann.call("hold").await;
    children.only().await.line("hold").await;
    let queued = bob.call("hold").await;
    assert!(queued["statusMessage"].as_str().unwrap().starts_with("Queued"), "{queued}");
    let task = eve.call("pid").await;
    eve.until(task["taskId"].as_str().unwrap(), "completed").await;
    assert_eq!(children.started().len(), 2, "ann's and eve's");
}
