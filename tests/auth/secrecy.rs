//! Tokens and secrets are in no log line, no metric, no audit line and no error.

use std::{fs, io::Write};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Method;
use rustix::process::Signal;
use serde_json::json;
use tempfile::{NamedTempFile, TempDir};

use crate::{
    introspection::active,
    issuer::{Issuer, Signer, in_seconds},
    kit::{Binary, Client, Options, Upstream},
};

const SECRET: &str = "the-secret-of-the-client";

/// Starts the binary with the loudest log, on a configuration of its own.
fn start(auth: &str, upstream: &Upstream) -> (Binary, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.log").display().to_string();
    let config = folder.path().join("config.toml");
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[audit]\nto = \"file\"\nfile = \"{audit}\"\n\
         owner = \"principal\"\n{auth}[[upstream]]\nurl = \"{}\"\n",
        upstream.url()
    );
    fs::write(&config, toml).unwrap();
    let binary = Binary::start(&["serve", "--log", "trace", "--config", config.to_str().unwrap()], &[]);
    (binary, folder)
}

/// Uses every token over both versions of HTTP, and looks for it wherever taskgate writes.
async fn never_writes(binary: Binary, folder: TempDir, tokens: &[String], secrets: &[String]) {
    let (url, admin) = (binary.url().await, binary.admin().await);
    let mut written = Vec::new();
    for token in tokens {
        for client in [Client::new(&url), Client::http2(&url)] {
            let client = client.with("authorization", &format!("Bearer {token}"));
            let answer = client.ask_to_initialize("2025-11-25", json!({})).await;
            written.push(format!("{answer:?}"));
            if answer.status == 200 {
                let client = client.with("mcp-session-id", answer.header("mcp-session-id"));
                let id = client.create_id("echo").await;
                client.until(&id, "completed").await;
                written.push(client.collect(&id).await.to_string());
                written.push(client.error("tasks/get", json!({ "taskId": "x" })).await.1);
                written.push(format!("{:?}", client.delete().await));
            }
        }
    }
    let metrics = Client::new(&format!("{admin}/metrics")).send(Method::GET, "").await;
    assert!(metrics.text().contains("taskgate_requests_refused_total"));
    written.push(format!("{metrics:?}"));
    binary.signal(Signal::TERM);
    let ended = binary.end().await;
    assert!(ended.stderr.contains("TRACE"), "the log is as loud as it gets");
    written.extend([ended.stderr, ended.stdout]);
    let audit = fs::read_to_string(folder.path().join("audit.log")).unwrap();
    assert!(!audit.is_empty());
    written.push(audit);
    let written = written.join("\n");
    let parts = tokens.iter().flat_map(|token| token.split('.').skip(usize::from(token.contains('.'))));
    for secret in parts.chain(secrets.iter().map(String::as_str)) {
        let at = written.find(secret);
        assert!(at.is_none(), "{secret:?} in {:?}", at.map(|at| &written[at.saturating_sub(200)..at + secret.len()]));
    }
}

#[tokio::test]
async fn a_jwt_is_never_written_whether_valid_or_not() {
    let key = Signer::ec("key");
    let issuer = Issuer::start(&[&key]).await;
    let upstream = Upstream::json().await;
    let (binary, folder) = start(&issuer.jwt(), &upstream);
    let mut expired = issuer.claims("ann");
    expired["exp"] = in_seconds(-5.0).into();
    let good = key.token(&issuer.claims("ann"));
    let tokens = [
        good.clone(),
        key.token(&expired),
        Signer::ec("unknown").token(&issuer.claims("ann")),
        good.replace("eyJ", "eyK"),
        "some-opaque-token".to_owned(),
    ];
    never_writes(binary, folder, &tokens, &[]).await;
}

#[tokio::test]
async fn an_introspected_token_and_the_clients_secret_are_never_written() {
    let issuer = Issuer::start(&[]).await;
    let upstream = Upstream::json().await;
    let mut file = NamedTempFile::new().unwrap();
    write!(file, "{SECRET}").unwrap();
    issuer.say("a-good-opaque-token", active(&issuer, "ann"));
    issuer.say("a-strange-opaque-token", json!({ "active": 1 }));
    let (binary, folder) = start(&issuer.introspect(file.path().to_str().unwrap()), &upstream);
    let tokens = ["a-good-opaque-token", "a-strange-opaque-token", "an-unknown-opaque-token"].map(str::to_owned);
    let basic = STANDARD.encode(format!("task%3Agate:{SECRET}"));
    never_writes(binary, folder, &tokens, &[SECRET.to_owned(), basic]).await;
}

#[tokio::test]
async fn a_token_for_the_upstream_is_never_written() {
    let upstream = Upstream::start(Options { sessions: false, ..Options::default() }).await;
    upstream.hold("initialize");
    let (binary, folder) = start("[auth]\nmode = \"bearer\"\n", &upstream);
    let judge = async {
        loop {
            let held = upstream.held("initialize").await;
            if held.seen.header("authorization").contains("refused") {
                held.status(401, &[("www-authenticate", "Bearer")], "no");
            } else {
                let info = r#""serverInfo":{"name":"s","version":"1"}"#;
                held.result(&format!(r#"{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},{info}}}"#));
            }
        }
    };
    let tokens = ["a-good-opaque-token", "a-refused-opaque-token"].map(str::to_owned);
    tokio::select! {
        () = never_writes(binary, folder, &tokens, &[]) => {}
        () = judge => {}
    }
    assert_eq!(upstream.count("initialize"), 3, "the second request of a refused token goes nowhere");
}
