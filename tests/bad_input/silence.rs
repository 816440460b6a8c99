//! Silent connections, in the test's own time.

use std::time::Duration;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use crate::{House, kit::within};

/// Returns how long a connection is kept after this was sent and nothing more comes.
async fn kept(house: &House, beginning: &str) -> Duration {
    let mut connection = TcpStream::connect(house.gate.authority()).await.unwrap();
    let opened = Instant::now();
    connection.write_all(beginning.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Closed, with or without a word before.
    let _ = within(Duration::from_mins(10), connection.read_to_end(&mut answer)).await;
    opened.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_complete_head_is_closed_after_head_timeout() {
    for (toml, expected) in [("", 10..=11), ("[server]\nhead_timeout = \"3s\"", 3..=3)] {
        let house = House::new(toml).await;
        let head = format!("POST /mcp HTTP/1.1\r\nhost: {}\r\n", house.gate.authority());
        for beginning in ["", "P", "PRI", "PRI * HTTP/2.0\r\n\r\nSM", &head] {
            let kept = kept(&house, beginning).await;
            assert!(expected.contains(&kept.as_secs()), "{beginning:?}: {kept:?}");
        }
        assert_eq!(house.witness.ask("ping", json!({})).await, json!({}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_408_after_body_timeout() {
    for (toml, expected, said) in [("", 60, "1m"), ("[server]\nbody_timeout = \"3s\"", 3, "3s")] {
        let house = House::new(toml).await;
        let head = format!("POST /mcp HTTP/1.1\r\nhost: {}\r\n", house.gate.authority());
        let head = format!("{head}content-type: application/json\r\naccept: */*\r\ncontent-length: 100\r\n\r\n{{");
        let mut connection = TcpStream::connect(house.gate.authority()).await.unwrap();
        let opened = Instant::now();
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        within(Duration::from_mins(10), connection.read_to_string(&mut answer)).await.unwrap();
        assert_eq!(opened.elapsed().as_secs(), expected);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains(&format!("server.body_timeout = {said}")), "{answer}");
        assert_eq!(house.witness.ask("ping", json!({})).await, json!({}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_idle_after_a_request_is_closed_after_a_minute() {
    let house = House::new("").await;
    let request = format!("DELETE /mcp HTTP/1.1\r\nhost: {}\r\n\r\n", house.gate.authority());
    let kept = kept(&house, &request).await;
    assert!((60..=61).contains(&kept.as_secs()), "{kept:?}");
    assert_eq!(house.witness.ask("ping", json!({})).await, json!({}));
}

#[tokio::test(start_paused = true)]
async fn the_head_of_a_further_request_must_come_within_head_timeout_too() {
    let house = House::new("").await;
    let request = format!("DELETE /mcp HTTP/1.1\r\nhost: {}\r\n\r\n", house.gate.authority());
    let mut connection = TcpStream::connect(house.gate.authority()).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 1024];
    assert!(within(Duration::from_secs(5), connection.read(&mut answer)).await.unwrap() > 0);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let begun = Instant::now();
    connection.write_all(b"DELETE").await.unwrap();
    while within(Duration::from_mins(10), connection.read(&mut answer)).await.unwrap_or(0) > 0 {}
    let kept = begun.elapsed();
    assert!((10..=11).contains(&kept.as_secs()), "{kept:?}");
}
