//! What clients and servers can make the process keep, in the worst case of each limit: no more than `docs/security.md`
//! adds up, to within a quarter; and that it is given back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod bodies;
mod cuts;
mod heads;
mod idle;
mod late;
mod modern;
mod old_clients;
mod pieces;
mod questions;
mod queued;
mod results;
mod stdin;

use std::time::Duration;

use kit::{Binary, Client, eventually};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// What a session may take with its stream on both sides, and the headers that are kept for it (`docs/security.md`).
const SESSION: usize = 64 * KIB;
/// What a connection of a client may take with one request on it, beside the session (`docs/security.md`).
const CONNECTION: usize = 192 * KIB;
/// What the process itself may need in addition during a test: its threads' caches, and what is in flight.
const ITSELF: usize = 4 * MIB;
/// With so many bytes more a message fills its buffer, which doubles, almost.
const FULL: usize = 4 * MIB - 16 * KIB;
/// With so many it fills little more than half of one as large.
const HALF: usize = 2 * MIB;
/// jemalloc gives pages back over ten seconds.
const GIVEN_BACK: Duration = Duration::from_secs(25);

/// taskgate as a process, so that its memory is its own.
struct House {
    taskgate: Binary,
    _config: tempfile::NamedTempFile,
    url: String,
    /// Its memory once it was warm.
    before: usize,
}

impl House {
    /// Starts taskgate in front of the server at `upstream`, with keys of `[server]`, and sections.
    async fn before(upstream: &str, server: &str, sections: &str) -> Self {
        Self::in_front_of(&format!("url = \"{upstream}\""), server, sections).await
    }

    /// Starts taskgate in front of a server that has these keys, with keys of `[server]`, and sections.
    async fn in_front_of(upstream: &str, server: &str, sections: &str) -> Self {
        let config = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        // On a busy machine no client here is as quick as the defaults want it.
        let patient = "head_timeout = \"10m\"\nbody_timeout = \"10m\"";
        let server = format!("[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{patient}\n{server}");
        std::fs::write(config.path(), format!("{server}\n{sections}\n[[upstream]]\n{upstream}\n")).unwrap();
        let taskgate = Binary::start(&["serve", "--config", config.path().to_str().unwrap()], &[]);
        let url = taskgate.url().await;
        for _ in 0..4 {
            let client = Client::connect(&url).await;
            client.ask("ping", serde_json::json!({})).await;
            client.delete().await;
        }
        let before = taskgate.peak_memory();
        Self { taskgate, _config: config, url, before }
    }

    /// Returns a metric without labels.
    async fn metric(&self, name: &str) -> usize {
        let metrics = Client::new(&format!("{}/metrics", self.taskgate.admin().await));
        let metrics = metrics.send(http::Method::GET, "").await;
        let value = metrics.text().lines().find_map(|line| line.strip_prefix("taskgate_")?.strip_prefix(name));
        value.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap()
    }

    /// Waits until a metric without labels has this value.
    async fn shows(&self, name: &str, value: usize) {
        eventually(async || (self.metric(name).await == value).then_some(())).await;
    }

    /// Waits until the process has no more memory in addition than documented, to within an eighth: what is free goes back
    /// to the system meanwhile, and what is kept stays.
    async fn settles(&self, what: &str, documented: usize) {
        let grown = || self.taskgate.memory().saturating_sub(self.before);
        let begun = std::time::Instant::now();
        while grown() > documented * 9 / 8 {
            let after = begun.elapsed();
            assert!(after < GIVEN_BACK, "{what}: {} KiB where {} are documented", grown() / KIB, documented / KIB);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        eprintln!("{what}: {} of {} KiB", grown() / KIB, documented / KIB);
    }

    /// Fails if the process has ever had more memory in addition than documented.
    #[track_caller]
    fn holds(&self, what: &str, documented: usize) {
        let grown = self.taskgate.peak_memory() - self.before;
        eprintln!("{what}: {} of {} KiB", grown / KIB, documented / KIB);
        assert!(grown <= documented * 5 / 4, "{what}: {} KiB where {} are documented", grown / KIB, documented / KIB);
    }
}
