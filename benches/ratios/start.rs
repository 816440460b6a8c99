//! Measures a start: the memory that it takes, and the time until the first answer.

use std::time::Instant;

use crate::{Result, client::Client, process::Server, report::Row, scenarios::Bench, side::micros};

/// How many starts of each side stand for one round. A start takes milliseconds, and one differs much from the next.
pub const STARTS: usize = 5;

impl Bench {
    /// Starts both sides by turns. Returns the rows of the memory after the first answer, of the part of it that holds
    /// no page of a file, and of the time until then.
    pub async fn starts(
        &self,
        labels: [&'static str; 2],
        ours: impl Fn() -> Result<Server>,
        other: impl Fn() -> Result<Server>,
    ) -> Result<[Row; 3]> {
        let mut memory = Row::plain("memory after start and one request", labels).unit("KiB");
        let mut own = Row::plain("the same without pages of files", labels).unit("KiB");
        let mut time = Row::plain("exec to first answer", labels).unit("µs");
        for number in 0..self.size.rounds * STARTS {
            // The side that goes first changes, so that a drift favours none.
            let (a, b) = if number % 2 == 0 {
                let a = first_answer(&ours).await?;
                (a, first_answer(&other).await?)
            } else {
                let b = first_answer(&other).await?;
                (first_answer(&ours).await?, b)
            };
            memory = memory.pair(a[0], b[0]);
            own = own.pair(a[1], b[1]);
            time = time.pair(a[2], b[2]);
        }
        Ok([memory, own, time])
    }
}

/// Returns the KiB of memory after the first answer, those of them that hold no part of a file, and how many
/// microseconds the answer took, from before the configuration was written.
async fn first_answer(start: impl Fn() -> Result<Server>) -> Result<[f64; 3]> {
    let began = Instant::now();
    let server = start()?;
    Client::of(&server).await?.initialize().await?;
    let took = micros(began.elapsed());
    Ok([server.rss()? as f64 / 1024.0, server.own_rss()? as f64 / 1024.0, took])
}
