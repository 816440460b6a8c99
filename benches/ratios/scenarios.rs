//! The scenarios: what is compared with what. Each starts its own taskgate and floor; all share one upstream.

use std::time::Duration;

use clap::ValueEnum;

use crate::{
    Result,
    load::{Load, Work},
    process::Server,
    report::{Row, Target},
    side::{Sample, Side},
};

pub const CONNECTIONS: usize = 32;
/// Bytes of a small and of a large result.
pub const SMALL: usize = 64;
pub const LARGE: usize = 256 * 1024;
/// How many tasks are kept where a scenario does not measure that.
pub const FEW: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Scenario {
    /// The forwarder against itself: how far the figures of this machine can be trusted.
    Control,
    Plain,
    Latency,
    Large,
    /// Clients of revision 2026-07-28 against those of the one before.
    Modern,
    ModernGet,
    ModernCreate,
    Get,
    Create,
    Kept,
    Idle,
    Streams,
    Waiters,
    Wake,
    /// taskgate with identities and the audit log on against taskgate without them.
    Guarded,
    GuardedLatency,
    GuardedStart,
    /// The store on disk against the one in memory and against a journal.
    Durable,
    DurableStart,
    DurableLarge,
}

/// How much is measured.
pub struct Size {
    pub rounds: usize,
    pub round: Duration,
    /// How many tasks are many.
    pub tasks: usize,
    /// How many results of a megabyte are many.
    pub results: usize,
    /// GET streams that are open at once.
    pub streams: usize,
    /// Requests that wait at once.
    pub waiters: usize,
}

pub struct Bench {
    pub upstream: Server,
    pub size: Size,
}

impl Bench {
    pub fn new(size: Size) -> Result<Self> {
        Ok(Self { upstream: Server::upstream()?, size })
    }

    pub async fn run(&self, scenario: Scenario) -> Result<Vec<Row>> {
        match scenario {
            Scenario::Control => self.control().await,
            Scenario::Plain => {
                let row = self.against_forwarder("plain `tools/call`, 32 connections", CONNECTIONS, SMALL, |s| s.rate);
                Ok(vec![row.await?.unit("calls/s").target(Target::AtLeast(0.80))])
            }
            Scenario::Latency => {
                let row = self.against_forwarder("plain `tools/call`, 1 connection, p50", 1, SMALL, |s| s.p50);
                Ok(vec![row.await?.unit("µs").target(Target::AtMost(1.25))])
            }
            Scenario::Large => {
                let row = self.against_forwarder("256 KiB results, 32 connections", CONNECTIONS, LARGE, |s| s.rate);
                Ok(vec![row.await?.unit("calls/s").target(Target::AtLeast(0.85))])
            }
            Scenario::Modern => self.modern().await,
            Scenario::ModernGet => self.modern_get().await,
            Scenario::ModernCreate => self.modern_create().await,
            Scenario::Get => self.get().await,
            Scenario::Create => self.create().await,
            Scenario::Kept => self.kept().await,
            Scenario::Idle => self.idle().await,
            Scenario::Streams => self.streams().await,
            Scenario::Waiters => self.waiters().await,
            Scenario::Wake => self.wake().await,
            Scenario::Guarded => self.guarded().await,
            Scenario::GuardedLatency => self.guarded_latency().await,
            Scenario::GuardedStart => self.guarded_start().await,
            Scenario::Durable => self.durable().await,
            Scenario::DurableStart => self.durable_start().await,
            Scenario::DurableLarge => self.durable_large().await,
        }
    }

    async fn control(&self) -> Result<Vec<Row>> {
        let servers = [Server::forwarder(&self.upstream)?, Server::forwarder(&self.upstream)?];
        let [mut one, mut other] = [
            self.side(&servers[0], self.sessions(&servers[0], CONNECTIONS, SMALL).await?),
            self.side(&servers[1], self.sessions(&servers[1], CONNECTIONS, SMALL).await?),
        ];
        let pairs = self.pairs(&mut one, &mut other).await?;
        let labels = ["forwarder", "forwarder"];
        Ok(vec![
            Row::new("control: plain `tools/call`, 32 connections", labels, &pairs, |s| s.rate).unit("calls/s"),
            Row::new("control: the same, p99", labels, &pairs, |s| s.p99).unit("µs"),
        ])
    }

    async fn against_forwarder(
        &self,
        what: &'static str,
        connections: usize,
        bytes: usize,
        value: fn(&Sample) -> f64,
    ) -> Result<Row> {
        let gate = Server::taskgate(&self.upstream)?;
        let floor = Server::forwarder(&self.upstream)?;
        let mut ours = self.side(&gate, self.sessions(&gate, connections, bytes).await?);
        let mut bare = self.side(&floor, self.sessions(&floor, connections, bytes).await?);
        let pairs = self.pairs(&mut ours, &mut bare).await?;
        Ok(Row::new(what, ["taskgate", "forwarder"], &pairs, value))
    }

    async fn get(&self) -> Result<Vec<Row>> {
        let gate = Server::taskgate(&self.upstream)?;
        let mut ours = self.side(&gate, Load::one_session(&gate, CONNECTIONS, Work::Create).await?);
        let answer = ours.fill(FEW).await?;
        let floor = Server::fixed(&answer)?;
        let load = Load::bare(floor.address, CONNECTIONS, ours.load.work().clone()).await?;
        let mut bare = self.side(&floor, load);
        let pairs = self.pairs(&mut ours, &mut bare).await?;
        let row = Row::new("`tasks/get`, 32 connections", ["taskgate", "fixed answer"], &pairs, |s| s.rate);
        Ok(vec![row.unit("answers/s").target(Target::AtLeast(0.75))])
    }

    async fn create(&self) -> Result<Vec<Row>> {
        let gate = Server::taskgate(&self.upstream)?;
        let mut tasks = self.side(&gate, Load::sessions(&gate, CONNECTIONS, Work::Create).await?);
        let mut plain = self.side(&gate, self.sessions(&gate, CONNECTIONS, SMALL).await?);
        let pairs = self.pairs(&mut tasks, &mut plain).await?;
        let row =
            Row::new("creating a task, its call included, 32 connections", ["tasks", "plain"], &pairs, |s| s.rate);
        Ok(vec![row.unit("calls/s").target(Target::AtLeast(0.65))])
    }

    /// Compares many kept tasks with few. One owner has them all, which is the hardest case for the index of each
    /// owner.
    async fn kept(&self) -> Result<Vec<Row>> {
        let servers = [Server::taskgate(&self.upstream)?, Server::taskgate(&self.upstream)?];
        let load = async |server: &Server| Load::one_session(server, CONNECTIONS, Work::Call(SMALL)).await;
        let mut many = self.side(&servers[0], load(&servers[0]).await?);
        let mut few = self.side(&servers[1], load(&servers[1]).await?);
        // Connections and threads take their memory before the tasks come.
        many.round(self.size.round).await?;
        let before = servers[0].rss()?;
        many.fill(self.size.tasks).await?;
        let growth = servers[0].rss()?.saturating_sub(before);
        few.fill(FEW).await?;
        let pairs = self.pairs(&mut many, &mut few).await?;
        let labels = ["many", "few"];
        Ok(vec![
            Row::new(format!("p99 of `tasks/get`, {} kept tasks and {FEW}", self.size.tasks), labels, &pairs, |s| {
                s.p99
            })
            .unit("µs")
            .target(Target::AtMost(1.3)),
            Row::plain("memory of a finished small task", ["growth in bytes", "tasks"])
                .pair(growth as f64, self.size.tasks as f64)
                .target(Target::AtMost(2048.0)),
        ])
    }

    async fn idle(&self) -> Result<Vec<Row>> {
        let [ours, floor] = [Server::taskgate, Server::forwarder].map(|start| move || start(&self.upstream));
        let [memory, own, time] = self.starts(["taskgate", "forwarder"], ours, floor).await?;
        Ok(vec![memory.target(Target::AtMost(3.0)), own, time.target(Target::AtMost(3.0))])
    }

    /// Measures how fast a waiter gets the result of its task, one at a time.
    async fn wake(&self) -> Result<Vec<Row>> {
        let gate = Server::taskgate(&self.upstream)?;
        let floor = Server::forwarder(&self.upstream)?;
        let load = async |server: &Server, task| Load::sessions(server, 1, Work::Deliver { task }).await;
        let mut ours = self.side(&gate, load(&gate, true).await?);
        let mut bare = self.side(&floor, load(&floor, false).await?);
        let pairs = self.pairs(&mut ours, &mut bare).await?;
        let row = Row::new("from the upstream's answer to a waiter, p50", ["taskgate", "forwarder"], &pairs, |s| s.p50);
        Ok(vec![row.unit("µs").target(Target::AtMost(2.0))])
    }

    pub async fn sessions(&self, server: &Server, connections: usize, bytes: usize) -> Result<Load> {
        Load::sessions(server, connections, Work::Call(bytes)).await
    }

    pub fn side<'a>(&'a self, server: &'a Server, load: Load) -> Side<'a> {
        Side { server, upstream: &self.upstream, load }
    }

    /// Warms both sides up, then gives them rounds by turns. The side that goes first changes, so that a drift favours
    /// neither.
    pub async fn pairs(&self, ours: &mut Side<'_>, other: &mut Side<'_>) -> Result<Vec<(Sample, Sample)>> {
        ours.warm_up(other, self.size.round).await?;
        let mut pairs = Vec::with_capacity(self.size.rounds);
        for number in 0..self.size.rounds {
            pairs.push(if number % 2 == 0 {
                let first = ours.round(self.size.round).await?;
                (first, other.round(self.size.round).await?)
            } else {
                let first = other.round(self.size.round).await?;
                (ours.round(self.size.round).await?, first)
            });
        }
        Ok(pairs)
    }
}
