//! The pool's sessions under faults and at its limits, and how many requests may be in flight.

use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    client::{LOG_LEVEL, Modern, TASKS, VERSION},
    kit::{Client, Gate, SseUpstream, Upstream, eventually, soon},
};

const AT_ONCE: &str = "[tasks]\ntask_after = \"0s\"\n";

fn deletes(upstream: &Upstream) -> usize {
    upstream.seen().iter().filter(|seen| seen.method == http::Method::DELETE).count()
}

async fn metric(gate: &Gate, name: &str) -> String {
    let url = format!("{}/metrics", gate.admin.as_ref().unwrap());
    let answer = Client::new(&url).send(http::Method::GET, "").await;
    let line =
        answer.text().lines().find_map(|line| line.strip_prefix(&format!("taskgate_{name} ")).map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {name} in {answer:?}"))
}

#[tokio::test]
async fn a_task_at_once_whose_session_the_server_has_forgotten_begins_again_in_another_one() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, AT_ONCE).await;
    let client = Modern::with_tasks(&gate.url);
    client.result("tools/list", json!({})).await;
    upstream.forget_sessions();
    let task = client.call("slow").await;
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    client.until(task["taskId"].as_str().unwrap(), "completed").await;
    assert_eq!((upstream.count("initialize"), upstream.count("slow")), (2, 2), "one was refused and one ran");
}

#[tokio::test]
async fn a_session_that_the_server_has_forgotten_makes_room_for_the_one_in_its_place() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, &format!("[server]\nmax_sessions = 1\n{AT_ONCE}")).await;
    let client = Modern::with_tasks(&gate.url);
    client.result("tools/list", json!({})).await;
    upstream.forget_sessions();
    client.result("tools/list", json!({})).await;
    upstream.forget_sessions();
    let task = client.call("slow").await;
    upstream.held("slow").await.result(r#"{"content":[]}"#);
    client.until(task["taskId"].as_str().unwrap(), "completed").await;
    assert_eq!(upstream.count("initialize"), 3);
}

/// A server over HTTP+SSE that leaves what it is asked by this name to the test.
async fn over_sse(held: &str) -> (SseUpstream, Gate, Modern) {
    let server = SseUpstream::new().await;
    server.hold(held);
    let gate = Gate::configured(&format!("[[upstream]]\nurl = {:?}\n", server.url())).await;
    let client = Modern::plain(&gate.url);
    (server, gate, client)
}

#[tokio::test]
async fn a_call_goes_to_another_session_where_a_server_over_http_and_sse_has_forgotten_its_own_and_keeps_the_stream_open()
 {
    for (status, why) in [(404, "Could not find session"), (400, "No transport found for sessionId")] {
        let (server, _gate, client) = over_sse("refused").await;
        let calling = tokio::spawn(async move { client.call("refused").await });
        server.held("refused").await.status(status, &[], why);
        let again = server.held("refused").await;
        server.answer(&again.seen, r#"{"content":[{"type":"text","text":"done"}]}"#).await;
        again.status(202, &[], "Accepted");
        assert_eq!(soon(calling).await.unwrap()["content"][0]["text"], "done");
        assert_eq!(server.count("initialize"), 2);
    }
}

#[tokio::test]
async fn a_server_over_http_and_sse_may_refuse_the_question_for_its_generation_in_any_words() {
    for (status, why) in [(404, "Not Found"), (400, "Bad Request: Server not initialized")] {
        let (server, _gate, client) = over_sse("server/discover").await;
        let calling = tokio::spawn(async move { client.call("echo").await });
        server.held("server/discover").await.status(status, &[], why);
        assert_eq!(soon(calling).await.unwrap()["resultType"], "complete");
        assert_eq!(server.count("initialize"), 1);
    }
}

#[tokio::test]
async fn a_call_that_may_be_asked_is_alone_in_its_session_also_while_the_server_is_told_from_which_level_it_logs() {
    let (server, gate, _) = over_sse("initialize").await;
    server.hold("server/discover");
    server.hold("logging/setLevel");
    server.hold("echo");
    let client = Modern::able(&gate.url, json!({ "elicitation": {}, "extensions": { TASKS: {} } }));
    let call = || {
        let (client, params) = (client.clone(), json!({ "name": "echo", "_meta": { LOG_LEVEL: "info" } }));
        tokio::spawn(async move { client.result("tools/call", params).await })
    };
    let first = call();
    server.held("server/discover").await.status(404, &[], "Not Found");
    agree_to_log(&server).await;
    let told = server.held("logging/setLevel").await;
    let second = call();
    agree_to_log(&server).await;
    for told in [told, server.held("logging/setLevel").await] {
        server.answer(&told.seen, "{}").await;
        told.status(202, &[], "Accepted");
    }
    let calls = [server.held("echo").await, server.held("echo").await];
    assert_ne!(calls[0].seen.uri, calls[1].seen.uri, "they have one session");
    for call in calls {
        server.answer(&call.seen, r#"{"content":[]}"#).await;
        call.status(202, &[], "Accepted");
    }
    for calling in [first, second] {
        soon(calling).await.unwrap();
    }
}

/// Answers `initialize` as a server does that can log.
async fn agree_to_log(server: &SseUpstream) {
    let opening = server.held("initialize").await;
    let info = r#"{"name":"old-server","version":"1.0"}"#;
    let agreed = format!(
        r#"{{"protocolVersion":"2024-11-05","capabilities":{{"tools":{{}},"logging":{{}}}},"serverInfo":{info}}}"#
    );
    server.answer(&opening.seen, &agreed).await;
    opening.status(202, &[], "Accepted");
}

#[tokio::test]
async fn a_call_says_that_it_was_not_sent_where_the_server_does_not_know_the_session_that_it_has_just_opened() {
    let upstream = Upstream::json().await;
    upstream.hold("notifications/initialized");
    let gate = Gate::with(&upstream, "").await;
    let client = Modern::plain(&gate.url);
    let calling = tokio::spawn(async move { client.refusal("tools/call", json!({ "name": "echo" })).await });
    upstream.held("notifications/initialized").await.status(404, &[], "which session?");
    let (_, code, why) = soon(calling).await.unwrap();
    assert!(code == -32603 && why.contains("was not sent") && !why.contains("an effect"), "{code} {why}");
    assert_eq!(upstream.count("echo"), 0);
}

/// A task at once, and the server before which it runs.
async fn slow_task() -> (Upstream, Gate, Modern, String) {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, AT_ONCE).await;
    let client = Modern::with_tasks(&gate.url);
    let task = client.call("slow").await["taskId"].as_str().unwrap().to_owned();
    (upstream, gate, client, task)
}

#[tokio::test]
async fn a_task_whose_answer_has_not_begun_when_the_server_forgets_its_session_fails_and_is_not_sent_again() {
    let (upstream, _gate, client, task) = slow_task().await;
    let _slow = upstream.held("slow").await;
    upstream.forget_sessions();
    client.result("tools/list", json!({})).await;
    let failed = client.until(&task, "failed").await;
    let why = failed["statusMessage"].as_str().unwrap();
    assert!(why.contains("may have had an effect") && !why.contains("initialize"), "{why}");
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_task_whose_answer_streams_goes_on_when_the_server_has_forgotten_its_session() {
    let (upstream, _gate, client, task) = slow_task().await;
    let slow = upstream.held("slow").await.sse();
    slow.progress(1).await;
    upstream.forget_sessions();
    client.result("tools/list", json!({})).await;
    // The server does not take the answer to it, and does not need it.
    slow.event(r#"{"jsonrpc":"2.0","id":"p1","method":"ping"}"#).await;
    upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == "p1").await;
    client.result("tools/list", json!({})).await;
    slow.result(r#"{"content":[{"type":"text","text":"done"}]}"#).await;
    let done = client.until(&task, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "done");
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_task_whose_stream_breaks_after_the_server_has_forgotten_its_session_fails() {
    let (upstream, _gate, client, task) = slow_task().await;
    let slow = upstream.held("slow").await.sse();
    slow.progress(1).await;
    upstream.forget_sessions();
    client.result("tools/list", json!({})).await;
    slow.cut().await;
    client.until(&task, "failed").await;
    assert_eq!(upstream.count("slow"), 1);
}

#[tokio::test]
async fn a_task_that_is_refused_in_its_second_session_too_fails() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, AT_ONCE).await;
    let client = Modern::with_tasks(&gate.url);
    upstream.hold("slow");
    let task = client.call("slow").await;
    for _ in 0..2 {
        upstream.held("slow").await.status(404, &[("content-type", "text/plain")], "no such session");
    }
    client.until(task["taskId"].as_str().unwrap(), "failed").await;
    assert_eq!(upstream.count("slow"), 2);
}

#[tokio::test]
async fn a_server_that_says_with_400_that_it_has_forgotten_the_session_gets_another_one_too() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    client.result("tools/list", json!({})).await;
    upstream.hold("slow");
    let calling = tokio::spawn(async move { client.call("slow").await });
    let error = json!({ "code": -32000, "message": "Bad Request: No valid session ID provided" });
    let body = json!({ "jsonrpc": "2.0", "error": error, "id": null }).to_string();
    let refused = upstream.held("slow").await;
    let session = refused.seen.header("mcp-session-id").to_owned();
    refused.status(400, &[("content-type", "application/json")], &body);
    let again = upstream.held("slow").await;
    assert_ne!(again.seen.header("mcp-session-id"), session);
    again.result(r#"{"content":[]}"#);
    assert_eq!(soon(calling).await.unwrap()["resultType"], "complete");
    assert_eq!(upstream.count("initialize"), 2);
}

#[tokio::test]
async fn callers_that_wait_for_one_handshake_share_its_failure() {
    let upstream = Upstream::json().await;
    upstream.hold("initialize");
    let gate = Gate::with(&upstream, "[server]\nadmin = \"127.0.0.1:0\"\n").await;
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let client = Modern::plain(&gate.url);
            tokio::spawn(async move { client.answer("tools/call", json!({ "name": "echo" })).await })
        })
        .collect();
    eventually(async || (metric(&gate, "sessionless_requests").await == "5").then_some(())).await;
    upstream.held("initialize").await.status(500, &[], "");
    for call in calls {
        assert_eq!(soon(call).await.unwrap().json()["error"]["code"], -32603);
    }
    assert_eq!(upstream.count("initialize"), 1);
    assert_eq!(metric(&gate, "sessionless_requests").await, "0");
}

#[tokio::test]
async fn max_sessions_bounds_the_sessions_of_all_upstreams_and_an_idle_one_gives_way_to_one_of_another() {
    let (one, two) = (Upstream::json().await, Upstream::json().await);
    let block =
        |path: &str, upstream: &Upstream| format!("[[upstream]]\npath = {path:?}\nurl = {:?}\n", upstream.url());
    let toml = format!("[server]\nmax_sessions = 1\n{}{}", block("/one", &one), block("/two", &two));
    let gate = Gate::configured(&toml).await;
    let (first, second) = (Modern::plain(&gate.urls[0]), Modern::plain(&gate.urls[1]));
    first.call("echo").await;
    second.call("echo").await;
    eventually(async || (deletes(&one) == 1).then_some(())).await;
    let calling = tokio::spawn(async move { second.call("slow").await });
    let slow = two.held("slow").await;
    let (status, code, why) = first.refusal("tools/call", json!({ "name": "echo" })).await;
    assert!((status, code) == (200, -32603) && why.contains("server.max_sessions = 1"), "{why}");
    slow.result(r#"{"content":[]}"#);
    soon(calling).await.unwrap();
    eventually(async || {
        (first.answer("tools/call", json!({ "name": "echo" })).await.json()["error"].is_null()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_session_of_one_call_ends_when_taskgate_stops() {
    let upstream = Upstream::sse().await;
    let toml = format!(
        "[server]\ndrain_timeout = \"1ms\"\n[[upstream]]\nurl = {:?}\nsessions = \"request\"\n",
        upstream.url()
    );
    let gate = Gate::configured(&toml).await;
    let client = Modern::plain(&gate.url);
    let calling = tokio::spawn(async move { client.answer("tools/call", json!({ "name": "slow" })).await });
    let _slow = upstream.held("slow").await.sse();
    gate.stop().await;
    assert_eq!((upstream.count("initialize"), deletes(&upstream)), (1, 1));
    assert_eq!(soon(calling).await.unwrap().json()["error"]["code"], -32603);
}

#[tokio::test]
async fn answers_on_the_get_stream_and_the_end_of_a_session_carry_the_credential_that_opened_it() {
    for (sessions, header) in [("owner", "authorization"), ("request", "authorization"), ("owner", "x-api-key")] {
        let upstream = Upstream::sse().await;
        let toml = format!("[[upstream]]\nurl = {:?}\nsessions = {sessions:?}\n", upstream.url());
        let gate = Gate::configured(&toml).await;
        let client = Modern::plain(&gate.url);
        let client = Modern { http: client.http.with(header, "Bearer ann"), ..client };
        let calling = tokio::spawn(async move { client.call("slow").await });
        let (slow, stream) = (upstream.held("slow").await, upstream.get_stream().await);
        for asked in ["ping", "unknown"] {
            stream.event(&format!(r#"{{"jsonrpc":"2.0","id":"{asked}","method":"{asked}"}}"#)).await;
            let answer = upstream.wait_for(|seen| seen.rpc().is_empty() && seen.json()["id"] == asked).await;
            assert_eq!(answer.header(header), "Bearer ann", "{asked}");
        }
        slow.result(r#"{"content":[]}"#);
        soon(calling).await.unwrap();
        gate.stop().await;
        let end = upstream.wait_for(|seen| seen.method == http::Method::DELETE).await;
        assert_eq!(end.header(header), "Bearer ann", "{sessions}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_flight_of_one_owner_are_bounded_and_keep_their_places_when_the_handshake_is_over() {
    let options = crate::kit::Options { sessions: false, ..crate::kit::Options::default() };
    let upstream = Upstream::start(options).await;
    upstream.hold("initialize");
    let gate = Gate::with(&upstream, "[server]\nadmin = \"127.0.0.1:0\"\n").await;
    let client = Modern::plain(&gate.url);
    let connection = |tool: &str| {
        let headers = [("mcp-protocol-version", VERSION), ("mcp-method", "tools/call"), ("mcp-name", tool)];
        headers.iter().fold(Client::http2(&gate.url), |http, (name, value)| http.with(name, value))
    };
    let mut held = Vec::new();
    for _ in 0..16 {
        let http = connection("slow");
        held.extend((0..64).map(|_| http.stream("tools/call", client.params(json!({ "name": "slow" })))));
    }
    let counts = async |wanted: &str| {
        eventually(async || (metric(&gate, "sessionless_requests").await == wanted).then_some(())).await;
    };
    counts("1024").await;
    let refused = (200, -32603, "limit reached: 1024 requests of yours are in flight; wait for some of them to end");
    let (status, code, why) = client.refusal("tools/call", json!({ "name": "echo" })).await;
    assert_eq!((status, code, &*why), refused);
    assert_eq!(metric(&gate, "requests_refused_total{reason=\"sessionless_requests\"}").await, "1");
    // Whose task it is would have to be asked.
    let asking = Modern::with_tasks(&gate.url).refusal("tasks/get", json!({ "taskId": Uuid::new_v4() })).await;
    assert_eq!((asking.0, asking.1, &*asking.2), refused);

    // While the requests go on to their calls, others look for a place.
    let over = CancellationToken::new();
    let others: Vec<_> = (0..128)
        .map(|_| {
            let (over, http, params) = (over.clone(), connection("echo"), client.params(json!({ "name": "echo" })));
            tokio::spawn(async move {
                while !over.is_cancelled() {
                    let (status, code, why) = http.answer("tools/call", params.clone()).await.refusal();
                    assert_eq!((status, code, &*why), refused);
                }
            })
        })
        .collect();
    let capabilities = r#""capabilities":{"tools":{}},"serverInfo":{"name":"test-server","version":"1.0"}"#;
    let initialize = upstream.held("initialize").await;
    initialize.result(&format!(r#"{{"protocolVersion":"2025-11-25",{capabilities}}}"#));
    eventually(async || (upstream.count("slow") == 1024).then_some(())).await;
    over.cancel();
    for other in others {
        soon(other).await.unwrap();
    }
    drop(held);
    counts("0").await;
    assert_eq!(client.call("echo").await["resultType"], "complete");
}

#[tokio::test]
async fn a_server_is_told_once_of_a_resource_that_several_subscriptions_name_and_again_when_the_last_has_ended() {
    let capabilities = json!({ "resources": { "subscribe": true } });
    let options = crate::kit::Options { capabilities, ..crate::kit::Options::default() };
    let upstream = Upstream::start(options).await;
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        upstream.hold(method);
    }
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    let subscribe = async || {
        let wanted = json!({ "notifications": { "resourceSubscriptions": ["file:///a"] } });
        let mut stream = client.stream("subscriptions/listen", wanted);
        stream.message().await;
        stream
    };
    let (first, second) = (subscribe().await, subscribe().await);
    upstream.held("resources/subscribe").await.result("{}");
    drop(first);
    // The server has not answered yet that the last one has ended when another one begins.
    drop(second);
    let unsubscribing = upstream.held("resources/unsubscribe").await;
    let _third = subscribe().await;
    assert_eq!(upstream.count("resources/subscribe"), 1, "it waits for the answer");
    unsubscribing.result("{}");
    upstream.held("resources/subscribe").await.result("{}");
    assert_eq!((upstream.count("resources/subscribe"), upstream.count("resources/unsubscribe")), (2, 1));
}
