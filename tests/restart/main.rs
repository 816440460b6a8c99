//! What clients find after taskgate was killed, or stopped, and started again on the same file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;
#[path = "../modern/client.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod modern_client;

mod clock;
mod interrupted;
mod jobs;
mod late_server;
mod modern;
mod native;
mod on_stdio;
mod one_file;
mod outage;
mod resumed;
mod sessions;
mod settings;
mod stateless;
mod stopping;
mod waiting;

use std::fs;

use rustix::process::Signal;
use tempfile::TempDir;

use kit::{Binary, Client, Finished, Port};

/// Has what waits for the next batch be on the disk: a task is acknowledged when its batch is.
async fn written(client: &Client) {
    let id = client.create_id("echo").await;
    client.until(&id, "completed").await;
}

/// taskgate with its tasks in a file.
struct House {
    folder: TempDir,
    running: Option<Binary>,
    port: Port,
    /// The endpoint, the same after each start.
    url: String,
    env: Vec<(String, String)>,
}

impl House {
    /// Starts taskgate in front of the server at `url`, with this beginning of its configuration.
    async fn before(url: &str, config: &str) -> Self {
        Self::configured(&format!("{config}\n[[upstream]]\nurl = \"{url}\"\n"), &[]).await
    }

    /// Starts taskgate with this configuration and these variables.
    async fn configured(config: &str, env: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut house = Self { folder, running: None, port: Port::free(), url: String::new(), env };
        house.configure(config);
        house.start_again().await;
        house
    }

    /// Changes the configuration, for the next start.
    fn configure(&self, config: &str) {
        fs::write(self.folder.path().join("config.toml"), config).unwrap();
    }

    /// Starts taskgate, each time at the same address.
    async fn start_again(&mut self) {
        let [config, store] = ["config.toml", "store.db"].map(|file| self.folder.path().join(file));
        let (config, store) = (config.to_str().unwrap(), store.to_str().unwrap());
        let listen = self.port.address();
        let args = ["serve", "--config", config, "--listen", &listen, "--store", store, "--log", "debug"];
        let env: Vec<_> = self.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let running = Binary::start(&args, &env);
        self.url = running.url().await;
        self.running = Some(running);
    }

    /// Sends a signal, and waits for the end.
    async fn end(&mut self, signal: Signal) -> Finished {
        let running = self.running.take().unwrap();
        running.signal(signal);
        running.end().await
    }

    /// Kills taskgate, and starts it again.
    async fn restart(&mut self) {
        self.end(Signal::KILL).await;
        self.start_again().await;
    }
}
