//! What goes on to a server besides the messages: the operator's headers always, the client's token only where it is
//! meant for the server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;

use kit::{Answers, Binary, Client, Gate, Options, Seen, SseUpstream, Upstream, eventually, soon};
use serde_json::json;
use tempfile::NamedTempFile;

const TOKEN: &str = "Bearer of-the-client";
const CHALLENGE: [(&str, &str); 1] = [("www-authenticate", "Bearer resource_metadata=\"https://login.example/\"")];

async fn before(upstream: &Upstream, keys: &str) -> (Gate, Client) {
    let gate = Gate::with(upstream, &format!("[[upstream]]\n{keys}\n")).await;
    let client = Client::new(&gate.url).with("authorization", TOKEN).with("x-key", "of the client");
    let client = client.initialize("2025-11-25", json!({ "elicitation": {} })).await;
    (gate, client)
}

/// Starts taskgate as a process, which logs everything.
fn outside(upstream: &Upstream, headers: &str, env: &[(&str, &str)]) -> (Binary, NamedTempFile) {
    let config = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let text = format!("[[upstream]]\nurl = \"{}\"\nheaders = {{ {headers} }}\n", upstream.url());
    std::fs::write(config.path(), text).unwrap();
    let args = ["--log", "trace", "serve", "--listen", "127.0.0.1:0", "--config", config.path().to_str().unwrap()];
    (Binary::start(&args, env), config)
}

/// Does everything that can make taskgate send a request to a server.
async fn everything(upstream: &Upstream, client: &Client) -> Vec<Seen> {
    let _listener = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    client.ask("tools/call", json!({ "name": "echo" })).await;
    // A task that asks something, is resumed and cancelled.
    let id = client.create_id("slow").await;
    let stream = upstream.held("slow").await.sse();
    stream.raw("id: 7\nretry: 100\ndata: \n\n").await;
    stream.event(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    upstream.wait_for(|seen| seen.json()["result"] == json!({})).await;
    drop(stream);
    let resumed = upstream.resumed().await;
    client.cancel(&id).await;
    upstream.wait_for_message("notifications/cancelled").await;
    drop(resumed);
    // The GET stream breaks and is opened again.
    drop(to_listener);
    upstream.get_stream().await;
    client.delete().await;
    upstream.wait_for(|seen| seen.method == "DELETE").await;
    let seen = upstream.seen();
    assert!(seen.len() >= 9, "{seen:?}");
    seen
}

#[tokio::test]
async fn the_operators_headers_replace_the_clients_on_every_request() {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "from a file\n").unwrap();
    let upstream = Upstream::start(Options { answers: Answers::Sse, listens: true, ..Options::default() }).await;
    let keys = format!(
        "headers = {{ X-Key = \"literal\", x-file = {{ file = '{}' }}, x-env = {{ env = \"CARGO_PKG_NAME\" }} }}",
        file.path().display()
    );
    let (_gate, client) = before(&upstream, &keys).await;
    for seen in everything(&upstream, &client).await {
        let values: Vec<_> = seen.headers.get_all("x-key").iter().collect();
        assert_eq!(values, ["literal"], "{seen:?}");
        assert_eq!((seen.header("x-file"), seen.header("x-env")), ("from a file", "taskgate"), "{seen:?}");
        assert_eq!(seen.header("authorization"), TOKEN, "{seen:?}");
    }
}

#[tokio::test]
async fn a_token_that_is_not_for_the_server_never_reaches_it() {
    for keys in ["forward_authorization = false", "headers = { Authorization = \"Basic b3Vycw==\" }"] {
        let upstream = Upstream::start(Options { answers: Answers::Sse, listens: true, ..Options::default() }).await;
        let (_gate, client) = before(&upstream, keys).await;
        let ours = if keys.starts_with("headers") { "Basic b3Vycw==" } else { "" };
        for seen in everything(&upstream, &client).await {
            assert_eq!(seen.header("authorization"), ours, "{seen:?}");
            assert_eq!(seen.header("x-key"), "of the client", "{seen:?}");
        }
    }
}

#[test]
fn a_token_that_taskgate_checks_reaches_the_server_only_if_the_operator_says_so() {
    let jwt = "mode = \"jwt\"\nissuer = \"https://a.example\"\naudience = [\"b\"]\njwks = \"https://a.example/keys\"";
    let introspect = "mode = \"introspect\"\nissuer = \"https://a.example\"\nclient_id = \"c\"\naudience = \"any\"\n\
                      introspection_endpoint = \"https://a.example/i\"\nclient_secret = { env = \"CARGO_PKG_NAME\" }";
    for (auth, by_default) in [("", true), ("mode = \"bearer\"", true), (jwt, false), (introspect, false)] {
        for (key, forwarded) in [("", by_default), ("forward_authorization = true", true)] {
            let text = format!("[auth]\n{auth}\n[[upstream]]\nurl = \"http://127.0.0.1:9/mcp\"\n{key}\n");
            let config = taskgate::config::parse("config.toml", &text, taskgate::config::Overrides::default()).unwrap();
            assert_eq!(config.upstreams[0].forward.authorization, forwarded, "{text}");
        }
    }
}

#[tokio::test]
async fn an_http_sse_server_gets_the_same_headers() {
    let upstream = SseUpstream::new().await;
    let toml = "[[upstream]]\nforward_authorization = false\nheaders = { X-Key = \"literal\" }\n";
    let gate = Gate::to(&upstream.url(), toml).await;
    let client = Client::new(&gate.url).with("authorization", TOKEN).initialize("2024-11-05", json!({})).await;
    client.ask("ping", json!({})).await;
    let seen = upstream.seen();
    assert!(seen.iter().any(|seen| seen.method == "GET") && seen.len() >= 4, "{seen:?}");
    for seen in seen {
        assert_eq!((seen.header("x-key"), seen.header("authorization")), ("literal", ""), "{seen:?}");
    }
}

#[tokio::test]
async fn a_changed_value_file_is_read_again_and_a_broken_one_leaves_the_old_value() {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "first").unwrap();
    let upstream = Upstream::json().await;
    let (taskgate, _config) = outside(&upstream, &format!("x-key = {{ file = '{}' }}", file.path().display()), &[]);
    let client = Client::connect(&taskgate.url().await).await;
    let sent = async || {
        client.ask("ping", json!({})).await;
        upstream.seen().pop().unwrap().header("x-key").to_owned()
    };
    assert_eq!(sent().await, "first");
    std::fs::write(file.path(), "second").unwrap();
    eventually(async || (sent().await == "second").then_some(())).await;
    std::fs::write(file.path(), b"\xff").unwrap();
    let said = taskgate.logged_after("the old value of a header for a server is sent on").await;
    assert!(said.contains("x-key") && said.contains("UTF-8"), "{said}");
    assert_eq!(sent().await, "second");
    std::fs::write(file.path(), "third").unwrap();
    eventually(async || (sent().await == "third").then_some(())).await;
}

#[tokio::test]
async fn a_server_that_refuses_taskgates_credential_causes_an_error_and_no_challenge() {
    for status in [401, 403] {
        let upstream = Upstream::json().await;
        let (gate, client) = before(&upstream, "forward_authorization = false").await;
        for method in ["initialize", "tools/list", "notifications/x"] {
            upstream.hold(method);
            let client = if method == "initialize" { Client::new(&gate.url) } else { client.clone() };
            let asked = tokio::spawn(async move {
                match method {
                    "initialize" => client.ask_to_initialize("2025-11-25", json!({})).await,
                    "notifications/x" => client.post(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#).await,
                    _ => client.answer(method, json!({})).await,
                }
            });
            upstream.held(method).await.status(status, &CHALLENGE, "who are you?");
            let answer = soon(asked).await.unwrap();
            assert_eq!(answer.header("www-authenticate"), "", "{answer:?}");
            if method == "notifications/x" {
                assert_eq!(answer.status, 202);
            } else {
                let (http, code, message) = answer.refusal();
                assert_eq!((http, code), (200, -32603), "{message}");
                assert!(message.contains(&status.to_string()) && message.contains("operator"), "{message}");
                assert!(!message.contains("login.example"), "{message}");
            }
        }
        let id = client.create_id("slow").await;
        upstream.held("slow").await.status(status, &CHALLENGE, "who are you?");
        let failed = client.until(&id, "failed").await;
        assert!(failed["statusMessage"].as_str().unwrap().contains("operator"), "{failed}");
    }
}

#[tokio::test]
async fn the_log_has_neither_the_operators_secrets_nor_a_clients_token() {
    let upstream = Upstream::json().await;
    let headers = "x-key = { env = \"KEY\" }, x-literal = \"hush-literal\"";
    let (taskgate, _config) = outside(&upstream, headers, &[("KEY", "hush-key")]);
    let client = Client::new(&taskgate.url().await).with("authorization", "Bearer hush-token");
    let client = client.initialize("2025-11-25", json!({})).await;
    client.ask("ping", json!({})).await;
    let seen = upstream.seen().pop().unwrap();
    // Over HTTP/2, whose headers are frames of their own.
    let over_2 = Client::http2(client.url()).with("authorization", "Bearer hush-token");
    over_2.initialize("2025-11-25", json!({})).await;
    assert_eq!((seen.header("x-key"), seen.header("x-literal")), ("hush-key", "hush-literal"));
    assert_eq!(seen.header("authorization"), "Bearer hush-token");
    taskgate.signal(rustix::process::Signal::TERM);
    let log = taskgate.end().await.stderr;
    assert!(log.contains("session opened") && !log.contains("hush"), "{log}");
}
