//! Measures taskgate against floors that are built with it, in rounds by turns, and prints the ratios.
//!
//! Run it with `scripts/bench`. Each server is a process of its own: this executable starts itself again with `--role`.

#![allow(unreachable_pub, reason = "an executable offers nothing; `pub` says what a module offers to the others")]
#![allow(clippy::cast_precision_loss, reason = "figures that people read need no 52 bits")]
#![allow(clippy::print_stdout, reason = "the report is the output of this command")]

mod client;
mod clock;
mod crowd;
mod durable;
mod floor;
mod guarded;
mod journal;
mod load;
mod modern;
mod open;
mod process;
mod report;
mod scenarios;
mod side;
mod start;
mod upstream;

use std::{collections::BTreeSet, error::Error, process::ExitCode, time::Duration};

use clap::{Parser, ValueEnum};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
};

use crate::{
    process::raise_connections,
    report::Report,
    scenarios::{Bench, Scenario, Size},
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Parser)]
struct Args {
    /// Fewer and shorter rounds, fewer kept tasks: shows that everything works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Run only this scenario; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<Scenario>,
    /// Be one of the servers instead of measuring them.
    #[arg(long, hide = true)]
    role: Option<Role>,
    /// Where the forwarder sends requests: the address of the upstream.
    #[arg(long, hide = true, default_value = "")]
    upstream: String,
    /// Where the journal is.
    #[arg(long, hide = true, default_value = "")]
    journal: String,
    /// What the fixed server answers.
    #[arg(long, hide = true, default_value = "")]
    body: String,
    /// Cargo gives this to every benchmark. Without it, this runs as a test.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Forwarder,
    Fixed,
    Journal,
    Upstream,
}

fn main() -> ExitCode {
    match start(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> Result<()> {
    match args.role {
        // The floors use every processor, as taskgate does.
        Some(Role::Forwarder) => many_threads()?.block_on(floor::forward(&args.upstream)),
        Some(Role::Fixed) => many_threads()?.block_on(floor::answer(args.body.into())),
        Some(Role::Journal) => many_threads()?.block_on(journal::keep(&args.upstream, &args.journal)),
        // Cheap enough never to be the limit, and cheaper with one thread.
        Some(Role::Upstream) => one_thread()?.block_on(upstream::serve()),
        None if args.bench => measure(&args),
        None => {
            println!("nothing measured: run scripts/bench");
            Ok(())
        }
    }
}

fn many_threads() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

fn one_thread() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn measure(args: &Args) -> Result<()> {
    // A waiter is a connection on each side of the server under measurement, which needs a few more for itself.
    let most = raise_connections()?.saturating_sub(100) / 2;
    let size = if args.quick {
        Size { rounds: 3, round: Duration::from_millis(200), tasks: 5_000, results: 500, streams: 100, waiters: 200 }
    } else {
        Size {
            rounds: 21,
            round: Duration::from_millis(500),
            tasks: 100_000,
            results: 10_000,
            streams: 1_000,
            waiters: 10_000.min(most),
        }
    };
    let bench = Bench::new(size)?;
    let mut chosen: BTreeSet<Scenario> = args.only.iter().copied().collect();
    if chosen.is_empty() {
        chosen.extend(Scenario::value_variants());
    }
    let mut rows = Vec::new();
    for scenario in chosen {
        // One connection has no use for a second thread, and its latency would suffer from one.
        let alone = matches!(scenario, Scenario::Latency | Scenario::Wake | Scenario::GuardedLatency);
        let runtime = if alone { one_thread()? } else { many_threads()? };
        for row in runtime.block_on(until_signal(bench.run(scenario)))? {
            eprintln!("{}", row.summary());
            rows.push(row);
        }
    }
    print!("{}", Report { rows, rounds: bench.size.rounds, round: bench.size.round });
    Ok(())
}

/// Turns a signal into an error, so that the servers are stopped on the way out.
async fn until_signal<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        outcome = work => outcome,
        _ = interrupt.recv() => Err("interrupted".into()),
        _ = terminate.recv() => Err("terminated".into()),
    }
}
