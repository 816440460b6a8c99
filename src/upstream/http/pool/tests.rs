use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::mpsc::{Receiver, Sender, channel},
};

use http_body_util::BodyExt;
use hyper_util::client::legacy::connect::HttpConnector;

use super::*;

/// Answers one request on each connection, closes it with `farewell` when it is told to, and says so. Returns how many
/// requests it has read.
fn closes_each(listener: &TcpListener, farewell: &str, close: &Receiver<()>, closed: &Sender<()>) -> usize {
    let mut count = 0;
    loop {
        let mut connection = listener.accept().expect("a client").0;
        if connection.read(&mut [0; 1024]).expect("open") == 0 {
            return count;
        }
        count += 1;
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("open");
        close.recv().expect("the test says when");
        connection.write_all(farewell.as_bytes()).expect("open");
        drop(connection);
        closed.send(()).expect("the test waits");
    }
}

fn pool(to: &str) -> Pool {
    let to: Uri = to.parse().expect("a URL");
    Pool::new(Connector::new(HttpConnector::new(), &to).expect("no TLS"), to).expect("a host")
}

fn request(to: &str) -> Request<Full<Bytes>> {
    Request::post(to).body(Full::new(Bytes::from_static(b"body"))).expect("valid")
}

#[tokio::test]
async fn a_request_that_finds_its_connection_closed_is_sent_once_over_a_fresh_one() {
    for farewell in ["", "HTTP/1.1 408 Request Timeout\r\n\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let ((close, told), (closed, wait)) = (channel(), channel());
        let serving = std::thread::spawn(move || closes_each(&listener, farewell, &told, &closed));
        let to = format!("http://{address}/mcp");
        let pool = pool(&to);
        for _ in 0..20 {
            pool.request(request(&to)).await.expect("an answer");
            assert_eq!(pool.idle.lock().connections[&Handle::current().id()].len(), 1, "it is kept");
            // The runtime stands still meanwhile, so it does not know of the end when the next request is sent.
            close.send(()).expect("it waits");
            wait.recv().expect("it closes");
        }
        drop(std::net::TcpStream::connect(address).expect("it listens"));
        assert_eq!(serving.join().expect("it ends"), 20);
    }
}

/// Answers every request on one connection, and returns how many there were.
async fn serves(listener: tokio::net::TcpListener, answer: &'static [u8]) -> usize {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let (mut connection, _) = listener.accept().await.expect("a client");
    let (mut count, mut buf) = (0, [0; 1024]);
    while connection.read(&mut buf).await.expect("open") > 0 {
        count += 1;
        connection.write_all(answer).await.expect("open");
    }
    count
}

#[tokio::test]
async fn one_connection_carries_one_request_after_the_other_when_each_answer_is_read_to_its_end() {
    for answer in [
        &b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let to = format!("http://{}/mcp", listener.local_addr().expect("bound"));
        let serving = tokio::spawn(serves(listener, answer));
        let pool = pool(&to);
        for _ in 0..5 {
            pool.request(request(&to)).await.expect("an answer").into_body().collect().await.expect("a body");
        }
        drop(pool);
        assert_eq!(serving.await.expect("it ends"), 5);
    }
}

#[tokio::test]
async fn a_connection_with_an_abandoned_answer_is_kept_if_the_answer_ends_soon_and_otherwise_closed() {
    for (answer, is_kept) in [
        (&b"HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"[..], true),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nbody", false),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let to = format!("http://{}/mcp", listener.local_addr().expect("bound"));
        let serving = tokio::spawn(serves(listener, answer));
        let pool = pool(&to);
        drop(pool.request(request(&to)).await.expect("an answer"));
        if is_kept {
            while pool.idle.lock().connections.is_empty() {
                tokio::task::yield_now().await;
            }
            drop(pool.request(request(&to)).await.expect("an answer on the same connection"));
            drop(pool);
        }
        assert_eq!(serving.await.expect("it ends"), if is_kept { 2 } else { 1 });
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let to = format!("http://{}/mcp", listener.local_addr().expect("bound"));
    let serving = tokio::spawn(serves(listener, b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"));
    let pool = pool(&to);
    pool.request(request(&to)).await.expect("an answer");
    assert_eq!(serving.await.expect("it ends"), 1);
    assert!(!pool.idle.lock().swept, "no task runs without connections");
}

#[test]
fn the_host_header_has_the_host_of_the_uri_without_the_usual_port() {
    for (uri, host) in [
        ("http://localhost:8080/mcp", "localhost:8080"),
        ("http://localhost:80/mcp", "localhost"),
        ("https://[::1]:443/", "[::1]"),
        ("https://example.com:80/", "example.com:80"),
    ] {
        assert_eq!(pool(uri).host, host);
    }
}
