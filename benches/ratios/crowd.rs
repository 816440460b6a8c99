//! Measures what many open connections cost: GET streams, and requests that wait for a result.

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

use crate::{
    Result,
    client::Client,
    load::{create, result},
    process::Server,
    report::{Row, Target},
    scenarios::Bench,
    side::{PATIENCE, micros},
};

/// Pairs of servers. Memory varies less than time, and each pair takes a while.
const PAIRS: usize = 5;
/// How many connections are opened at a time: more would leave traces of their own in the memory.
const BATCH: usize = 50;
/// The params of a call that the upstream holds.
const HOLD: &str = r#"{"name":"hold","arguments":{}}"#;
/// How long a waiter may wait after the end of its call, in milliseconds.
const ALLOWED: f64 = 1000.0;

/// How a waiter waits for a result.
#[derive(Clone, Copy)]
enum Wait {
    /// `tasks/result` of a task of its own.
    Task,
    /// A plain call.
    Call,
}

impl Bench {
    pub async fn streams(&self) -> Result<Vec<Row>> {
        let (count, labels) = (self.size.streams, ["taskgate", "forwarder"]);
        let what = format!("memory of a session with its open GET stream, {count} of them");
        let mut memory = Row::plain(what, labels).unit("bytes");
        let mut time = Row::plain("processor time to open it", labels).unit("µs");
        for _ in 0..self.size.rounds.min(PAIRS) {
            let gate = self.stream(&Server::taskgate(&self.upstream)?).await?;
            let floor = self.stream(&Server::forwarder(&self.upstream)?).await?;
            memory = memory.pair(gate.0, floor.0);
            time = time.pair(gate.1, floor.1);
        }
        Ok(vec![memory.target(Target::AtMost(1.4)), time])
    }

    /// Returns the bytes of memory and the microseconds of processor time that one stream takes. Each client has one
    /// connection, which first carries its handshake.
    async fn stream(&self, server: &Server) -> Result<(f64, f64)> {
        let count = self.size.streams;
        self.until_open(0).await?;
        // What the first connection needs is not counted.
        Client::connect(server.address).await?.initialize().await?;
        let (before, cpu) = (server.rss()?, server.cpu()?);
        let mut open = Vec::with_capacity(count);
        while open.len() < count {
            let batch = (0..BATCH.min(count - open.len())).map(async |_| Client::open(server).await?.listen().await);
            open.extend(try_join_all(batch).await?);
            self.until_open(open.len()).await?;
        }
        let memory = server.rss()?.saturating_sub(before);
        let time = server.cpu()?.saturating_sub(cpu);
        Ok((memory as f64 / count as f64, micros(time) / count as f64))
    }

    pub async fn waiters(&self) -> Result<Vec<Row>> {
        let (count, labels) = (self.size.waiters, ["taskgate", "forwarder"]);
        let mut memory = Row::plain(format!("memory of a waiter for a result, {count} of them"), labels).unit("bytes");
        let what = "from the end of its call to the waiter, the longest";
        let mut longest = Row::plain(what, ["taskgate", "allowed"]).unit("ms");
        let mut compared = Row::plain(what, labels).unit("ms");
        for _ in 0..self.size.rounds.min(PAIRS) {
            let gate = self.waiter(&Server::taskgate_running(&self.upstream, count)?, Wait::Task).await?;
            let floor = self.waiter(&Server::forwarder(&self.upstream)?, Wait::Call).await?;
            memory = memory.pair(gate.0, floor.0);
            longest = longest.pair(gate.1, ALLOWED);
            compared = compared.pair(gate.1, floor.1);
        }
        Ok(vec![memory.target(Target::AtMost(1.6)), longest.target(Target::AtMost(1.0)), compared])
    }

    /// Returns the bytes of memory that one waiter takes, and how many milliseconds after the upstream's answers, which
    /// come all at once, the last waiter got its own. One session has them all.
    async fn waiter(&self, server: &Server, wait: Wait) -> Result<(f64, f64)> {
        let count = self.size.waiters;
        self.until_held(0).await?;
        let first = Client::open(server).await?;
        let before = server.rss()?;
        let (begun, mut waiters) = (Arc::new(Semaphore::new(0)), JoinSet::new());
        while waiters.len() < count {
            let batch = BATCH.min(count - waiters.len());
            for _ in 0..batch {
                // No two requests of a session have the same id.
                let client = first.join(server.address, waiters.len() as u64 * 10 + 10).await?;
                waiters.spawn(waiter(client, wait, Arc::clone(&begun)));
            }
            let held = waiters.len();
            let all_wait = async {
                begun.acquire_many(u32::try_from(batch)?).await?.forget();
                self.until_held(held).await
            };
            tokio::select! {
                waiting = timeout(PATIENCE, all_wait) => waiting.map_err(|_| format!("not all of {held} wait"))??,
                Some(ended) = waiters.join_next() => return Err(format!("did not wait: {ended:?}").into()),
            }
        }
        let memory = server.rss()?.saturating_sub(before);
        let served = self.to_upstream().await?.served(0).await?;
        self.to_upstream().await?.release().await?;
        let mut longest = Duration::ZERO;
        while let Some(took) = timeout(PATIENCE, waiters.join_next()).await? {
            longest = longest.max(took??);
        }
        match self.to_upstream().await?.served(0).await? - served {
            calls if calls == count as u64 => Ok((memory as f64 / count as f64, micros(longest) / 1000.0)),
            calls => Err(format!("the upstream has answered {calls} calls instead of {count}").into()),
        }
    }

    /// Waits until exactly so many GET streams are open upstream.
    async fn until_open(&self, streams: usize) -> Result<()> {
        let open = async { self.to_upstream().await?.streams(streams).await };
        timeout(PATIENCE, open).await.map_err(|_| format!("there are not {streams} streams open upstream"))?
    }

    /// Waits until the upstream holds exactly so many calls.
    async fn until_held(&self, calls: usize) -> Result<()> {
        let held = async { self.to_upstream().await?.held(calls).await };
        timeout(PATIENCE, held).await.map_err(|_| format!("there are not {calls} calls held upstream"))?
    }

    /// Makes a connection of our own to the upstream.
    async fn to_upstream(&self) -> Result<Client> {
        Client::connect(self.upstream.address).await
    }
}

/// Waits for the end of a call, and returns how long its answer took from the upstream to here.
async fn waiter(mut client: Client, wait: Wait, begun: Arc<Semaphore>) -> Result<Duration> {
    match wait {
        Wait::Task => {
            let task = create(&mut client, HOLD).await?;
            result(&mut client, &task, || begun.add_permits(1)).await
        }
        Wait::Call => {
            begun.add_permits(1);
            client.timed("tools/call", HOLD, || ()).await
        }
    }
}
