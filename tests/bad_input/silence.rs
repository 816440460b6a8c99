//! Connections on which nothing comes, in the test's own time.

use std::time::Duration;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use crate::{House, kit::within};

/// How long a connection is kept on which this was sent and nothing more comes.
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
async fn a_connection_on_which_no_whole_request_comes_is_closed_after_a_minute() {
    let house = House::new("").await;
    let head = format!("POST /mcp HTTP/1.1\r\nhost: {}\r\n", house.gate.authority());
    let body = format!("{head}content-type: application/json\r\naccept: */*\r\ncontent-length: 100\r\n\r\n{{");
    let http2 = "PRI * HTTP/2.0\r\n\r\nSM";
    for beginning in ["", "P", "PRI", http2, &head, &body] {
        let kept = kept(&house, beginning).await;
        assert!((60..=61).contains(&kept.as_secs()), "{beginning:?}: {kept:?}");
    }
    assert_eq!(house.witness.ask("ping", json!({})).await, json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_idle_after_a_request_is_closed_after_a_minute() {
    let house = House::new("").await;
    let request = format!("DELETE /mcp HTTP/1.1\r\nhost: {}\r\n\r\n", house.gate.authority());
    let kept = kept(&house, &request).await;
    assert!((60..=61).contains(&kept.as_secs()), "{kept:?}");
    assert_eq!(house.witness.ask("ping", json!({})).await, json!({}));
}
