//! Requests that two readers could cut in different places, or take for different requests.

use crate::{
    House, PING, SMUGGLED,
    raw::{chunked, head, post},
};

#[tokio::test]
async fn an_ambiguously_framed_body_is_400_or_ends_the_connection_and_smuggles_nothing() {
    let house = House::new("").await;
    let client = &house.witness;
    let smuggled = post(client, SMUGGLED);
    let length = PING.len();
    let plain = format!("{PING}{smuggled}");
    for (framing, body) in [
        (format!("content-length: {length}\r\ncontent-length: {}\r\n", length + 9), &plain),
        (format!("content-length: +{length}\r\n"), &plain),
        (format!("content-length: -{length}\r\n"), &plain),
        (format!("content-length: {length} {length}\r\n"), &plain),
        (format!("content-length: {length},{}\r\n", length + 1), &plain),
        (format!("content-length: 0x{length:x}\r\n"), &plain),
        ("content-length: \r\n".to_owned(), &plain),
        ("content-length: 99999999999999999999999\r\n".to_owned(), &plain),
        (format!("content-length : {length}\r\n"), &plain),
        (format!("content-length\t: {length}\r\n"), &plain),
        (format!("content-length:\r\n {length}\r\n"), &plain),
        (format!("x: y\r\n z\r\ncontent-length: {length}\r\n"), &plain),
        (format!("x: a\0b\r\ncontent-length: {length}\r\n"), &plain),
        (format!("x: a\rb: c\r\ncontent-length: {length}\r\n"), &plain),
        (format!("x\0: a\r\ncontent-length: {length}\r\n"), &plain),
        (format!(": a\r\ncontent-length: {length}\r\n"), &plain),
        (format!("no colon\r\ncontent-length: {length}\r\n"), &plain),
        ("transfer-encoding: xchunked\r\n".to_owned(), &chunked(PING)),
        ("transfer-encoding: identity\r\n".to_owned(), &chunked(PING)),
        ("transfer-encoding: chunked, identity\r\n".to_owned(), &chunked(PING)),
        ("transfer-encoding: chunked\r\ntransfer-encoding: x\r\n".to_owned(), &chunked(PING)),
        ("transfer-encoding: \x0bchunked\r\n".to_owned(), &chunked(PING)),
        ("transfer-encoding: chunked;q=1\r\n".to_owned(), &chunked(PING)),
        ("transfer-encoding: \"chunked\"\r\n".to_owned(), &chunked(PING)),
        ("transfer-encoding : chunked\r\n".to_owned(), &chunked(PING)),
    ] {
        let mut raw = house.raw().await;
        let answer = raw.write(format!("{}{body}{smuggled}", head(client, &framing))).await.answer().await;
        assert_eq!(answer.status, 400, "{framing:?}: {answer:?}");
        assert_eq!(raw.rest().await, "", "{framing:?}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_content_length_beside_chunks_is_ignored_and_ends_the_connection() {
    let house = House::new("").await;
    let smuggled = post(&house.witness, SMUGGLED);
    let (chunked, length) = (chunked(PING), PING.len());
    for framing in [
        format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"),
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n".to_owned(),
        format!("content-length: {}\r\ntransfer-encoding: Chunked\r\n", chunked.len() + smuggled.len()),
    ] {
        let mut raw = house.raw().await;
        let answer = raw.write(format!("{}{chunked}{smuggled}", head(&house.witness, &framing))).await.answer().await;
        assert_eq!(answer.status, 200, "{framing:?}: {answer:?}");
        // What follows belongs to no request: RFC 9112, section 6.1.
        assert_eq!(raw.rest().await, "", "{framing:?}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn invalid_chunks_are_400_and_end_the_connection() {
    let house = House::new("").await;
    let head = head(&house.witness, "transfer-encoding: chunked\r\n");
    let smuggled = post(&house.witness, SMUGGLED);
    let long = "e".repeat(100_000);
    for body in [
        "fffffffffffffffff\r\n".to_owned(),
        "10000000000000001\r\n{".to_owned(),
        "-1\r\n{\r\n".to_owned(),
        "+5\r\n{\r\n".to_owned(),
        "0x5\r\nhello\r\n0\r\n\r\n".to_owned(),
        " \r\n".to_owned(),
        "\r\n".to_owned(),
        "5\r\nhelloWORLD\r\n0\r\n\r\n".to_owned(),
        "5\nhello\n0\n\n".to_owned(),
        "5;a\nb\r\nhello\r\n0\r\n\r\n".to_owned(),
        format!("5;{long}\r\nhello\r\n0\r\n\r\n"),
        format!("0\r\n{}", "a: b\r\n".repeat(20_000)),
        format!("0\r\na: {long}\r\n\r\n"),
    ] {
        let mut raw = house.raw().await;
        let answer = raw.write(format!("{head}{body}{smuggled}")).await.answer().await;
        let shown = body.get(..40).unwrap_or(&body);
        assert_eq!((answer.status, answer.code()), (400, -32600), "{shown:?}: {answer:?}");
        assert_eq!(raw.rest().await, "", "{shown:?}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn chunk_extensions_and_trailers_are_ignored_and_not_forwarded() {
    let house = House::new("").await;
    let body = format!("{:x};name=\"v\"\r\n{PING}\r\n0\r\nauthorization: Bearer x\r\nx-trailer: 1\r\n\r\n", PING.len());
    let mut raw = house.raw().await;
    let answer = raw.write(format!("{}{body}", head(&house.witness, "transfer-encoding: chunked\r\n"))).await;
    assert_eq!(answer.answer().await.status, 200);
    let seen = house.upstream.wait_for_message("ping").await;
    for name in ["authorization", "x-trailer", "trailer", "transfer-encoding"] {
        assert!(!seen.headers.contains_key(name), "{seen:?}");
    }
    assert_eq!((seen.header("content-length"), seen.text().len()), (&*seen.text().len().to_string(), seen.body.len()));
    house.still_works().await;
}

#[tokio::test]
async fn a_request_must_name_exactly_one_host_and_it_must_be_ours() {
    let house = House::new("").await;
    let own = house.gate.authority();
    let post = post(&house.witness, PING);
    let with = |line: &str, hosts: &str| {
        post.replacen("POST /mcp HTTP/1.1", line, 1).replacen(&format!("host: {own}\r\n"), hosts, 1)
    };
    let plain = "POST /mcp HTTP/1.1";
    for (line, hosts, status) in [
        (plain, String::new(), 400),
        (plain, format!("host: {own}\r\nhost: {own}\r\n"), 400),
        (plain, format!("host: {own}\r\nHost: evil.example\r\n"), 400),
        (plain, "host: evil.example\r\n".to_owned(), 403),
        (plain, format!("host: {own}, evil.example\r\n"), 403),
        (plain, format!("host: {own}@evil.example\r\n"), 403),
        (plain, format!("host: evil.example\t{own}\r\n"), 403),
        ("POST http://evil.example/mcp HTTP/1.1", format!("host: {own}\r\n"), 403),
        (&format!("POST http://{own}/mcp HTTP/1.1"), "host: evil.example\r\n".to_owned(), 403),
        (&format!("POST http://{own}/mcp HTTP/1.1"), format!("host: {own}\r\n"), 200),
        (plain, format!("host: {own}\r\nx-forwarded-host: evil.example\r\n"), 200),
    ] {
        let answer = house.raw().await.write(with(line, &hosts)).await.answer().await;
        assert_eq!(answer.status, status, "{line} {hosts:?}: {answer:?}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn odd_request_lines_are_refused() {
    let house = House::new("").await;
    let rest = format!("host: {}\r\ncontent-length: 0\r\n\r\n", house.gate.authority());
    for (line, statuses) in [
        ("POST /mcp\0 HTTP/1.1", &[400][..]),
        ("POST /m\x7fcp HTTP/1.1", &[400]),
        ("POST  /mcp HTTP/1.1", &[400]),
        ("POST /mcp HTTP/9.9", &[400]),
        ("POST /mcp", &[400]),
        ("PO ST /mcp HTTP/1.1", &[400]),
        ("POST http:///mcp HTTP/1.1", &[400]),
        ("CONNECT evil.example:443 HTTP/1.1", &[403]),
        ("POST * HTTP/1.1", &[404]),
        ("POST /mcp/../mcp HTTP/1.1", &[404]),
        ("POST //mcp HTTP/1.1", &[404]),
        ("POST /%6dcp HTTP/1.1", &[404]),
    ] {
        let answer = house.raw().await.write(format!("{line}\r\n{rest}")).await.answer().await;
        assert!(statuses.contains(&answer.status), "{line:?}: {answer:?}");
    }
    let old = format!("POST /mcp HTTP/1.0\r\nhost: {}\r\ntransfer-encoding: chunked\r\n\r\n", house.gate.authority());
    assert_eq!(house.raw().await.write(old).await.answer().await.status, 400);
    house.still_works().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_and_apart() {
    let house = House::new("").await;
    let ids: Vec<_> = (10..20).collect();
    let asked: String =
        ids.iter().map(|id| post(&house.witness, &PING.replace("\"id\":1", &format!("\"id\":{id}")))).collect();
    let mut raw = house.raw().await;
    raw.write(asked).await;
    for id in ids {
        let answer = raw.answer().await;
        assert_eq!(answer.body, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
}
