//! Headers and the HTTP around the messages.

use serde_json::json;

use crate::kit::{Client, Gate, Upstream, house};

#[tokio::test]
async fn authorization_and_custom_headers_reach_the_upstream_with_every_request() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let mut client = Client::new(&gate.url).with("authorization", "Bearer t0ken").with("x-custom", "a, b");
    client.headers.append("x-custom", "c".parse().unwrap());
    let client = client.initialize("2025-11-25", json!({})).await;
    client.ask("ping", json!({})).await;
    let _listener = client.get_stream().await;
    upstream.get_stream().await;
    client.delete().await;
    upstream.wait_for(|seen| seen.method == "DELETE").await;
    let seen = upstream.seen();
    assert_eq!(seen.len(), 5, "{seen:?}");
    for seen in seen {
        assert_eq!(seen.header("authorization"), "Bearer t0ken", "{seen:?}");
        let custom: Vec<_> = seen.headers.get_all("x-custom").iter().collect();
        assert_eq!(custom, ["a, b", "c"], "{seen:?}");
    }
}

#[tokio::test]
async fn hop_by_hop_headers_the_origin_and_the_clients_host_do_not_reach_the_upstream() {
    let (upstream, gate, client) = house(Upstream::json()).await;
    let own = format!("http://{}", gate.authority());
    let names =
        ["te", "trailer", "keep-alive", "proxy-authorization", "proxy-connection", "upgrade", "x-hop", "last-event-id"];
    let mut odd = client.with("connection", "keep-alive, X-Hop").with("origin", &own);
    for name in names {
        odd = odd.with(name, "v");
    }
    odd.ask("ping", json!({})).await;
    let seen = upstream.wait_for_message("ping").await;
    for name in names.into_iter().chain(["origin", "connection", "transfer-encoding"]) {
        assert_eq!(seen.headers.get(name), None, "{name}");
    }
    assert_eq!(format!("http://{}/mcp", seen.header("host")), upstream.url());
    assert_eq!(seen.header("content-type"), "application/json");
    assert_eq!(seen.header("accept"), "application/json, text/event-stream");
}

#[tokio::test]
async fn cookies_that_a_client_sends_in_several_headers_reach_the_upstream_in_one() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    for mut client in [Client::new(&gate.url), Client::http2(&gate.url)] {
        for cookie in ["a=1", "b=2", "c=3"] {
            client.headers.append("cookie", cookie.parse().unwrap());
        }
        client.initialize("2025-11-25", json!({})).await;
        let seen = upstream.seen().pop().unwrap();
        assert_eq!(seen.headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2; c=3"], "{seen:?}");
    }
}

#[tokio::test]
async fn a_401_passes_with_its_challenge() {
    let challenge = r#"Bearer resource_metadata="https://auth.example/.well-known/x""#;
    let (upstream, gate, client) = house(Upstream::json()).await;
    for (method, status) in [("tools/list", 401), ("notifications/x", 401), ("initialize", 401), ("tools/call", 403)] {
        upstream.hold(method);
        let client = if method == "initialize" { Client::new(&gate.url) } else { client.clone() };
        let asked = tokio::spawn(async move {
            match method {
                "initialize" => client.ask_to_initialize("2025-11-25", json!({})).await,
                "notifications/x" => client.post(r#"{"jsonrpc":"2.0","method":"notifications/x"}"#).await,
                _ => client.answer(method, json!({ "name": "echo" })).await,
            }
        });
        let headers = [("www-authenticate", challenge), ("content-type", "text/plain")];
        upstream.held(method).await.status(status, &headers, "who are you?");
        let answer = asked.await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.text()), (status, "who are you?"), "{method}");
        assert_eq!(answer.header("www-authenticate"), challenge, "{method}");
    }
}

#[tokio::test]
async fn http_2_with_prior_knowledge_works_with_streams_in_parallel() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Client::http2(&gate.url).initialize("2025-11-25", json!({})).await;
    let mut listener = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    let mut calls = Vec::new();
    for _ in 0..20 {
        calls.push(client.stream("tools/call", json!({ "name": "slow" })));
    }
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(upstream.held("slow").await);
    }
    to_listener.notify("notifications/x", json!({})).await;
    assert_eq!(listener.message().await["method"], "notifications/x");
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
    for answer in answers.into_iter().rev() {
        answer.result("{}");
    }
    for mut call in calls {
        assert_eq!(call.message().await["result"], json!({}));
    }
}

#[tokio::test]
async fn clients_of_both_http_versions_share_a_server() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let old = Client::connect(&gate.url).await;
    let new = Client::http2(&gate.url).with("mcp-session-id", old.session());
    assert_eq!(new.ask("ping", json!({})).await, json!({}));
    assert_eq!(old.ask("ping", json!({})).await, json!({}));
}

#[tokio::test]
async fn a_client_that_resumes_its_get_stream_with_accepted_headers_opens_that_of_the_upstream() {
    let upstream = Upstream::sse().await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect(&gate.url).await;
    upstream.held("GET").await.status(401, &[], "");
    let mut listener = client.get_stream().await;
    let primer = listener.next_of_any_kind().await.unwrap();
    drop(listener);
    let resuming = client.with("last-event-id", &primer.id.unwrap());
    // The refusal may still be in flight when the client reconnects for the first time.
    let to_listener = async {
        loop {
            let held = upstream.held("GET").await;
            if held.seen.header("authorization") == "Bearer new" {
                return held.sse();
            }
            held.status(401, &[], "");
        }
    };
    let better = resuming.with("authorization", "Bearer new");
    let coming_back = async {
        loop {
            drop(better.get_stream().await);
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = to_listener => {}
        () = coming_back => {}
    }
}
