//! One session of a client is one session of the upstream, under two names.

use serde_json::json;

use crate::kit::{Answer, Client, Gate, Options, Upstream, house, soon};

#[tokio::test]
async fn client_and_upstream_each_see_a_session_id_of_their_own() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    let answer = client.answer("ping", json!({})).await;
    assert!(client.session().len() >= 32 && client.session().bytes().all(|b| (0x21..=0x7e).contains(&b)));
    assert!(!answer.headers.iter().any(|(_, value)| value.to_str().unwrap_or("").contains("upstream-")));
    let seen = upstream.seen();
    assert_eq!(seen[0].header("mcp-session-id"), "");
    assert!(seen[1..].iter().all(|seen| seen.header("mcp-session-id") == "upstream-1"), "{seen:?}");
}

#[tokio::test]
async fn messages_of_two_clients_never_mix() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    assert_ne!(ann.session(), bob.session());
    let mut for_ann = ann.get_stream().await;
    let to_ann = upstream.get_stream().await;
    let mut for_bob = bob.get_stream().await;
    let to_bob = upstream.get_stream().await;
    assert_ne!(to_ann.seen.header("mcp-session-id"), to_bob.seen.header("mcp-session-id"));
    // Even where the upstream confuses its numbers, which are the same in both sessions.
    let mut call = ann.stream("tools/call", json!({ "name": "slow", "_meta": { "progressToken": "a" } }));
    let slow = upstream.held("slow").await.sse();
    let (id, token) = (slow.seen.id(), slow.seen.json()["params"]["_meta"]["progressToken"].take());
    to_bob.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"stolen":true}}}}"#)).await;
    to_bob.notify("notifications/progress", json!({ "progressToken": token, "progress": 9 })).await;
    to_bob.notify("notifications/message", json!({ "data": "bob" })).await;
    to_ann.notify("notifications/message", json!({ "data": "ann" })).await;
    slow.result(r#"{"for":"ann"}"#).await;
    assert_eq!(for_bob.message().await["params"]["data"], "bob");
    assert_eq!(for_ann.message().await["params"]["data"], "ann");
    assert_eq!(call.message().await["result"], json!({ "for": "ann" }));
}

#[tokio::test]
async fn a_server_whose_answer_to_initialize_is_of_no_use_has_agreed_on_no_revision_and_its_session_ends() {
    let upstream = Upstream::json().await;
    upstream.hold("initialize");
    let gate = Gate::before(&upstream).await;
    let client = Client::new(&gate.url);
    let asked = tokio::spawn(async move {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
        client.error("initialize", params).await
    });
    let initialize = upstream.held("initialize").await;
    let twice = r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tools":{}}}"#;
    let answer = initialize.response(twice);
    initialize.status(200, &[("content-type", "application/json"), ("mcp-session-id", "upstream-7")], &answer);
    let (code, message) = asked.await.unwrap();
    assert_eq!(code, -32603);
    assert!(message.contains("capabilities"), "{message}");
    let deleted = upstream.wait_for(|seen| seen.method == "DELETE").await;
    assert_eq!((deleted.header("mcp-session-id"), deleted.header("mcp-protocol-version")), ("upstream-7", ""));
}

#[tokio::test]
async fn delete_ends_the_session_on_both_sides() {
    let (upstream, gate, client) = house(Upstream::sse()).await;
    let other = Client::connect(&gate.url).await;
    let mut listener = client.get_stream().await;
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    let answer = client.with("x-custom", "bye").delete().await;
    assert!(matches!(answer.status.as_u16(), 200 | 204), "{answer:?}");
    let deleted = upstream.wait_for(|seen| seen.method == "DELETE").await;
    assert_eq!((deleted.header("mcp-session-id"), deleted.header("x-custom")), ("upstream-1", "bye"));
    assert_eq!(listener.next().await, None);
    // No call is left waiting.
    assert_eq!(call.message().await["error"]["code"], -32603);
    slow.abandoned().await;
    for _ in 0..2 {
        assert_eq!(client.answer("ping", json!({})).await.status, 404);
        assert_eq!(client.delete().await.status, 404);
        assert_eq!(client.notify("notifications/x", json!({})).await, 404);
    }
    assert_eq!(other.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn a_client_that_disconnects_does_not_cancel_its_call() {
    let (upstream, _gate, client) = house(Upstream::sse()).await;
    let mut call = client.stream("tools/call", json!({ "name": "slow" }));
    let slow = upstream.held("slow").await.sse();
    slow.notify("notifications/x", json!({})).await;
    call.message().await;
    drop(call);
    client.ask("ping", json!({})).await;
    slow.notify("notifications/y", json!({})).await;
    slow.notify("notifications/z", json!({})).await;
    assert_eq!(upstream.count("notifications/cancelled"), 0);
    slow.result("{}").await;
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn an_upstream_without_sessions_gets_no_session_id_but_the_client_has_one() {
    let upstream = Upstream::start(Options { sessions: false, ..Options::default() }).await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
    assert!(!client.session().is_empty());
    assert_eq!(client.delete().await.status, 200);
    assert_eq!(client.answer("ping", json!({})).await.status, 404);
    assert!(upstream.seen().iter().all(|seen| !seen.headers.contains_key("mcp-session-id")));
    assert_eq!(upstream.count("DELETE"), 0);
}

#[tokio::test]
async fn a_session_that_the_upstream_has_forgotten_is_gone_for_the_client_too() {
    let (upstream, gate, client) = house(Upstream::json()).await;
    upstream.forget_sessions();
    let (status, code, message) = client.answer("ping", json!({})).await.refusal();
    assert_eq!((status, code), (404, -32600));
    assert!(message.contains("initialize"), "{message}");
    assert_eq!(client.answer("ping", json!({})).await.status, 404);
    let anew = Client::connect(&gate.url).await;
    assert_eq!(anew.ask("ping", json!({})).await, json!({}));
    // A notification finds out as well.
    upstream.forget_sessions();
    assert_eq!(anew.notify("notifications/x", json!({})).await, 404);
}

#[tokio::test]
async fn a_server_that_says_with_400_that_it_does_not_know_the_session_has_forgotten_it() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.hold("slow");
    let (running, asking) = (client.clone(), client.clone());
    let running = tokio::spawn(async move { running.answer("tools/call", json!({ "name": "slow" })).await });
    let _never_answered = upstream.held("slow").await;
    let asking = tokio::spawn(async move { asking.answer("tools/call", json!({ "name": "slow" })).await });
    let error = json!({ "code": -32000, "message": "Bad Request: No valid session ID provided" });
    let body = json!({ "jsonrpc": "2.0", "error": error, "id": null }).to_string();
    upstream.held("slow").await.status(400, &[("content-type", "application/json")], &body);
    assert_eq!(soon(asking).await.unwrap().status, 404);
    assert_eq!(client.answer("ping", json!({})).await.status, 404);
    let error = soon(running).await.unwrap().json()["error"].clone();
    assert!(error["message"].as_str().unwrap().contains("its session has ended"), "{error}");
}

#[tokio::test]
async fn a_task_goes_on_whose_server_may_have_said_with_400_that_it_does_not_know_the_session() {
    let (upstream, _gate, client) = house(Upstream::json()).await;
    upstream.hold("slow");
    let id = client.create_id("slow").await;
    let running = upstream.held("slow").await;
    let asking = client.clone();
    let asking = tokio::spawn(async move { asking.answer("tools/call", json!({ "name": "slow" })).await });
    upstream.held("slow").await.status(400, &[("content-type", "text/plain")], "Invalid session ID");
    assert_eq!(soon(asking).await.unwrap().status, 404);
    running.result(r#"{"content":[]}"#);
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn an_answer_that_a_server_refuses_with_400_as_it_does_not_know_the_session_ends_the_call_that_asked() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await;
    // Keeps the session.
    client.create_id("slow").await;
    let _running = upstream.held("slow").await;
    let mut call = client.stream("tools/call", json!({ "name": "asks" }));
    let asks = upstream.held("asks").await.sse();
    asks.event(r#"{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"Really?"}}"#).await;
    let question = call.message().await;
    upstream.hold("POST");
    let refuse = async || {
        upstream.held("POST").await.status(400, &[("content-type", "text/plain")], "Invalid session ID");
    };
    let asking = client.clone();
    let asking = tokio::spawn(async move { asking.answer("ping", json!({})).await });
    refuse().await;
    assert_eq!(soon(asking).await.unwrap().status, 404);
    let responding = client.clone();
    let responding =
        tokio::spawn(async move { responding.respond(&question["id"], json!({ "action": "decline" })).await });
    refuse().await;
    assert_eq!(soon(responding).await.unwrap(), 404);
    let error = call.message().await["error"].take();
    assert!(error["message"].as_str().unwrap().contains("check before you repeat it"), "{error}");
}

#[tokio::test]
async fn an_answer_in_a_session_that_the_server_has_forgotten_sends_the_client_to_a_new_one_also_where_the_server_is_gone()
 {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect(&gate.url).await;
    // Keeps the session.
    client.create_id("slow").await;
    upstream.forget_sessions();
    assert_eq!(client.answer("ping", json!({})).await.status, 404);
    upstream.stop().await;
    assert_eq!(client.respond(&json!("q-1"), json!({ "action": "decline" })).await, 404);
}

/// An answer that no client takes for that to a call that was not run.
fn may_have_run(answer: &Answer) {
    let error = answer.json()["error"].clone();
    assert_eq!((answer.status.as_u16(), &error["code"]), (200, &json!(-32603)), "{error}");
    assert!(error["message"].as_str().unwrap().contains("check before you repeat it"), "{error}");
}

#[tokio::test]
async fn a_call_that_may_have_run_when_its_session_was_found_gone_is_not_told_to_begin_anew() {
    for upstream in [Upstream::json().await, Upstream::sse().await] {
        let (upstream, _gate, client) = house(std::future::ready(upstream)).await;
        upstream.hold("slow");
        let calling = client.clone();
        let calling = tokio::spawn(async move { calling.answer("tools/call", json!({ "name": "slow" })).await });
        let _never_answered = upstream.held("slow").await;
        upstream.forget_sessions();
        assert_eq!(client.answer("ping", json!({})).await.status, 404);
        may_have_run(&soon(calling).await.unwrap());
    }
}

#[tokio::test]
async fn each_upstream_has_a_path_of_its_own() {
    let (first, second) = (Upstream::json().await, Upstream::json().await);
    let gate = Gate::configured(&format!(
        "[[upstream]]\npath = \"/first\"\nurl = \"{}\"\n[[upstream]]\npath = \"/a/second\"\nurl = \"{}\"\n",
        first.url(),
        second.url()
    ))
    .await;
    let (one, two) = (Client::connect(&gate.urls[0]).await, Client::connect(&gate.urls[1]).await);
    one.ask("ping", json!({})).await;
    two.ask("ping", json!({})).await;
    assert_eq!((first.count("ping"), second.count("ping")), (1, 1));
    // A session is known behind its own path only.
    let stray = Client::new(&gate.urls[1]).with("mcp-session-id", one.session());
    assert_eq!(stray.answer("ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn sessions_beyond_max_sessions_are_refused_until_one_ends_and_the_limit_is_named() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, "[server]\nmax_sessions = 1").await;
    let client = Client::connect(&gate.url).await;
    let _in_use = client.get_stream().await;
    let (status, code, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32603));
    assert!(message.contains("max_sessions = 1"), "{message}");
    client.delete().await;
    Client::connect(&gate.url).await;
}

#[tokio::test]
async fn at_max_sessions_the_longest_idle_session_without_tasks_gives_way() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, "[server]\nmax_sessions = 3").await;
    let connect = || Client::connect(&gate.url);
    let (with_task, silent, used) = (connect().await, connect().await, connect().await);
    let done = with_task.create_id("echo").await;
    with_task.until(&done, "completed").await;
    used.ask("ping", json!({})).await;
    let newcomer = connect().await;
    assert_eq!(silent.answer("ping", json!({})).await.status, 404);
    for client in [&used, &newcomer] {
        assert_eq!(client.ask("ping", json!({})).await, json!({}));
    }
    assert!(with_task.collect(&done).await["result"].is_object());
    // The server is told as of any session that ends.
    upstream.wait_for(|seen| seen.method == "DELETE" && seen.header("mcp-session-id") == "upstream-2").await;
}

#[tokio::test]
async fn sessions_beyond_max_sessions_per_owner_are_refused_until_one_ends_and_the_limit_is_named() {
    let header = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &format!("{header}[server]\nmax_sessions_per_owner = 1")).await;
    let user = |name| Client::new(&gate.url).with("x-user", name);
    let ann = user("ann").initialize("2025-11-25", json!({})).await;
    let _in_use = ann.get_stream().await;
    let (status, code, message) = user("ann").ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32603));
    assert!(message.contains("server.max_sessions_per_owner = 1"), "{message}");
    let bob = user("bob").initialize("2025-11-25", json!({})).await;
    ann.delete().await;
    // A failed handshake gives its place back.
    upstream.hold("initialize");
    for _ in 0..2 {
        let ann = user("ann");
        let opening = tokio::spawn(async move { ann.ask_to_initialize("2025-11-25", json!({})).await.refusal() });
        upstream.held("initialize").await.error(r#"{"code":-1,"message":"no"}"#);
        assert_eq!(opening.await.unwrap().1, -1);
    }
    // At the limit of an owner, one of its own unused sessions gives way, and none of another owner.
    let open = |name: &'static str| {
        let client = user(name);
        tokio::spawn(async move { client.initialize("2025-11-25", json!({})).await })
    };
    let mut anns = Vec::new();
    for _ in 0..2 {
        let opening = open("ann");
        upstream.held("initialize").await.result(r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#);
        anns.push(opening.await.unwrap());
    }
    assert_eq!(anns[0].answer("tasks/list", json!({})).await.status, 404);
    assert_eq!(bob.ask("tasks/list", json!({})).await, json!({ "tasks": [] }));
}
