//! Answers whose head is not what the protocol asks for.

use std::time::Duration;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use crate::{
    House,
    kit::{
        Gate,
        bad::{DONE, Step, json_answer},
        within,
    },
};

fn raw(text: &str) -> Step {
    Step::Raw(text.to_owned())
}

/// Returns the answer of a tool that succeeded, under this status line and these headers.
fn whole(head: &'static str) -> Step {
    Step::Whole(head, DONE.to_owned())
}

#[tokio::test]
async fn an_answer_of_another_content_type_is_an_error_that_names_it() {
    let house = House::new().await;
    for (answer, words) in [
        (whole("200 OK\r\ncontent-type: text/html"), ["HTTP 200 OK", "\"text/html\""]),
        (whole("200 OK\r\ncontent-type: application/jsonl"), ["HTTP 200 OK", "\"application/jsonl\""]),
        (whole("200 OK\r\ncontent-type: application/octet-stream"), ["HTTP 200", "application/octet-stream"]),
        (whole("200 OK"), ["HTTP 200 OK", "content type \"\""]),
        (whole("202 Accepted\r\ncontent-type: text/plain"), ["HTTP 202 Accepted", "\"text/plain\""]),
        (raw("HTTP/1.1 204 No Content\r\n\r\n"), ["HTTP 204 No Content", "content type \"\""]),
        (raw("HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\n\r\n"), ["HTTP 205", "content type \"\""]),
        (raw("HTTP/1.1 304 Not Modified\r\n\r\n"), ["HTTP 304", ""]),
        (whole("600 Beyond\r\ncontent-type: text/plain"), ["HTTP 600", ""]),
        (whole("200 OK\r\ncontent-encoding: gzip\r\ncontent-type: application/json"), ["content encoding", "gzip"]),
        (whole("200 OK\r\ncontent-encoding: br\r\ncontent-type: text/event-stream"), ["content encoding", "br"]),
    ] {
        house.bad.on_call(words[1], vec![answer]);
        house.fails(words[1], &words).await;
    }
    house
        .bad
        .on_call("plain", vec![whole("200 OK\r\ncontent-encoding: identity\r\nContent-Type: application/JSON ; x=y")]);
    house.succeeds("plain").await;
    house.still_works().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_the_error_says_where_it_leads() {
    let house = House::new().await;
    for status in
        ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let there = format!("{}/there", house.bad.url());
        let head = format!("HTTP/1.1 {status}\r\nlocation: {there}\r\ncontent-length: 0\r\n\r\n");
        house.bad.on_call(status, vec![raw(&head)]);
        house.fails(status, &[status, &there, "not followed"]).await;
    }
    assert_eq!(house.bad.stray_requests(), 0);
    house.still_works().await;
}

#[tokio::test]
async fn interim_responses_are_skipped() {
    let house = House::new().await;
    let interim = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n";
    house.bad.on_call("early", vec![raw("HTTP/1.1 100 Continue\r\n\r\n"), raw(&interim.repeat(50)), json_answer(DONE)]);
    house.succeeds("early").await;
    house.bad.on_call("never", vec![raw(interim), Step::Close]);
    house.fails("never", &["ended its answer before the response"]).await;
    house
        .bad
        .on_call("switch", vec![raw("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n")]);
    house.fails("switch", &["101 Switching Protocols"]).await;
    house.still_works().await;
}

#[tokio::test]
async fn an_unreadable_head_is_an_invalid_answer() {
    let house = House::new().await;
    let many = "x: y\r\n".repeat(1000);
    let long = format!("x-long: {}\r\n", "x".repeat(2_000_000));
    for (tool, head) in [
        ("many headers", format!("HTTP/1.1 200 OK\r\n{many}\r\n")),
        ("a long header", format!("HTTP/1.1 200 OK\r\n{long}\r\n")),
        ("no HTTP", "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n\r\n".into()),
        ("a bad status", "HTTP/1.1 20O OK\r\n\r\n".into()),
        ("a bad header", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n".into()),
        ("two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n{}".into()),
        ("no number", "HTTP/1.1 200 OK\r\ncontent-length: five\r\n\r\n{}".into()),
        ("a TLS alert", "\u{15}\u{3}\u{3}\0\u{2}\u{2}(".into()),
    ] {
        house.bad.on_call(tool, vec![raw(&head), Step::Close]);
        house.fails(tool, &["gave an invalid answer: "]).await;
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_wrong_content_length_is_an_error_and_leaves_nothing_for_the_next_call() {
    let house = House::new().await;
    let head = |length: usize| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n")
    };
    house.bad.on_call("too long", vec![raw(&head(10_000)), raw(DONE), Step::Close]);
    house.fails("too long", &["ended its answer before the response"]).await;
    house.bad.on_call("too short", vec![raw(&head(10)), raw(DONE)]);
    house.fails("too short", &["gave an invalid answer"]).await;
    house.bad.on_call("none", vec![raw(&head(0)), raw(DONE)]);
    house.fails("none", &["gave an invalid answer"]).await;
    house.bad.on_call("beyond", vec![raw(&head(1 << 40)), raw("["), raw(DONE), Step::Close]);
    for outcome in house.both("beyond").await {
        let why = outcome.unwrap_err();
        assert!(why.contains("larger than the limit") || why.contains("larger than max_result"), "{why}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn bytes_after_an_answer_are_not_taken_for_the_next_one() {
    let house = House::new().await;
    let forged = DONE.replace("done", "forged");
    // Whichever number the next request has.
    let answers: String = (0..20).map(|n| forged.replace("$ID", &n.to_string()) + ",").collect();
    let body = format!("[{}]", answers.trim_end_matches(','));
    house
        .bad
        .on_call("smuggler", vec![json_answer(DONE), Step::Whole("200 OK\r\ncontent-type: application/json", body)]);
    for _ in 0..5 {
        house.succeeds("smuggler").await;
        house.succeeds("innocent").await;
    }
    house.still_works().await;
}

#[tokio::test(start_paused = true)]
async fn initialize_is_given_up_after_a_minute_without_an_answer() {
    // The system accepts connections, and no server speaks on them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gate = Gate::to(&format!("http://{}/mcp", silent.local_addr().unwrap()), "").await;
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }).to_string();
    let head = format!("POST /mcp HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", gate.authority());
    let head = format!("{head}content-type: application/json\r\naccept: */*\r\ncontent-length: {}\r\n", body.len());
    let mut connection = TcpStream::connect(gate.authority()).await.unwrap();
    let begun = Instant::now();
    connection.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(Duration::from_mins(10), connection.read_to_string(&mut answer)).await.unwrap();
    assert!((60..=61).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert!(answer.contains("did not answer within 1m"), "{answer}");
}
