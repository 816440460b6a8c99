//! The limits on connections, heads and bodies, each of them reached.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    House, PING,
    kit::{Client, eventually, soon},
    raw::{Raw, head, post},
};

#[tokio::test]
async fn a_head_over_max_head_is_431_and_ends_the_connection() {
    let house = House::new("[server]\nmax_head = \"2KiB\"").await;
    let sized = |size: usize| {
        let post = post(&house.witness, PING);
        let (head, body) = post.split_once("\r\n\r\n").unwrap();
        let rest = size - head.len() - "\r\nx: \r\n\r\n".len();
        format!("{head}\r\nx: {}\r\n\r\n{body}", "y".repeat(rest))
    };
    assert_eq!(house.raw().await.write(sized(2048)).await.answer().await.status, 200);
    for size in [2049, 100_000, 2_000_000] {
        let mut raw = house.raw().await;
        assert_eq!(raw.write(sized(size)).await.answer().await.status, 431, "{size}");
        assert_eq!(raw.rest().await, "");
    }
    let unfinished = format!("GET /mcp HTTP/1.1\r\nx: {}", "y".repeat(2048));
    assert_eq!(house.raw().await.write(unfinished).await.answer().await.status, 431);
    let path = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "y".repeat(2048));
    assert_eq!(house.raw().await.write(path).await.answer().await.status, 431);
    house.still_works().await;
}

#[tokio::test]
async fn more_than_a_hundred_headers_are_431() {
    let house = House::new("").await;
    let headers = "x: y\r\n".repeat(101);
    let many = format!("{}{PING}", head(&house.witness, &format!("content-length: {}\r\n{headers}", PING.len())));
    assert_eq!(house.raw().await.write(many).await.answer().await.status, 431);
    house.still_works().await;
}

#[tokio::test]
async fn over_http_2_a_head_over_max_head_is_431_and_the_connection_goes_on() {
    let house = House::new("[server]\nmax_head = \"2KiB\"").await;
    let client = Client::http2(&house.gate.url).with("mcp-session-id", house.witness.session());
    let large = client.with("x", &"y".repeat(2048));
    assert_eq!(large.open(Method::POST, PING).await.status(), 431);
    assert_eq!(client.ask("ping", json!({})).await, json!({}));
    house.still_works().await;
}

#[tokio::test]
async fn the_connection_that_has_been_half_open_longest_gives_way() {
    let house = House::new("[server]\nmax_connections = 4").await;
    let whole = post(&house.witness, PING);
    let (start, end) = whole.split_at(whole.len() / 2);
    let (most, last) = whole.split_at(whole.len() - 1);
    let [mut silent, mut begun, mut bodyless] = [house.raw().await, house.raw().await, house.raw().await];
    begun.write(start).await;
    bodyless.write(most).await;
    // With the connection of the witness there are four.
    let mut fifth = house.raw().await;
    assert_eq!(fifth.write(&whole).await.answer().await.status, 200);
    assert_eq!(silent.rest().await, "");
    assert_eq!(begun.write(end).await.answer().await.status, 200);
    assert_eq!(house.raw().await.write(&whole).await.answer().await.status, 200);
    assert_eq!(bodyless.write(last).await.rest().await, "");
    // Connections that have sent a whole request are still there.
    assert_eq!(fifth.write(&whole).await.answer().await.status, 200);
    house.still_works().await;
}

#[tokio::test]
async fn among_idle_connections_the_longest_idle_gives_way() {
    let house = House::new("[server]\nmax_connections = 3").await;
    let whole = post(&house.witness, PING);
    let served = async || {
        let mut raw = house.raw().await;
        assert_eq!(raw.write(&whole).await.answer().await.status, 200);
        raw
    };
    // The connection of the witness has been idle for longer than these.
    let [mut first, mut second, mut third] = [served().await, served().await, served().await];
    let fourth = served().await;
    assert_eq!(first.rest().await, "");
    assert_eq!(second.write(&whole).await.answer().await.status, 200);
    served().await;
    assert_eq!(third.rest().await, "");
    for mut raw in [second, fourth] {
        assert_eq!(raw.write(&whole).await.answer().await.status, 200);
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_connection_beyond_max_connections_is_503_while_all_are_in_use_and_served_once_one_is_idle() {
    let house = House::new("[server]\nmax_connections = 2").await;
    let listening = house.witness.get_stream().await;
    let calling = tokio::spawn({
        let witness = house.witness.clone();
        async move { witness.ask("tools/call", json!({ "name": "slow" })).await }
    });
    let held = house.upstream.held("slow").await;
    let whole = post(&house.witness, PING);
    for _ in 0..100 {
        let mut raw = house.raw().await;
        let answer = raw.write(&whole).await.answer().await;
        assert_eq!((answer.status, answer.code()), (503, -32603), "{answer:?}");
        assert!(answer.head.contains("retry-after: 1\r\n"), "{answer:?}");
        assert!(answer.body.contains("limit reached: server.max_connections = 2"), "{answer:?}");
        assert_eq!(raw.rest().await, "");
    }
    held.result("{}");
    assert_eq!(soon(calling).await.unwrap(), json!({}));
    assert_eq!(house.raw().await.write(&whole).await.answer().await.status, 200);
    drop(listening);
}

#[tokio::test]
async fn a_body_that_never_ends_is_413_when_it_is_too_large_and_408_when_it_takes_too_long() {
    let house = House::new("[server]\nbody_timeout = \"300ms\"\nmax_body = \"64KiB\"").await;
    let head = head(&house.witness, "transfer-encoding: chunked\r\n");
    let mut fast = house.raw().await;
    fast.write(&head).await;
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(4096));
    fast.write(chunk.repeat(17)).await;
    assert_eq!(fast.answer().await.status, 413);
    // A byte now and then does not help.
    let mut slow = house.raw().await;
    let begun = Instant::now();
    slow.write(&head).await;
    let writing = async {
        loop {
            slow.write("1\r\n \r\n").await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(400), writing).await;
    let answer = slow.answer().await;
    assert_eq!((answer.status, answer.code()), (408, -32600), "{answer:?}");
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(slow.rest().await, "");
    house.still_works().await;
}

#[tokio::test]
async fn bodies_in_flight_are_bounded_in_total_and_one_that_arrives_whole_is_still_accepted() {
    let house = House::new("[server]\nmax_body_total = \"64KiB\"").await;
    let head = head(&house.witness, "content-length: 100000\r\n");
    let mut first = house.raw().await;
    first.write(&head).await.write(" ".repeat(60_000)).await;
    // However much of the other has been counted by then, both together exceed the limit.
    let mut second = house.raw().await;
    second.write(&head).await.write(" ".repeat(60_000)).await;
    let refused = tokio::select! {
        answer = first.answer() => answer,
        answer = second.answer() => answer,
    };
    assert_eq!((refused.status, refused.code()), (503, -32603));
    assert!(format!("{refused:?}").contains("server.max_body_total = 65536 bytes of bodies are arriving"));
    house.still_works().await;
    // The bytes that were counted are given back.
    drop((first, second));
    let long = json!({ "x": "x".repeat(60_000) });
    eventually(async || (house.witness.answer("ping", long.clone()).await.status == 200).then_some(())).await;
}

#[tokio::test]
async fn an_http_2_preface_that_comes_byte_by_byte_is_recognised() {
    let house = House::new("").await;
    let mut raw: Raw = house.raw().await;
    raw.stream.set_nodelay(true).unwrap();
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" {
        raw.write([*byte]).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // A SETTINGS frame, so taskgate speaks HTTP/2.
    let mut answer = [0; 9];
    soon(tokio::io::AsyncReadExt::read_exact(&mut raw.stream, &mut answer)).await.unwrap();
    assert_eq!(answer[3], 4, "{answer:?}");
    house.still_works().await;
}
