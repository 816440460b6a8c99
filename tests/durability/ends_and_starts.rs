//! A stop while the disk takes nothing, and starts that find sessions and tasks of which something has gone wrong.

use std::sync::Arc;

use rustix::process::Signal;
use serde_json::json;
use taskgate::disk::{Disk, OpenOptions, SavedSession, SessionWrites};
use tempfile::TempDir;

use crate::{
    kit::{
        Binary, Client, Finished, Port, Seen, Upstream, eventually,
        shim::{CHANGES, Fault, SYNC, Shim},
    },
    modern_client::Modern,
};

/// taskgate on a watched disk.
struct House {
    upstream: Upstream,
    shim: Shim,
    folder: TempDir,
    running: Option<Binary>,
    port: Port,
    /// The same after each start.
    url: String,
}

impl House {
    async fn open() -> Self {
        let (upstream, shim, folder) = (Upstream::sse().await, Shim::new(), TempDir::new().unwrap());
        let limits = "tasks.max_running = 1000\ntasks.max_running_total = 1000\nserver.drain_timeout = \"1s\"\ntasks.task_after = \"0s\"\nrate.creations = \"10000/s\"";
        let text = format!("{limits}\n[[upstream]]\nurl = \"{}\"\n", upstream.url());
        std::fs::write(folder.path().join("config.toml"), text).unwrap();
        let mut house = Self { upstream, shim, folder, running: None, port: Port::free(), url: String::new() };
        assert!(house.start_again().await);
        house
    }

    /// Starts taskgate. Returns whether it serves, and has not ended.
    async fn start_again(&mut self) -> bool {
        let (config, store) = (self.folder.path().join("config.toml"), self.shim.store());
        let (config, store) = (config.to_str().unwrap(), store.to_str().unwrap());
        let variables = self.shim.variables(false);
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let listen = self.port.address();
        let running = Binary::start(&["serve", "--config", config, "--listen", &listen, "--store", store], &variables);
        let started = running.listens_or_ends().await;
        self.running = started.ok().map(|(running, url)| {
            self.url = url;
            running
        });
        self.running.is_some()
    }

    /// Starts taskgate on a disk that fails at the first moment at which a start goes on.
    async fn start_on_a_disk_that_fails(&mut self) {
        for number in 1.. {
            self.shim.fail(CHANGES, number, u64::MAX, Fault::Broken);
            if self.start_again().await {
                assert!(self.shim.failed() > 0);
                return;
            }
        }
    }

    async fn end(&mut self, signal: Signal) -> Finished {
        let running = self.running.take().unwrap();
        running.signal(signal);
        running.end().await
    }

    /// Opens the file while no process has it.
    fn file(&self) -> Disk {
        let options = OpenOptions { path: self.shim.store(), key: None, old_keys: Vec::new(), max_bytes: 1 << 26 };
        Disk::open(&options, &Arc::default()).unwrap().0
    }
}

#[tokio::test]
async fn a_stop_says_how_many_ends_the_disk_has_not_taken() {
    let mut house = House::open().await;
    Modern::with_tasks(&house.url).call("slow").await;
    let slow = house.upstream.held("slow").await.sse();
    house.shim.fail_all(CHANGES, Fault::Broken);
    slow.result(r#"{"content":[]}"#).await;
    eventually(async || (house.shim.failed() > 0).then_some(())).await;
    let ended = house.end(Signal::TERM).await;
    assert!(ended.stderr.contains("the store has not taken the last change"), "{}", ended.stderr);
    assert!(ended.stderr.contains("tasks=1") || ended.stderr.contains("\"tasks\":1"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_session_stays_ended_though_taskgate_is_killed_right_behind_the_answer_on_a_slow_disk() {
    let mut house = House::open().await;
    let (gone, stays) = (Client::connect(&house.url).await, Client::connect(&house.url).await);
    house.shim.delay(0, 200);
    assert_eq!(gone.delete().await.status, 200);
    house.end(Signal::KILL).await;
    house.shim.delay(0, 0);
    assert!(house.start_again().await);
    assert_eq!(gone.answer("tools/list", json!({})).await.status, 404);
    assert_eq!(stays.answer("tools/list", json!({})).await.status, 200);
}

#[tokio::test]
async fn no_request_has_an_id_twice_though_the_disk_took_no_session_at_a_start() {
    let mut house = House::open().await;
    let client = Client::connect(&house.url).await;
    for fails in [true, true, false] {
        client.ask("tools/list", json!({})).await;
        house.end(Signal::KILL).await;
        if fails {
            house.start_on_a_disk_that_fails().await;
        } else {
            house.shim.heal();
            assert!(house.start_again().await);
        }
    }
    client.ask("tools/list", json!({})).await;
    let seen = house.upstream.seen();
    let mut ids: Vec<_> = seen.iter().filter(|seen| seen.rpc() == "tools/list").map(Seen::id).collect();
    assert_eq!(ids.len(), 4);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4, "{ids:?}");
}

#[tokio::test]
async fn a_session_that_cannot_be_read_is_dropped_with_a_line_that_says_so_once() {
    let mut house = House::open().await;
    Client::connect(&house.url).await;
    house.end(Signal::KILL).await;
    let disk = house.file();
    let row = disk.load_sessions().await.unwrap().pop().unwrap();
    disk.put_session(SavedSession { value: r#"{"v":2}"#.into(), ..row }, SessionWrites::default()).await.unwrap();
    assert!(disk.close());
    drop(disk);
    let mut told = Vec::new();
    for _ in 0..2 {
        assert!(house.start_again().await);
        told.push(house.end(Signal::KILL).await.stderr.matches("an earlier process is dropped").count());
    }
    assert_eq!(told, [1, 0]);
}

#[tokio::test]
async fn the_tasks_of_many_sessions_that_are_gone_are_removed_in_few_batches() {
    const SESSIONS: u64 = 150;
    let mut house = House::open().await;
    for n in 0..SESSIONS {
        let client = Client::connect(&house.url).await;
        // Whether they have ended makes no difference.
        let tool = if n % 2 == 0 { "slow" } else { "echo" };
        let id = client.create_id(tool).await;
        if tool == "echo" {
            client.until(&id, "completed").await;
        }
    }
    house.end(Signal::KILL).await;
    let disk = house.file();
    disk.write(|connection| connection.execute("DELETE FROM sessions", ())).await.unwrap();
    assert!(disk.close());
    drop(disk);
    house.shim.count(SYNC);
    assert!(house.start_again().await);
    let syncs = house.shim.counted();
    house.end(Signal::KILL).await;
    assert!(syncs < SESSIONS / 3, "{syncs} syncs");
    let disk = house.file();
    let count =
        |rows: &rusqlite::Connection| rows.query_row("SELECT count(*) FROM tasks", (), |row| row.get::<_, u32>(0));
    assert_eq!(disk.read(count).await, Ok(0));
}
