//! Requests from a foreign site, and browsers of allowed ones.

use ::http::Method;
use serde_json::json;

use crate::{House, PING, kit::Client};

#[tokio::test]
async fn a_foreign_host_or_origin_is_403() {
    let house = House::new("").await;
    let client = Client::new(&house.gate.url);
    for (name, value) in [
        ("host", "evil.example"),
        ("host", "evil.example:80"),
        ("host", "127.0.0.1.evil.example"),
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1.evil.example"),
        // Another program of the same machine.
        ("origin", "http://127.0.0.1:6666"),
        ("origin", "file://"),
    ] {
        let client = client.with(name, value);
        for method in [Method::POST, Method::GET, Method::DELETE, Method::OPTIONS] {
            let answer = client.send(method, PING).await;
            let (status, code, message) = answer.refusal();
            assert_eq!((status, code), (403, -32600), "{name}: {value}");
            assert!(message.contains(value) && message.contains("server.allowed_"), "{message}");
            assert_eq!(answer.header("access-control-allow-origin"), "");
        }
        assert_eq!(client.ask_to_initialize("2025-11-25", json!({})).await.status, 403);
    }
    house.still_works(2).await;
}

#[tokio::test]
async fn own_and_allowed_hosts_and_origins_are_served() {
    let toml = "[server]\nallowed_hosts = [\"gate.example\"]\nallowed_origins = [\"https://app.example\"]";
    let house = House::new(toml).await;
    let client = house.client().await;
    let own = house.gate.authority().to_owned();
    // As a browser sends it for a page that the same address serves.
    let page = format!("http://{own}");
    for (host, origin) in [
        (own.as_str(), None),
        ("localhost:5173", Some("http://localhost:5173")),
        ("[::1]:80", None),
        (own.as_str(), Some(page.as_str())),
        ("gate.example", Some("https://app.example")),
        ("GATE.example", Some("https://gate.example")),
        ("GATE.example:8443", Some("https://gate.example:8443")),
    ] {
        let mut client = client.with("host", host);
        if let Some(origin) = origin {
            client = client.with("origin", origin);
        }
        assert_eq!(client.post(PING).await.status, 200, "{host} {origin:?}");
    }
}

#[tokio::test]
async fn browsers_of_allowed_origins_get_cors_with_the_session_id_exposed() {
    let house = House::new("[server]\nallowed_origins = [\"https://app.example\"]").await;
    let page = Client::new(&house.gate.url).with("origin", "https://app.example");
    let preflight = page
        .with("access-control-request-method", "POST")
        .with("access-control-request-headers", "content-type,mcp-session-id,mcp-protocol-version,authorization,x-own");
    let answer = preflight.send(Method::OPTIONS, "").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), "https://app.example");
    let list = |name: &str| -> Vec<String> {
        answer.header(name).to_lowercase().split(',').map(|item| item.trim().to_owned()).collect()
    };
    for method in ["post", "get", "delete"] {
        assert!(list("access-control-allow-methods").contains(&method.to_owned()), "{answer:?}");
    }
    for header in ["content-type", "mcp-session-id", "mcp-protocol-version", "authorization", "x-own"] {
        assert!(list("access-control-allow-headers").contains(&header.to_owned()), "{answer:?}");
    }
    let opened = page.ask_to_initialize("2025-11-25", json!({})).await;
    assert_eq!(opened.header("access-control-allow-origin"), "https://app.example");
    let exposed = opened.header("access-control-expose-headers").to_lowercase();
    assert!(exposed.contains("mcp-session-id"), "{exposed}");
    assert!(opened.header("vary").to_lowercase().contains("origin"), "{opened:?}");
    // The page can read a refusal, too.
    let refused = page.with("mcp-session-id", "x").post(PING).await;
    assert_eq!((refused.status.as_u16(), refused.header("access-control-allow-origin")), (404, "https://app.example"));
}
