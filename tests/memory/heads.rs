//! Requests that take much more memory than their messages: large heads, many headers, missing bodies, pipelines.

use std::fmt::Write as _;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{CONNECTION, House, ITSELF, KIB, MIB, SESSION};
use crate::kit::{Client, Upstream, soon};

/// How many connections there are.
const MANY: usize = 100;

fn authority(house: &House) -> &str {
    house.url.trim_start_matches("http://").split('/').next().unwrap()
}

/// Returns a client whose requests have as many and as long headers as may go on to a server.
fn with_largest_head(client: &Client) -> Client {
    (0..60).fold(client.clone(), |client, n| client.with(&format!("x-{n}"), &"y".repeat(180)))
}

#[tokio::test]
async fn sessions_whose_clients_send_large_heads_take_no_more_than_their_share() {
    let upstream = Upstream::sse().await;
    let house = House::before(&upstream.url(), "", "").await;
    let mut open = Vec::new();
    for _ in 0..MANY {
        let client = with_largest_head(&Client::connect(&house.url).await);
        open.push((client.get_stream().await, client, upstream.get_stream().await));
    }
    house.holds("sessions", MANY * SESSION + ITSELF);
    // Beyond that there is an error, and it names the limit.
    let (_, client, _) = &open[0];
    let more = client.with("x-more", &"y".repeat(20_000));
    let (status, code, why) = more.answer("ping", json!({})).await.refusal();
    assert_eq!((status, code), (431, -32600));
    assert!(why.contains("take more than 24576 bytes"), "{why}");
}

#[tokio::test]
async fn little_is_read_of_requests_pipelined_behind_one_that_waits() {
    let upstream = Upstream::json().await;
    let house = House::before(&upstream.url(), "", "").await;
    let client = Client::connect(&house.url).await;
    let post = |tool: &str, padding: usize| {
        let spaces = " ".repeat(padding);
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"{spaces}}}}}"#);
        let mut head = format!("POST /mcp HTTP/1.1\r\nhost: {}\r\n", authority(&house));
        for (name, value) in &client.headers {
            write!(head, "{name}: {}\r\n", value.to_str().unwrap()).unwrap();
        }
        format!("{head}content-length: {}\r\n\r\n{body}", body.len())
    };
    // A long one first, so that taskgate reads as much at once as it ever does.
    let pipeline = format!("{}{}{}", post("echo", MIB), post("slow", 0), post("echo", MIB));
    let mut open = Vec::new();
    for _ in 0..MANY {
        let mut stream = soon(TcpStream::connect(authority(&house))).await.unwrap();
        let pipeline = pipeline.clone();
        let writing = tokio::spawn(async move {
            let written = stream.write_all(pipeline.as_bytes()).await;
            (stream, written)
        });
        open.push((upstream.held("slow").await, writing));
    }
    // One of the long ones is always in flight.
    house.holds("pipelines", MANY * CONNECTION + 2 * MIB + ITSELF);
}

/// Returns a frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns the head of a POST of a client with so many more headers, of which each is one byte on the wire.
fn block(client: &Client, authority: &str, more: usize) -> Vec<u8> {
    let headers = client.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
    let pseudo = [(":method", "POST"), (":scheme", "http"), (":path", "/mcp"), (":authority", authority)];
    let mut block = Vec::new();
    for (name, value) in pseudo.into_iter().chain(headers) {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    // `accept-charset` without a value is the fifteenth entry of the static table.
    block.extend(vec![0x80 | 15; more]);
    block
}

#[tokio::test]
async fn requests_over_http_2_whose_bodies_do_not_come_take_no_more_than_max_body_total() {
    const STREAMS: u32 = 128;
    const TOTAL: usize = 8 * MIB;
    const HEAD: usize = 16 * KIB;
    // What a stream takes while its request is being refused.
    const STREAM: usize = 2 * KIB;
    // All heads of one connection may have come before taskgate looks at the first.
    let looked_at = std::thread::available_parallelism().unwrap().get() * 128 * 3 * HEAD;
    for (what, more) in [("short heads", 0), ("long heads", 320)] {
        let upstream = Upstream::json().await;
        let house = House::before(&upstream.url(), &format!("max_head = {HEAD}\nmax_body_total = {TOTAL}"), "").await;
        let client = Client::connect(&house.url).await;
        let head = block(&client, authority(&house), more);
        let mut open = Vec::new();
        for _ in 0..MANY {
            let mut stream = soon(TcpStream::connect(authority(&house))).await.unwrap();
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            bytes.extend(frame(4, 0, 0, &[]));
            // HEADERS that do not end the stream.
            (0..STREAMS).for_each(|n| bytes.extend(frame(1, 4, 2 * n + 1, &head)));
            // A PING, whose answer says that taskgate has read all of them.
            bytes.extend(frame(6, 0, 0, &[7; 8]));
            soon(stream.write_all(&bytes)).await.unwrap();
            open.push(stream);
        }
        for stream in &mut open {
            let mut came = Vec::new();
            while !came.windows(14).any(|part| part[..2] == [6, 1] && part[6..] == [7; 8]) {
                soon(stream.read_buf(&mut came)).await.unwrap();
            }
        }
        // A request that comes whole is still served.
        client.ask("ping", json!({})).await;
        house.holds(what, TOTAL + MANY * (3 * HEAD + 128 * STREAM) + looked_at + ITSELF);
    }
}
