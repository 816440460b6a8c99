//! HTTP/2 frames that no library sends.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{House, PING, SMUGGLED, kit::soon};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING_FRAME: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns a header block of literals.
fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            // Lengths from 127 on take a second byte.
            let length = u8::try_from(text.len().min(127)).unwrap();
            block.push(length);
            if length == 127 {
                block.push(u8::try_from(text.len() - 127).unwrap());
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

/// A connection that has said what HTTP/2 begins with.
struct Frames(TcpStream);

impl Frames {
    async fn open(house: &House) -> Self {
        let mut stream = soon(TcpStream::connect(house.gate.authority())).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        Self(stream)
    }

    async fn write(&mut self, bytes: &[u8]) {
        let _ = soon(self.0.write_all(bytes)).await;
    }

    /// Returns the kind, the stream and the payload of the next frame; `None` at the connection's end.
    async fn next(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        soon(self.0.read_exact(&mut head)).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length.try_into().unwrap()];
        soon(self.0.read_exact(&mut payload)).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some((head[3], stream, payload))
    }

    /// Returns how many streams the server resets before it answers a ping, behind what it has got until now.
    async fn resets(&mut self) -> usize {
        let payload = [7; 8];
        self.write(&frame(PING_FRAME, 0, 0, &payload)).await;
        let mut resets = 0;
        loop {
            match self.next().await.unwrap() {
                (RST_STREAM, ..) => resets += 1,
                (PING_FRAME, _, answer) if answer == payload => return resets,
                _ => {}
            }
        }
    }

    /// Returns the next frame that ends something.
    async fn verdict(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        loop {
            let frame = self.next().await?;
            if matches!(frame.0, HEADERS | RST_STREAM | GOAWAY) {
                return Some(frame);
            }
        }
    }
}

fn request<'a>(house: &'a House, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let own = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/mcp"),
        (":authority", house.gate.authority()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", house.witness.session()),
    ];
    own.into_iter().chain(more.iter().copied()).collect()
}

#[tokio::test]
async fn headers_that_http_2_forbids_end_the_request_and_smuggle_nothing() {
    let house = House::new("").await;
    for more in [
        &[("connection", "close")][..],
        &[("connection", "x-hop"), ("x-hop", "1")],
        &[("transfer-encoding", "chunked")],
        &[("upgrade", "h2c")],
        &[("keep-alive", "1")],
        &[("proxy-connection", "close")],
        &[("te", "gzip")],
        &[("Upper", "case")],
        &[("x", "a\r\ninjected: 1")],
        &[("x", "a\0b")],
        &[("x\r\ninjected", "1")],
        &[("x y", "1")],
        &[(":path", "/other")],
        &[(":unknown", "1")],
        &[("content-length", "5")],
        &[("content-length", "+40")],
    ] {
        let mut frames = Frames::open(&house).await;
        let head = block(&request(&house, more));
        let body = [frame(HEADERS, END_HEADERS, 1, &head), frame(DATA, END_STREAM, 1, SMUGGLED.as_bytes())].concat();
        frames.write(&body).await;
        let verdict = frames.verdict().await;
        // An answer begins with its status: indexed, 400 is 0x8c.
        let refused = match &verdict {
            Some((RST_STREAM | GOAWAY, ..)) | None => true,
            Some((_, _, head)) => head.first() == Some(&0x8c),
        };
        assert!(refused, "{more:?}: {verdict:?}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_host_header_beside_the_authority_must_be_ours_too() {
    let house = House::new("").await;
    for (host, status) in [("evil.example", "403"), (house.gate.authority(), "200")] {
        let mut frames = Frames::open(&house).await;
        let head = block(&request(&house, &[("host", host)]));
        frames
            .write(&[frame(HEADERS, END_HEADERS, 1, &head), frame(DATA, END_STREAM, 1, PING.as_bytes())].concat())
            .await;
        let (kind, _, head) = frames.verdict().await.unwrap();
        assert_eq!(kind, HEADERS);
        // 200 is the eighth entry of the static table, 403 no entry of it.
        assert_eq!(head[0] == 0x88, status == "200", "{host}: {head:?}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_flood_of_streams_that_are_opened_and_reset_ends_the_connection() {
    let house = House::new("").await;
    let mut frames = Frames::open(&house).await;
    let head = block(&request(&house, &[]));
    let cancel = 8_u32.to_be_bytes();
    let burst: Vec<u8> = (0..5000)
        .flat_map(|n| {
            [frame(HEADERS, END_HEADERS, 2 * n + 1, &head), frame(RST_STREAM, 0, 2 * n + 1, &cancel)].concat()
        })
        .collect();
    let (mut read, mut write) = frames.0.into_split();
    let writing = tokio::spawn(async move { write.write_all(&burst).await.is_ok() });
    let mut answer = Vec::new();
    // ENHANCE_YOUR_CALM, and the end.
    let _ = soon(read.read_to_end(&mut answer)).await;
    assert!(answer.windows(5).any(|part| part[0] == GOAWAY && part[1..] == [0; 4]), "{} bytes", answer.len());
    drop(soon(writing).await);
    house.still_works().await;
    frames = Frames::open(&house).await;
    frames.write(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&request(&house, &[])))).await;
    assert!(frames.verdict().await.is_some());
}

#[tokio::test]
async fn floods_of_pings_settings_empty_data_and_continuations_disturb_no_client() {
    let house = House::new("").await;
    let open = frame(HEADERS, 0, 1, &block(&request(&house, &[])));
    let begun = frame(HEADERS, END_HEADERS, 1, &block(&request(&house, &[])));
    for (before, flood) in [
        (Vec::new(), frame(PING_FRAME, 0, 0, &[7; 8])),
        (Vec::new(), frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        (begun, frame(DATA, 0, 1, &[])),
        (open, frame(CONTINUATION, 0, 1, &block(&[("x", "y")]))),
    ] {
        let kind = flood[3];
        let frames = Frames::open(&house).await;
        let (mut read, mut write) = frames.0.into_split();
        // Writes and does not read, until there is no more room or the connection ends.
        let flooding = async {
            write.write_all(&before).await?;
            for _ in 0..2000 {
                write.write_all(&flood.repeat(100)).await?;
            }
            std::io::Result::Ok(())
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), flooding).await;
        assert_eq!(soon(house.witness.ask("ping", json!({}))).await, json!({}), "{kind}");
        if matches!(kind, DATA | CONTINUATION) {
            // These have a limit of their own, which ends the connection.
            let mut answer = Vec::new();
            let _ = soon(read.read_to_end(&mut answer)).await;
        }
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_connection_may_have_128_streams_and_says_so() {
    const MAX_CONCURRENT_STREAMS: [u8; 2] = [0, 3];
    let house = House::new("").await;
    let mut frames = Frames::open(&house).await;
    let (kind, _, settings) = frames.next().await.unwrap();
    assert_eq!(kind, SETTINGS);
    let of = |setting: [u8; 2]| settings.chunks(6).find_map(|one| one.strip_prefix(&setting).map(<[u8]>::to_vec));
    assert_eq!(of(MAX_CONCURRENT_STREAMS), Some(128_u32.to_be_bytes().to_vec()));
}

/// Sends the head of a request that is refused whatever its body is, and returns the connection once the refusal is
/// there.
async fn refused_by_its_head(house: &House) -> Frames {
    let mut frames = Frames::open(house).await;
    let head = block(&request(house, &[("host", "evil.example")]));
    frames.write(&frame(HEADERS, END_HEADERS, 1, &head)).await;
    assert_eq!(frames.verdict().await.unwrap().0, HEADERS);
    frames
}

#[tokio::test]
async fn a_refusal_that_comes_before_the_body_of_its_request_is_not_followed_by_a_reset() {
    let house = House::new("").await;
    let mut frames = refused_by_its_head(&house).await;
    frames.write(&[frame(DATA, 0, 1, b"{"), frame(DATA, END_STREAM, 1, b"}")].concat()).await;
    assert_eq!(frames.resets().await, 0);
    house.still_works().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_after_the_refusal_of_its_request_is_waited_for_a_moment() {
    let house = House::new("").await;
    let mut frames = refused_by_its_head(&house).await;
    assert_eq!(frames.verdict().await.unwrap().0, RST_STREAM);
    house.still_works().await;
}

#[tokio::test]
async fn refused_requests_whose_bodies_do_not_come_are_waited_for_up_to_512_of_them() {
    let house = House::new("").await;
    let (mut resets, mut connections) = (0, Vec::new());
    let begun = Instant::now();
    for _ in 0..8 {
        let mut frames = Frames::open(&house).await;
        let head = block(&request(&house, &[("host", "evil.example")]));
        for n in 0..100 {
            frames.write(&frame(HEADERS, END_HEADERS, 2 * n + 1, &head)).await;
        }
        let mut answers = 0;
        while answers < 100 {
            match frames.next().await.unwrap().0 {
                HEADERS => answers += 1,
                RST_STREAM => resets += 1,
                _ => {}
            }
        }
        resets += frames.resets().await;
        connections.push(frames);
    }
    assert!(resets >= 800 - 512, "{resets}");
    // Those that are waited for are reset later on.
    if begun.elapsed() < Duration::from_millis(1500) {
        assert_eq!(resets, 800 - 512);
    }
    house.still_works().await;
}
