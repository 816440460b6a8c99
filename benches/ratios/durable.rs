//! Measures what the store on disk costs: against the store in memory, against a floor that appends and syncs in
//! groups, and against what is allowed. The files are in the build's folder: a folder for temporary files may be in
//! memory.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use tempfile::TempDir;

use crate::{
    Result,
    client::Client,
    load::{self, Load, Work},
    process::Server,
    report::{Row, Target},
    scenarios::{Bench, CONNECTIONS, FEW},
    side::Sample,
};

const MIB: f64 = 1024.0 * 1024.0;
/// How long the tasks live whose space is to be used again.
const SHORT: Duration = Duration::from_secs(20);
/// The part of the large results that is kept twice, one after the other.
const AGAIN: usize = 20;

/// A folder for one store.
struct Disk(TempDir);

impl Disk {
    fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("tasks.db")
    }

    /// Starts a taskgate that keeps its tasks here.
    fn taskgate(&self, upstream: &Server) -> Result<Server> {
        let store =
            format!("[store]\nkind = \"file\"\npath = {:?}\nmax_store_bytes = \"1TiB\"\n", self.path().display());
        Server::taskgate_with(upstream, &store, "")
    }

    /// Returns the bytes of all files.
    fn bytes(&self) -> Result<u64> {
        fs::read_dir(self.0.path())?.map(|entry| Ok(entry?.metadata()?.len())).sum()
    }
}

impl Bench {
    pub async fn durable(&self) -> Result<Vec<Row>> {
        // Fresh ones for each row, so that neither side has more tasks than the other to begin with.
        let disks = [Disk::new()?, Disk::new()?, Disk::new()?, Disk::new()?];
        let what = "creating a task, its call included, 32 connections";
        let pairs = self.creating(&disks[0].taskgate(&self.upstream)?, &Server::taskgate(&self.upstream)?).await?;
        let against_memory = Row::new(what, ["on disk", "in memory"], &pairs, |s| s.rate);
        let journal = Server::journal(&self.upstream, &disks[1].path())?;
        let pairs = self.creating(&disks[2].taskgate(&self.upstream)?, &journal).await?;
        let against_journal = Row::new(what, ["on disk", "journal"], &pairs, |s| s.rate);
        let servers = [disks[3].taskgate(&self.upstream)?, Server::taskgate(&self.upstream)?];
        let load = |server| Load::one_session(server, CONNECTIONS, Work::Create);
        let mut ours = self.side(&servers[0], load(&servers[0]).await?);
        let mut other = self.side(&servers[1], load(&servers[1]).await?);
        ours.fill(FEW).await?;
        other.fill(FEW).await?;
        let pairs = self.pairs(&mut ours, &mut other).await?;
        let get = Row::new("`tasks/get`, 32 connections", ["on disk", "in memory"], &pairs, |s| s.rate);
        Ok(vec![
            against_memory.unit("calls/s").target(Target::AtLeast(0.5)),
            against_journal.unit("calls/s").target(Target::AtLeast(0.7)),
            get.unit("answers/s").target(Target::AtLeast(0.95)),
        ])
    }

    /// Measures how fast both create tasks.
    async fn creating(&self, ours: &Server, other: &Server) -> Result<Vec<(Sample, Sample)>> {
        let load =
            async |server| Result::Ok(self.side(server, Load::sessions(server, CONNECTIONS, Work::Create).await?));
        self.pairs(&mut load(ours).await?, &mut load(other).await?).await
    }

    /// Measures how soon a process answers that finds many tasks, after one that was killed.
    pub async fn durable_start(&self) -> Result<Vec<Row>> {
        let disk = Disk::new()?;
        let gate = disk.taskgate(&self.upstream)?;
        let mut side = self.side(&gate, Load::one_session(&gate, CONNECTIONS, Work::Create).await?);
        side.fill(self.size.tasks).await?;
        drop(gate);
        let what = format!("exec to first answer with {} kept tasks", self.size.tasks);
        let mut row = Row::plain(what, ["taskgate", "allowed"]).unit("s");
        for _ in 0..5 {
            let began = Instant::now();
            let gate = disk.taskgate(&self.upstream)?;
            Client::connect(gate.address).await?.initialize().await?;
            row = row.pair(began.elapsed().as_secs_f64(), 2.0);
        }
        Ok(vec![row.target(Target::AtMost(1.0))])
    }

    /// Measures memory while many large results are kept, and whether others use their space when they have expired.
    pub async fn durable_large(&self) -> Result<Vec<Row>> {
        let (disk, results) = (Disk::new()?, self.size.results);
        let gate = disk.taskgate(&self.upstream)?;
        self.keep(&gate, results, Duration::from_hours(1)).await?;
        let what = format!("memory at most, with {results} kept results of 1 MiB");
        let memory = Row::plain(what, ["taskgate", "allowed"]).unit("MiB").pair(gate.peak_rss()? as f64 / MIB, 256.0);
        drop(gate);
        let (disk, results) = (Disk::new()?, results / AGAIN);
        let gate = disk.taskgate(&self.upstream)?;
        let mut sizes = Vec::new();
        for _ in 0..2 {
            self.keep(&gate, results, SHORT).await?;
            sizes.push(disk.bytes()? as f64 / MIB);
            tokio::time::sleep(SHORT + SHORT / 4).await;
        }
        let what = format!("files after {results} further results of 1 MiB, the first ones having expired");
        let space = Row::plain(what, ["then", "before"]).unit("MiB").pair(sizes[1], sizes[0]);
        Ok(vec![memory.target(Target::AtMost(1.0)), space.target(Target::AtMost(1.2))])
    }

    /// Creates tasks with results of 1 MiB, and waits until the upstream has answered them all and one after them all
    /// has ended.
    async fn keep(&self, gate: &Server, results: usize, ttl: Duration) -> Result<()> {
        let mut asking = Client::connect(self.upstream.address).await?;
        let served = asking.served(0).await?;
        let params =
            format!(r#"{{"name":"text","arguments":{{"bytes":1048576}},"task":{{"ttl":{}}}}}"#, ttl.as_millis());
        let clients = try_join_all((0..CONNECTIONS).map(|_| Client::open(gate))).await?;
        let done = try_join_all(clients.into_iter().enumerate().map(async |(number, mut client)| {
            for _ in 0..(results + number) / CONNECTIONS {
                client.request("tools/call", &load::TEXT_TOOL, &params, "\"taskId\"").await?;
            }
            Result::Ok(client)
        }));
        let clients = done.await?;
        asking.served(served + results as u64).await?;
        // Its own connection has been idle since its last call, and may be closed.
        let first = clients.first().ok_or("no connections")?;
        let mut client = first.join(gate.address, first.sent()).await?;
        // Ends are written in their order, more or less.
        let last = load::create(&mut client, r#"{"name":"text","arguments":{"bytes":64}}"#).await?.try_into()?;
        while !str::from_utf8(&load::get(&mut client, &last, "taskId").await?)?.contains("\"completed\"") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}
