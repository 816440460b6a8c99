//! One side of a comparison: a server and the load on it.

use std::{
    thread::available_parallelism,
    time::{Duration, Instant},
};

use futures_util::future::try_join;
use tokio::time::timeout;

use crate::{
    Result,
    client::Client,
    load::{Load, Work},
    process::{MAX_RUNNING, Server, all_cpu, own_cpu},
};

/// The longest that an answer, or a queue of calls, may take.
pub const PATIENCE: Duration = Duration::from_mins(1);

pub struct Side<'a> {
    pub server: &'a Server,
    pub upstream: &'a Server,
    pub load: Load,
}

/// What one round showed.
#[derive(Clone, Copy)]
pub struct Sample {
    /// Answers a second.
    pub rate: f64,
    /// Microseconds.
    pub p50: f64,
    pub p99: f64,
    /// Microseconds of processor time an answer: the load generator, the server, the upstream.
    pub cpu: [f64; 3],
    /// The part of all processors, from 0 to 1, that other processes took.
    pub others: f64,
}

impl Side<'_> {
    /// Runs the load of both sides at the same time, and waits until the calls upstream are done.
    ///
    /// Where TCP's congestion control is BBR, a connection goes on at the rate that it learnt in its first round. The side
    /// that had this alone with a load generator that was cold had a fifth fewer large results ever after.
    pub async fn warm_up(&mut self, other: &mut Side<'_>, duration: Duration) -> Result<()> {
        let served = self.served(0).await?;
        let both = try_join(self.load.run(duration), other.load.run(duration));
        let (ours, others) = timeout(duration + PATIENCE, both).await??;
        let calls = |side: &Side<'_>, answers| if side.load.work().calls_upstream() { answers } else { 0 };
        self.all_served(served + calls(self, ours.answers) + calls(other, others.answers)).await
    }

    /// Runs the load for one round. If its requests lead to calls upstream, the round lasts until the last of them is
    /// done.
    pub async fn round(&mut self, duration: Duration) -> Result<Sample> {
        let served = self.served(0).await?;
        let (cpu, all, start) = (self.cpu()?, all_cpu()?, Instant::now());
        let measured = timeout(duration + PATIENCE, self.load.run(duration)).await??;
        if self.load.work().calls_upstream() {
            self.all_served(served + measured.answers).await?;
        }
        let elapsed = start.elapsed();
        let after = self.cpu()?;
        let used = [0, 1, 2].map(|part| after[part].saturating_sub(cpu[part]));
        let foreign = all_cpu()?.saturating_sub(all).saturating_sub(used.iter().sum());
        let cores = available_parallelism()?.get() as f64;
        let answers = measured.answers as f64;
        Ok(Sample {
            rate: answers / elapsed.as_secs_f64(),
            p50: micros(measured.p50),
            p99: micros(measured.p99),
            cpu: used.map(|used| micros(used) / answers),
            others: foreign.as_secs_f64() / elapsed.as_secs_f64() / cores,
        })
    }

    /// Creates tasks and lets them finish; from now on the load asks for these. Returns an answer to `tasks/get`.
    ///
    /// It creates no more at a time than may run at once: a queue would leave its own traces in the memory.
    pub async fn fill(&mut self, tasks: usize) -> Result<String> {
        let mut served = self.served(0).await?;
        let mut ids = Vec::with_capacity(tasks);
        while ids.len() < tasks {
            let created = self.load.create(MAX_RUNNING.min(tasks - ids.len())).await?;
            served += created.len() as u64;
            self.all_served(served).await?;
            ids.extend(created);
        }
        let mut answer = String::new();
        for id in ids.iter().rev().take(2 * MAX_RUNNING) {
            answer = timeout(PATIENCE, self.load.finished(id)).await??;
        }
        self.load.set_work(Work::Get(ids.into()));
        Ok(answer)
    }

    /// Waits until the upstream has answered this many calls. More than that means that calls were repeated.
    async fn all_served(&self, expected: u64) -> Result<()> {
        match timeout(PATIENCE, self.served(expected)).await {
            Ok(Ok(count)) if count == expected => Ok(()),
            Ok(count) => Err(format!("the upstream has answered {} calls instead of {expected}", count?).into()),
            Err(_) => Err(format!("{} of {expected} calls were answered", self.served(0).await?).into()),
        }
    }

    async fn served(&self, at_least: u64) -> Result<u64> {
        Client::connect(self.upstream.address).await?.served(at_least).await
    }

    fn cpu(&self) -> Result<[Duration; 3]> {
        Ok([own_cpu()?, self.server.cpu()?, self.upstream.cpu()?])
    }
}

pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
