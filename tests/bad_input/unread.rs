//! Requests that are refused before their bodies have come.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::kit::{Gate, Upstream};

const AUTH: &str = r#"
[auth]
mode = "header"
header = "x-user"
trusted_peers = ["127.0.0.1"]
"#;

/// More than the buffers of a connection hold.
const LARGE: usize = 8 << 20;
/// Of this hyper reads only a part after an answer.
const SOME: usize = 32 << 10;

/// Sends a request whole before anything is read, as many clients do, and returns the head of the answer.
async fn answer_after_all_was_sent(url: &str, head: &str, size: usize) -> String {
    let host = url.trim_start_matches("http://").split('/').next().unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let path = if head.is_empty() { "/nowhere" } else { "/mcp" };
    let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{head}content-length: {size}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; size]).await.expect("the connection stays open while the body comes");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("the answer is not taken back");
    let answer = String::from_utf8(answer).unwrap();
    answer.split("\r\n\r\n").next().unwrap().to_owned()
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_sends_its_whole_body_before_it_reads_and_says_that_it_closes() {
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, AUTH).await;
    let json = "content-type: application/json\r\naccept: */*\r\n";
    let ann = format!("{json}x-user: ann\r\n");
    let text = "content-type: text/plain\r\nx-user: ann\r\n";
    let page = "content-type: application/json\r\naccept: text/html\r\nx-user: ann\r\n";
    for (head, status, size) in [
        (&*ann, "413", LARGE),
        (&format!("{ann}content-encoding: gzip\r\n"), "415", LARGE),
        (text, "415", LARGE),
        (page, "406", LARGE),
        (&format!("{ann}origin: https://elsewhere.example\r\n"), "403", LARGE),
        (json, "401", LARGE),
        ("", "404", LARGE),
        (text, "415", SOME),
        (page, "406", SOME),
    ] {
        let answer = answer_after_all_was_sent(&gate.url, head, size).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
}
