//! What happens where the file of the audit log hangs.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};

use crate::{
    file,
    kit::{Binary, Client, Port, Upstream, eventually},
};

/// The kinds of store.
const STORES: [&str; 2] = ["memory", "file"];

/// Writes a configuration into a folder, with a store that is there if it has a file, and an audit log that goes to a
/// FIFO there.
fn configuration(dir: &tempfile::TempDir, store: &str) -> String {
    let [fifo, config, path] = ["audit", "config.toml", "store.db"].map(|file| dir.path().join(file));
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let [fifo, path] = [&fifo, &path].map(|path| path.display().to_string());
    let path = if store == "file" { format!("path = {path:?}\n") } else { String::new() };
    let text = format!("[audit]\nto = \"file\"\nfile = {fifo:?}\n[store]\nkind = {store:?}\n{path}");
    std::fs::write(&config, text).unwrap();
    config.display().to_string()
}

/// Starts taskgate with that configuration, at an address.
fn audited(dir: &tempfile::TempDir, upstream: &Upstream, listen: &str, store: &str) -> Binary {
    let config = configuration(dir, store);
    Binary::start(&["serve", "--config", &config, "--upstream", &upstream.url(), "--listen", listen], &[])
}

/// Opens the FIFO for reading. This does not wait for a writer.
fn reader(dir: &tempfile::TempDir) -> std::fs::File {
    std::fs::OpenOptions::new().read(true).write(true).open(dir.path().join("audit")).unwrap()
}

/// Connects as soon as taskgate listens on the port, which is before its start is over.
async fn connected(port: &Port) -> TcpStream {
    eventually(async || TcpStream::connect(port.address()).await.ok()).await
}

#[tokio::test]
async fn an_audit_file_that_hangs_does_not_keep_taskgate_from_ending() {
    let upstream = Upstream::json().await;
    for (second, code, store) in [(false, 0, "memory"), (true, 1, "file")] {
        let dir = tempfile::TempDir::new().unwrap();
        let taskgate = audited(&dir, &upstream, "127.0.0.1:0", store);
        // The FIFO can be opened while taskgate starts, and never again.
        let reader = reader(&dir);
        let client = Client::connect(&taskgate.url().await).await;
        drop(reader);
        client.create_id("slow").await;
        let _slow = upstream.held("slow").await;
        taskgate.signal(Signal::TERM);
        taskgate.logged_after("draining: ").await;
        if second {
            taskgate.signal(Signal::TERM);
        } else {
            client.cancel(&client.list().await[0]).await;
        }
        let ended = taskgate.end().await;
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains("the last lines of the audit log are lost"), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn the_log_says_that_lines_wait_for_an_audit_file_that_hangs_and_when_they_are_written() {
    let upstream = Upstream::json().await;
    let dir = tempfile::TempDir::new().unwrap();
    let taskgate = audited(&dir, &upstream, "127.0.0.1:0", "memory");
    let leaving = reader(&dir);
    let client = Client::connect(&taskgate.url().await).await;
    drop(leaving);
    let told = taskgate.logged_after("the audit log cannot be written; its lines wait");
    let asking = async {
        loop {
            client.error("tasks/get", json!({ "taskId": "unknown" })).await;
            sleep(Duration::from_millis(50)).await;
        }
    };
    let told = tokio::select! {
        told = told => told,
        () = asking => unreachable!("it goes on"),
    };
    assert!(told.contains("audit: it has taken no lines for 5s; a FIFO needs a reader"), "{told}");
    let _reader = reader(&dir);
    taskgate.logged_after("the audit log is written again").await;
}

#[tokio::test]
async fn an_audit_file_that_does_not_open_is_an_error_at_the_start() {
    let upstream = Upstream::json().await;
    let started = STORES.map(|store| {
        let dir = tempfile::TempDir::new().unwrap();
        (audited(&dir, &upstream, "127.0.0.1:0", store), dir)
    });
    let dir = tempfile::TempDir::new().unwrap();
    let config = configuration(&dir, "file");
    let wrapper = Binary::start(&["stdio", "--config", &config, "--upstream", &upstream.url()], &[]);
    for (taskgate, dir) in started.into_iter().chain([(wrapper, dir)]) {
        let ended = taskgate.end().await;
        assert_eq!(ended.code, Some(1));
        assert!(ended.stderr.contains("audit: it does not open within 5s; a FIFO needs a reader"), "{}", ended.stderr);
        assert!(!dir.path().join("store.db").exists());
    }
}

#[tokio::test]
async fn until_the_audit_file_is_open_clients_are_told_to_try_again_and_a_store_is_left_alone() {
    let upstream = Upstream::json().await;
    for store in STORES {
        let (dir, port) = (tempfile::TempDir::new().unwrap(), Port::free());
        let taskgate = audited(&dir, &upstream, &port.address(), store);
        let mut early = connected(&port).await;
        early.write_all(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        early.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("taskgate is starting"), "{answer}");
        assert!(!dir.path().join("store.db").exists());
        let _reader = reader(&dir);
        Client::connect(&taskgate.url().await).await;
        assert_eq!(dir.path().join("store.db").exists(), store == "file");
    }
}

#[tokio::test]
async fn sigterm_while_the_audit_file_does_not_open_ends_taskgate_with_exit_code_0() {
    let upstream = Upstream::json().await;
    for store in STORES {
        let (dir, port) = (tempfile::TempDir::new().unwrap(), Port::free());
        let taskgate = audited(&dir, &upstream, &port.address(), store);
        connected(&port).await;
        taskgate.signal(Signal::TERM);
        let ended = taskgate.end().await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(!ended.stderr.contains("listening on "), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn the_log_says_once_that_lines_wait_for_an_audit_file_that_fails_and_once_that_they_are_written() {
    let upstream = Upstream::json().await;
    let (dir, config) = file("[audit]\nto = \"file\"\nfile = \"audit.jsonl\"\n");
    let taskgate =
        Binary::start(&["serve", "--config", &config, "--upstream", &upstream.url(), "--listen", "127.0.0.1:0"], &[]);
    let client = Client::connect(&taskgate.url().await).await;
    let path = dir.path().join("audit.jsonl");
    let lines = async || {
        client.error("tasks/get", json!({ "taskId": "unknown" })).await;
        let written = || std::fs::read_to_string(&path).ok().filter(|text| text.contains("lookup_failed"));
        eventually(async || written()).await;
    };
    lines().await;
    // A folder takes no lines.
    std::fs::remove_file(&path).and_then(|()| std::fs::create_dir(&path)).unwrap();
    client.error("tasks/get", json!({ "taskId": "unknown" })).await;
    taskgate.logged_after("the audit log cannot be written; its lines wait").await;
    std::fs::remove_dir(&path).unwrap();
    lines().await;
    taskgate.logged_after("the audit log is written again").await;
    std::fs::remove_file(&path).unwrap();
    lines().await;
    taskgate.signal(Signal::TERM);
    let log = taskgate.end().await.stderr;
    for said in ["the audit log cannot be written", "the audit log is written again"] {
        assert_eq!(log.matches(said).count(), 1, "{log}");
    }
}
