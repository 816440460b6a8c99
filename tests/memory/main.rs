//! What clients and servers can make the process keep, in the worst case of each limit: no more than `docs/security.md`
//! adds up, to within a quarter; and that it is given back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod cuts;
mod heads;
mod idle;
mod queued;

use kit::{Binary, Client};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// What a session may take with its stream on both sides, and the headers that are kept for it (`docs/security.md`).
const SESSION: usize = 64 * KIB;
/// What a connection of a client may take with one request on it, beside the session (`docs/security.md`).
const CONNECTION: usize = 192 * KIB;
/// What the process itself may need in addition during a test: its threads' caches, and what is in flight.
const ITSELF: usize = 4 * MIB;

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
        let config = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        // On a busy machine no client here is as quick as the defaults want it.
        let patient = "head_timeout = \"10m\"\nbody_timeout = \"10m\"";
        let server = format!("[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n{patient}\n{server}");
        std::fs::write(config.path(), format!("{server}\n{sections}\n[[upstream]]\nurl = \"{upstream}\"\n")).unwrap();
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

    /// Fails if the process has ever had more memory in addition than documented.
    #[track_caller]
    fn holds(&self, what: &str, documented: usize) {
        let grown = self.taskgate.peak_memory() - self.before;
        eprintln!("{what}: {} of {} KiB", grown / KIB, documented / KIB);
        assert!(grown <= documented * 5 / 4, "{what}: {} KiB where {} are documented", grown / KIB, documented / KIB);
    }
}
