//! Prints the table of docs/performance.md: `poll_interval = "auto"` against fixed intervals, in virtual time.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "it prints, and it is no part of the program")]

#[path = "../tests/poll_intervals/simulation.rs"]
mod simulation;

use std::time::Duration;

fn main() {
    println!("| run times | `auto` | fixed 1 s | fixed 2 s | fixed 10 s | `auto` ÷ 1 s | least ÷ 1 s |");
    println!("|---|---|---|---|---|---|---|");
    for tool in simulation::tools() {
        let fixed = [1, 2, 10].map(|seconds| tool.fixed(Duration::from_secs(seconds)));
        let shown = std::iter::once(tool.auto())
            .chain(fixed)
            .map(|polling| format!("{:.1}: {:.2} s, {:.1} s", polling.polls, polling.median, polling.nine_in_ten));
        let shown = shown.collect::<Vec<_>>().join(" | ");
        let (second, least) = (fixed[0], tool.least_polls(1.1 * fixed[0].median));
        let percent = |polls: f64| format!("{:.0} %", 100.0 * polls / second.polls);
        println!("| {} | {shown} | {} | {} |", tool.name, percent(tool.auto().polls), percent(least));
    }
}
