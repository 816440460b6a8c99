//! Requests that are wrong as HTTP requests.

use ::http::{Method, Request};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::{client::legacy::Client as Http, rt::TokioExecutor};
use serde_json::json;

use crate::{
    House, PING,
    kit::{Client, eventually, soon},
};

#[tokio::test]
async fn a_missing_session_id_is_400_and_says_what_to_do() {
    let house = House::new("").await;
    let client = Client::new(&house.gate.url);
    for body in [PING, r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#] {
        let (status, code, message) = client.post(body).await.refusal();
        assert_eq!((status, code), (400, -32600));
        assert!(message.contains("Mcp-Session-Id") && message.contains("initialize"), "{message}");
    }
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(client.send(method, "").await.refusal().0, 400);
    }
    house.still_works(2).await;
}

#[tokio::test]
async fn an_unknown_session_is_404_with_an_error_under_the_id_of_the_request() {
    let house = House::new("").await;
    let id = house.witness.session();
    for session in ["x", "upstream-1", "00000000-0000-0000-0000-000000000000", &id.replace('-', "")] {
        let client = Client::new(&house.gate.url).with("mcp-session-id", session);
        let answer = client.post(PING).await;
        let (status, code, message) = answer.refusal();
        assert_eq!((status, code, &answer.json()["id"]), (404, -32600, &json!(1)), "{session}");
        assert!(message.contains("initialize"), "{message}");
        for method in [Method::GET, Method::DELETE] {
            assert_eq!(client.send(method, "").await.status, 404);
        }
        // An initialize in a session that has ended opens no new session.
        assert_eq!(client.ask_to_initialize("2025-11-25", json!({})).await.status, 404);
    }
    house.still_works(2).await;
}

#[tokio::test]
async fn an_unsupported_protocol_version_header_is_400_and_names_the_supported_ones() {
    let house = House::new("").await;
    let client = house.client().await;
    for version in ["1999-01-01", "latest", "", "2025-11-25, 2025-06-18"] {
        let client = client.with("mcp-protocol-version", version);
        let (status, code, message) = client.post(PING).await.refusal();
        assert_eq!((status, code), (400, -32600), "{version:?}");
        assert!(message.contains("2025-11-25") && message.contains("2024-11-05"), "{message}");
        assert_eq!(client.send(Method::GET, "").await.status, 400);
    }
    house.still_works(4).await;
}

#[tokio::test]
async fn other_methods_are_405_with_allow() {
    let house = House::new("").await;
    let client = house.client().await;
    for method in ["PUT", "PATCH", "HEAD", "TRACE", "PROPFIND"] {
        let answer = client.send(method.parse().unwrap(), "").await;
        assert_eq!(answer.status, 405, "{method}");
        let allow: Vec<_> = answer.header("allow").split(", ").collect();
        for allowed in ["GET", "POST", "DELETE"] {
            assert!(allow.contains(&allowed), "{answer:?}");
        }
    }
    house.still_works(4).await;
}

#[tokio::test]
async fn the_refusal_of_a_head_has_no_body_over_either_version_of_http() {
    let house = House::new("").await;
    let nowhere = house.gate.url.replace("/mcp", "/nowhere");
    for new in [Client::new, Client::http2] {
        let here = new(&house.gate.url);
        for (client, status) in
            [(here.clone(), 405), (new(&nowhere), 404), (here.with("origin", "https://x.example"), 403)]
        {
            let answer = client.send(Method::HEAD, "").await;
            assert_eq!((answer.status.as_u16(), answer.text()), (status, ""));
            assert!(answer.header("content-length").parse::<usize>().unwrap() > 0, "{answer:?}");
        }
    }
    house.still_works(2).await;
}

#[tokio::test]
async fn an_unknown_path_is_404_and_names_the_endpoints() {
    let house = House::new("").await;
    for path in ["/", "/mcp/", "/mcp2", "/sse", "/.well-known/oauth-protected-resource"] {
        let client = Client::new(&house.gate.url.replace("/mcp", path));
        let (status, _, message) = client.ask_to_initialize("2025-11-25", json!({})).await.refusal();
        assert_eq!(status, 404, "{path}");
        assert!(message.contains("/mcp"), "{message}");
    }
    house.still_works(2).await;
}

#[tokio::test]
async fn a_wrong_accept_is_406_and_a_wrong_content_type_415() {
    let house = House::new("").await;
    let client = house.client().await;
    for accept in
        ["application/json", "text/event-stream", "text/html", "", "application/json, text/event-stream;q=0", "*/*;q=0"]
    {
        let (status, code, message) = client.with("accept", accept).post(PING).await.refusal();
        assert_eq!((status, code), (406, -32600), "{accept:?}");
        assert!(message.contains("application/json") && message.contains("text/event-stream"), "{message}");
    }
    assert_eq!(client.without("accept").post(PING).await.status, 406);
    assert_eq!(client.with("accept", "application/json").send(Method::GET, "").await.status, 406);
    for content_type in ["text/plain", "application/jsonx", "", "application/x-www-form-urlencoded"] {
        let (status, code, message) = client.with("content-type", content_type).post(PING).await.refusal();
        assert_eq!((status, code), (415, -32600), "{content_type:?}");
        assert!(message.contains("application/json"), "{message}");
    }
    assert_eq!(client.without("content-type").post(PING).await.status, 415);
    for (accept, content_type) in
        [("*/*", "application/json"), ("text/*, application/*;q=0.1", "Application/JSON; charset=utf-8")]
    {
        assert_eq!(client.with("accept", accept).with("content-type", content_type).post(PING).await.status, 200);
    }
}

#[tokio::test]
async fn a_body_that_has_to_be_decoded_is_415_and_says_which_need_not_be() {
    let house = House::new("").await;
    let client = house.client().await;
    for encoding in ["gzip", "br", "identity, gzip", ""] {
        let answer = client.with("content-encoding", encoding).post(PING).await;
        assert_eq!(answer.header("accept-encoding"), "identity", "{encoding:?}");
        let (status, code, message) = answer.refusal();
        assert_eq!((status, code), (415, -32600), "{encoding:?}");
        assert!(message.contains("Content-Encoding"), "{message}");
    }
    house.still_works(4).await;
    assert_eq!(client.with("content-encoding", "Identity").post(PING).await.status, 200);
}

#[tokio::test]
async fn a_body_over_max_body_is_413_whether_it_says_its_length_or_not() {
    let house = House::new("[server]\nmax_body = \"1KiB\"").await;
    let client = house.client().await;
    let sized = |size: usize| {
        let head = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":""#;
        format!("{head}{}\"}}}}", "x".repeat(size - head.len() - 3))
    };
    assert_eq!(client.post(sized(1024)).await.status, 200);
    let (status, code, message) = client.post(sized(1025)).await.refusal();
    assert_eq!((status, code), (413, -32600));
    assert!(message.contains("server.max_body = 1024"), "{message}");
    // In pieces, without a length.
    let pieces = |count: usize| {
        let frames = (0..count).map(|_| Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(&[b' '; 512]))));
        let mut request = Request::new(StreamBody::new(stream::iter(frames)).boxed());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = house.gate.url.parse().unwrap();
        *request.headers_mut() = client.headers.clone();
        request
    };
    let http = Http::builder(TokioExecutor::new()).build_http();
    assert_eq!(soon(http.request(pieces(3))).await.unwrap().status(), 413);
    assert_eq!(soon(http.request(pieces(2))).await.unwrap().status(), 400);
    house.still_works(5).await;
}

#[tokio::test]
async fn accepted_notifications_and_responses_are_202_without_a_body() {
    let house = House::new("").await;
    let client = house.client().await;
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/x"}"#,
        r#"{"jsonrpc":"2.0","id":"never asked","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"no"}}"#,
    ] {
        let answer = client.post(body).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (202, ""), "{body}");
    }
}

#[tokio::test]
async fn a_client_that_disconnects_in_mid_request_does_no_harm() {
    use tokio::io::AsyncWriteExt;
    let house = House::new("").await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: */*\r\ncontent-length: 100\r\n\r\n",
        house.gate.authority()
    );
    for part in ["", "POST", head.as_str(), &format!("{head}{{\"jsonrpc\"")] {
        let mut connection = tokio::net::TcpStream::connect(house.gate.authority()).await.unwrap();
        connection.write_all(part.as_bytes()).await.unwrap();
    }
    let mut garbage = tokio::net::TcpStream::connect(house.gate.authority()).await.unwrap();
    garbage.write_all(b"\x16\x03\x01\x00garbage\r\n\r\n").await.unwrap();
    house.still_works(2).await;
    eventually(async || Some(house.upstream.seen().len()).filter(|seen| *seen == 3)).await;
}

#[tokio::test]
async fn a_repeated_single_value_header_is_400_and_neither_value_is_used() {
    let house = House::new("").await;
    let client = house.client().await;
    for (name, value) in [
        ("mcp-protocol-version", "2025-06-18"),
        ("mcp-session-id", house.witness.session()),
        ("last-event-id", "x"),
        ("authorization", "Bearer b"),
        ("content-type", "application/json"),
        ("host", "localhost"),
        ("origin", "http://evil.example"),
    ] {
        let mut client = client.clone();
        let first = format!("http://{}", house.gate.authority());
        let first = if name == "origin" { &first } else { value };
        client.headers.append(name.parse::<::http::HeaderName>().unwrap(), first.parse().unwrap());
        client.headers.append(name.parse::<::http::HeaderName>().unwrap(), value.parse().unwrap());
        let (status, code, message) = client.post(PING).await.refusal();
        assert_eq!((status, code), (400, -32600), "{name}");
        assert!(message.to_lowercase().contains(name) && message.contains("one"), "{message}");
    }
    // The initialize of the client and of the witness, and no ping.
    house.still_works(4).await;
}
