//! What a server speaks is found out once, and again when it has changed.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;

use crate::{
    client::{Modern, TASKS},
    kit::{Client, Gate, Options, Upstream, soon},
};

const NAMED: &str = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";

#[tokio::test]
async fn the_generation_is_asked_for_once() {
    for upstream in [Upstream::modern(json!({ "tools": {} })).await, Upstream::json().await] {
        let gate = Gate::before(&upstream).await;
        let client = Modern::plain(&gate.url);
        for _ in 0..3 {
            client.call("echo").await;
        }
        assert_eq!(upstream.count("server/discover"), 1);
    }
}

#[tokio::test]
async fn the_refusal_of_a_revision_names_no_older_one_before_the_server_is_known_to_speak_it() {
    for upstream in [Upstream::modern(json!({ "tools": {} })).await, Upstream::json().await] {
        let gate = Gate::before(&upstream).await;
        let client = Modern::plain(&gate.url);
        let named = async || {
            let version = json!({ "io.modelcontextprotocol/protocolVersion": "2027-01-01" });
            let params = client.params(json!({ "_meta": version }));
            let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params });
            let http = client.http.with("mcp-protocol-version", "2027-01-01").with("mcp-method", "tools/list");
            http.post(request.to_string()).await.json()["error"]["data"]["supported"].clone()
        };
        assert_eq!(named().await, json!(["2026-07-28"]));
        client.call("echo").await;
        let is_legacy = upstream.count("initialize") > 0;
        assert_eq!(named().await.as_array().unwrap().len() > 1, is_legacy);
    }
}

#[tokio::test]
async fn an_older_revision_in_meta_is_refused_with_those_of_the_server_where_that_has_no_sessions() {
    for (upstream, is_refused) in
        [(Upstream::modern(json!({ "tools": {} })).await, true), (Upstream::json().await, false)]
    {
        let gate = Gate::before(&upstream).await;
        let client = Modern::plain(&gate.url);
        client.call("echo").await;
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2025-11-25" });
        let params = client.params(json!({ "_meta": meta }));
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params });
        let http = client.http.with("mcp-protocol-version", "2025-11-25").with("mcp-method", "tools/list");
        let answer = http.post(request.to_string()).await;
        assert_eq!((answer.status.as_u16(), answer.json()["id"].clone()), (400, json!(1)), "{answer:?}");
        let error = answer.json()["error"].clone();
        if is_refused {
            assert_eq!((&error["code"], &error["data"]["supported"]), (&json!(-32022), &json!(["2026-07-28"])));
        } else {
            assert!(error["message"].as_str().unwrap().contains("start with initialize"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_server_of_both_generations_is_modern_for_modern_clients_and_keeps_its_sessions_for_legacy_ones() {
    let upstream = Upstream::start(Options { modern: true, ..Options::default() }).await;
    let gate = Gate::before(&upstream).await;
    Modern::plain(&gate.url).call("echo").await;
    assert_eq!(upstream.count("initialize"), 0);
    let legacy = Client::connect(&gate.url).await;
    legacy.ask("tools/call", json!({ "name": "echo", "arguments": {} })).await;
    assert_eq!(upstream.count("initialize"), 1);
    let call = upstream.seen().into_iter().rfind(|seen| seen.rpc() == "tools/call").unwrap();
    assert!(!call.header("mcp-session-id").is_empty());
}

#[tokio::test]
async fn a_legacy_client_of_a_server_that_is_only_modern_is_told_so() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], -32022, "{error}");
    assert_eq!(error["data"]["supported"], json!(["2026-07-28"]), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("2026-07-28") && message.contains("initialize"), "{message}");
}

#[tokio::test]
async fn a_server_that_takes_the_place_of_one_of_the_other_generation_is_found_out_again() {
    for modern_first in [true, false] {
        let modern = || Options { modern: true, sessions: false, ..Options::default() };
        let kinds = if modern_first { [modern(), Options::default()] } else { [Options::default(), modern()] };
        let [first, second] = kinds;
        let upstream = Upstream::start(first).await;
        let gate = Gate::before(&upstream).await;
        let client = Modern::plain(&gate.url);
        client.call("echo").await;
        upstream.stop().await;
        let second = Upstream::start_in_place_of(&upstream, second).await;
        let result = client.call("echo").await;
        assert_eq!(result["resultType"], "complete");
        assert_eq!(second.count("echo"), 2, "refused once, and run once");
        assert_eq!(second.count("initialize"), usize::from(modern_first));
    }
}

#[tokio::test]
async fn what_a_server_with_sessions_is_that_has_taken_the_place_of_a_modern_one_is_told_at_once() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::plain(&gate.url);
    client.call("echo").await;
    upstream.stop().await;
    let legacy = Upstream::start_in_place_of(&upstream, Options::default()).await;
    let told = client.result("server/discover", json!({})).await;
    assert_eq!(told["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "test-server", "{told}");
    assert_eq!(legacy.count("server/discover"), 2, "passed and refused, and asked for what the server is");
}

#[tokio::test]
async fn a_server_that_has_become_modern_runs_the_call_of_one_client_although_another_has_a_session() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    Modern::plain(&gate.url).call("echo").await;
    let asked = Modern::able(&gate.url, json!({ "elicitation": {} }));
    asked.call("echo").await;
    assert_eq!(upstream.count("initialize"), 2);
    upstream.stop().await;
    let modern = Options { modern: true, sessions: false, ..Options::default() };
    let modern = Upstream::start_in_place_of(&upstream, modern).await;
    asked.call("echo").await;
    assert_eq!(modern.count("echo"), 2, "refused once, and run once");
    for client in [asked, Modern::plain(&gate.url)] {
        client.call("echo").await;
    }
    assert_eq!(modern.count("echo"), 4, "the session of the server before gets none");
}

#[tokio::test]
async fn a_task_goes_up_in_the_form_of_its_server_while_that_one_is_in_doubt() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let gate = Gate::with(&upstream, &format!("{NAMED}[tasks]\ntask_after = \"0s\"\n")).await;
    let of = |name| Modern { http: Client::new(&gate.url).with("x-user", name), capabilities: json!({}) };
    let (ann, bob) = (of("ann"), of("bob"));
    ann.call("echo").await;
    // ann has a link, and bob gets none: the server is asked anew what it is.
    upstream.hold("server/discover");
    let calling = tokio::spawn(async move { bob.refusal("tools/call", json!({ "name": "echo" })).await });
    upstream.held("server/discover").await.status(500, &[], "");
    assert_eq!(soon(calling).await.unwrap().1, -32603);
    let ann = Modern { capabilities: json!({ "extensions": { TASKS: {} } }), ..ann };
    let task = ann.call("echo").await;
    ann.until(task["taskId"].as_str().unwrap(), "completed").await;
    assert_eq!(upstream.count("server/discover"), 2);
}

#[tokio::test]
async fn the_code_of_a_modern_server_in_a_legacy_servers_error_is_replaced_and_its_session_stays() {
    for (status, code) in [(200, -32022), (200, -32020), (400, -32020), (400, -32022)] {
        let upstream = Upstream::json().await;
        let gate = Gate::before(&upstream).await;
        let client = Modern::plain(&gate.url);
        let calling = tokio::spawn({
            let client = client.clone();
            async move { client.refusal("tools/call", json!({ "name": "slow" })).await }
        });
        let held = upstream.held("slow").await;
        let body = held.response(&format!(r#""error":{{"code":{code},"message":"its own"}}"#));
        held.status(status, &[("content-type", "application/json")], &body);
        assert_eq!(soon(calling).await.unwrap(), (200, -32603, "its own".to_owned()));
        client.call("echo").await;
        assert_eq!((upstream.count("slow"), upstream.count("initialize")), (1, 1), "{status} {code}");
    }
}

#[tokio::test]
async fn guesses_of_ids_ask_an_unknown_server_no_oftener_than_look_ups_may_fail() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", server.local_addr().unwrap());
    let connected = Arc::new(AtomicUsize::new(0));
    // Each connection ends at once.
    let counting = tokio::spawn({
        let connected = Arc::clone(&connected);
        async move {
            while server.accept().await.is_ok() {
                connected.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let gate = Gate::to(&url, "[rate]\nfailed_lookups = \"1/h\"\n").await;
    let guess = |credential: usize| {
        let http = Client::new(&gate.url).with("authorization", &format!("Bearer {credential}"));
        let client = Modern { http, capabilities: json!({ "extensions": { TASKS: {} } }) };
        async move { client.refusal("tasks/get", json!({ "taskId": "unknown" })).await }
    };
    assert_eq!(guess(0).await.1, -32602);
    let each = connected.load(Ordering::Relaxed);
    assert!(each > 0, "the server is asked");
    let answers = futures_util::future::join_all((1..=30).map(guess)).await;
    let refused = answers.iter().filter(|(status, ..)| *status == 429).count();
    assert_eq!((answers.len(), refused), (30, 22), "{answers:?}");
    assert!(connected.load(Ordering::Relaxed) <= 9 * each, "{connected:?}");
    counting.abort();
}

#[tokio::test]
async fn what_is_known_of_a_server_stays_when_it_refuses_a_credential() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    Modern::plain(&gate.url).call("echo").await;
    upstream.hold("initialize");
    let other = Modern::able(&gate.url, json!({ "elicitation": {} }));
    for _ in 0..2 {
        let other = other.clone();
        let calling = tokio::spawn(async move { other.send("tools/call", json!({ "name": "echo" })).await });
        upstream.held("initialize").await.status(401, &[], "");
        assert_eq!(soon(calling).await.unwrap().status, 401);
    }
    assert_eq!(upstream.count("server/discover"), 1);
}
