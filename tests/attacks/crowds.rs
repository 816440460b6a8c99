//! Crowds of connections on which no complete request ever comes.

use std::time::{Duration, Instant};

use http::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::{
    PING,
    kit::{Binary, Client, Upstream, within},
    raw::{Raw, post},
};

/// How many connections are half open at once.
const CROWD: usize = 2000;
/// Sockets of the test and of the process beside those of the crowd.
const OTHERS: u64 = 200;
/// What one of them may cost in memory, in bytes: hyper's first buffer is the most of it.
const COST: usize = 24 * 1024;

/// Lets this process, and taskgate, which it starts, have as many sockets as the test needs.
fn allow_sockets() {
    let needed = CROWD as u64 + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let raised = Rlimit { current: limit.maximum.map(|maximum| maximum.min(needed)), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).unwrap();
    }
    let allowed = getrlimit(Resource::Nofile).current;
    assert!(allowed.is_none_or(|allowed| allowed >= needed), "needs {needed} file descriptors: raise `ulimit -Hn`");
}

/// Starts taskgate as a process, so that its memory is its own.
async fn outside(upstream: &Upstream, server: &str) -> (Binary, tempfile::NamedTempFile, String) {
    let config = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let text = format!("[server]\nlisten = \"127.0.0.1:0\"\n{server}\n[[upstream]]\nurl = \"{}\"\n", upstream.url());
    std::fs::write(config.path(), text).unwrap();
    let taskgate = Binary::start(&["serve", "--config", config.path().to_str().unwrap()], &[]);
    let url = taskgate.url().await;
    (taskgate, config, url)
}

/// Makes the calls of a client that behaves, one after the other; returns the median time of a call, and the
/// longest. Of many calls the two longest do not count: the machine itself may stall.
async fn behaves(client: &Client, calls: usize) -> (Duration, Duration) {
    let mut times = Vec::new();
    for _ in 0..calls {
        let begun = Instant::now();
        client.ask("tools/call", json!({ "name": "echo", "arguments": {} })).await;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let stalled = if calls > 10 { 2 } else { 0 };
    (times[calls / 2], times[calls - 1 - stalled])
}

/// Opens the crowd: silent ones, and ones that stop in the middle of the head and of the body.
async fn crowd(client: &Client) -> Vec<Raw> {
    let authority = client.url().trim_start_matches("http://").split('/').next().unwrap();
    let whole = post(client, PING);
    let mut crowd = Vec::new();
    for at in 0..CROWD {
        let mut raw = Raw::connect(authority).await;
        let part = [0, whole.len() / 2, whole.len() - 1][at % 3];
        raw.write(&whole[..part]).await;
        crowd.push(raw);
    }
    crowd
}

/// Connects, calls and leaves, while connections are opened faster than a request arrives. A connection of its own may
/// be the oldest half-open one by then, so it tries again, as clients do.
async fn newcomer(url: &str) -> (Duration, Duration) {
    let visit = async |url: String| {
        let client = Client::connect(&url).await;
        let times = behaves(&client, 3).await;
        client.delete().await;
        times
    };
    for _ in 0..10 {
        if let Ok(times) = tokio::spawn(visit(url.to_owned())).await {
            return times;
        }
    }
    panic!("kept out ten times")
}

fn undisturbed((calm, _): (Duration, Duration), (median, longest): (Duration, Duration)) {
    // Other tests share this machine's processors, so only the order of magnitude counts: a disturbed call waits for
    // seconds, until a half-open connection is closed.
    assert!(median < calm * 10 + Duration::from_millis(250), "{median:?} after {calm:?}");
    assert!(longest < Duration::from_secs(2), "{longest:?} after {calm:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_half_open_connections_cost_little_disturb_no_client_and_are_closed_in_time() {
    allow_sockets();
    let upstream = Upstream::json().await;
    let (taskgate, _config, url) = outside(&upstream, "head_timeout = \"3s\"\nbody_timeout = \"3s\"").await;
    let client = Client::connect(&url).await;
    let calm = behaves(&client, 200).await;
    let before = taskgate.peak_memory();
    let (mut crowd, meanwhile) = tokio::join!(crowd(&client), behaves(&client, 500));
    undisturbed(calm, meanwhile);
    undisturbed(calm, behaves(&client, 200).await);
    let grown = taskgate.peak_memory().saturating_sub(before);
    eprintln!("{} bytes for each of {CROWD} half-open connections", grown / CROWD);
    assert!(grown < CROWD * COST, "{} bytes for each", grown / CROWD);
    for (at, raw) in crowd.iter_mut().enumerate() {
        let rest = within(Duration::from_secs(30), raw.rest()).await;
        assert_eq!(rest.get(..12).unwrap_or_default(), if at % 3 == 2 { "HTTP/1.1 408" } else { "" }, "{at}");
    }
    undisturbed(calm, behaves(&client, 200).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_half_open_connections_where_a_hundred_are_allowed_keep_no_client_out() {
    allow_sockets();
    let upstream = Upstream::sse().await;
    let (taskgate, _config, url) =
        outside(&upstream, "max_connections = 100\nhead_timeout = \"60s\"\nadmin = \"127.0.0.1:0\"").await;
    let client = Client::connect(&url).await;
    let mut listening = client.get_stream().await;
    let to_listener = upstream.get_stream().await;
    let calm = behaves(&client, 200).await;
    let (crowd, ()) = tokio::join!(crowd(&client), async {
        // Clients that connect while the crowd is there.
        for _ in 0..50 {
            undisturbed(calm, newcomer(&url).await);
        }
    });
    undisturbed(calm, behaves(&client, 200).await);
    // The stream was in use, so it has not given way.
    to_listener.notify("notifications/x", json!({})).await;
    assert_eq!(listening.message().await["method"], "notifications/x");
    let metrics = Client::new(&format!("{}/metrics", taskgate.admin().await)).send(Method::GET, "").await;
    let figure = |name: &str| {
        let line = metrics.text().lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{metrics:?}"));
        line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    assert!((50..=100).contains(&figure("taskgate_connections ")), "{}", metrics.text());
    let cut = figure("taskgate_connections_cut_total{reason=\"max_connections\"}");
    assert!((CROWD - 100..CROWD + 200).contains(&cut), "{cut}");
    drop((crowd, listening));
    taskgate.signal(rustix::process::Signal::TERM);
    assert_eq!(taskgate.end().await.code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_connections_give_way_where_the_system_allows_fewer_than_max_connections() {
    let upstream = Upstream::json().await;
    let (taskgate, _config, url) = outside(&upstream, "").await;
    taskgate.allow_files(64);
    let client = Client::connect(&url).await;
    let authority = url.trim_start_matches("http://").split('/').next().unwrap();
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(Raw::connect(authority).await);
    }
    let said = taskgate.logged_after("a connection could not be accepted").await;
    assert!(said.starts_with("; raise the limit of open files (ulimit -n, LimitNOFILE=)"), "{said}");
    for _ in 0..5 {
        let newcomer = Client::connect(&url).await;
        behaves(&newcomer, 3).await;
    }
    behaves(&client, 10).await;
}
