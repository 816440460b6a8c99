//! Clients that poll calls in virtual time, as they are told or at a fixed interval.

use std::time::Duration;

use taskgate::task::{PollBounds, RunTimes};

/// How many calls of a tool are polled, one after the other, so that each is told what is known of those before.
const CALLS: usize = 4000;
/// No call takes longer, as the timeout is an hour by default.
const LONGEST: f64 = 3600.0;
/// The intervals that taskgate tells by default.
const BOUNDS: PollBounds = PollBounds { min: Duration::from_millis(500), max: Duration::from_secs(30) };

/// What polling a tool's calls comes to, on average over them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polling {
    /// How many polls a call takes.
    pub(crate) polls: f64,
    /// How many seconds after its end half of the calls are noticed.
    pub(crate) median: f64,
    /// The same for nine in ten.
    pub(crate) nine_in_ten: f64,
}

/// A tool, as far as the times of its calls are concerned.
pub(crate) struct Tool {
    /// What its times are like.
    pub(crate) name: &'static str,
    /// Whether it is called only once, so that nothing is known of it.
    pub(crate) is_new: bool,
    /// The times of its calls, in seconds.
    times: Vec<f64>,
}

/// A generator of the same numbers each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    /// Returns a number from 0 to 1.
    fn even(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((bits ^ (bits >> 31)) >> 32).expect("32 bits");
        (f64::from(high) + 0.5) / (f64::from(u32::MAX) + 1.0)
    }

    /// Returns a number of the standard normal distribution.
    fn normal(&mut self) -> f64 {
        let (radius, turn) = ((-2.0 * self.even().ln()).sqrt(), std::f64::consts::TAU * self.even());
        radius * turn.cos()
    }
}

/// Returns the tools, each with its own kind of times.
pub(crate) fn tools() -> Vec<Tool> {
    vec![
        tool("constant: 20 s, ± 2 %", |n| 20.0 * (1.0 + 0.02 * n.normal())),
        tool("constant: 150 s, ± 2 %", |n| 150.0 * (1.0 + 0.02 * n.normal())),
        tool("constant: 10 min, ± 2 %", |n| 600.0 * (1.0 + 0.02 * n.normal())),
        tool("bimodal: 5 s or 300 s, ± 5 %", |n| {
            let time = if n.even() < 0.5 { 5.0 } else { 300.0 };
            time * (1.0 + 0.05 * n.normal())
        }),
        tool("bimodal: 20 s, or 240 s in 3 of 10, ± 10 %", |n| {
            let time = if n.even() < 0.7 { 20.0 } else { 240.0 };
            time * (1.0 + 0.1 * n.normal())
        }),
        tool("heavy-tailed: lognormal, σ = 2.4, median 20 s", |n| 20.0 * (2.4 * n.normal()).exp()),
        tool("heavy-tailed: Pareto, α = 0.6, from 2 s", |n| 2.0 * n.even().powf(-1.0 / 0.6)),
        Tool { is_new: true, ..tool("never seen: 1 s to 1 h, each order of size alike", |n| LONGEST.powf(n.even())) },
        tool("spread: lognormal, σ = 1, median 30 s", |n| 30.0 * n.normal().exp()),
        tool("without memory: exponential, mean 60 s", |n| -60.0 * n.even().ln()),
        tool("about 50 min, ± 5 %", |n| 3000.0 * (1.0 + 0.05 * n.normal())),
    ]
}

fn tool(name: &'static str, time: impl Fn(&mut Numbers) -> f64) -> Tool {
    let mut numbers = Numbers(13);
    let times = std::iter::repeat_with(|| time(&mut numbers)).filter(|time| (0.1..=LONGEST).contains(time));
    Tool { name, is_new: false, times: times.take(CALLS).collect() }
}

impl Tool {
    /// Polls the calls as `poll_interval = "auto"` tells.
    pub(crate) fn auto(&self) -> Polling {
        let mut run_times = RunTimes::default();
        self.polled(|time| {
            let counted = poll(time, |age| run_times.next_poll(age, BOUNDS));
            if !self.is_new {
                run_times.record(Duration::from_secs_f64(time));
            }
            counted
        })
    }

    /// Polls the calls after each `interval`.
    pub(crate) fn fixed(&self, interval: Duration) -> Polling {
        self.polled(|time| poll(time, |_| interval))
    }

    /// Returns how many polls a call takes at least if half of the calls are noticed within `delay` seconds, whatever
    /// is told: docs/performance.md has the proof.
    pub(crate) fn least_polls(&self, delay: f64) -> f64 {
        /// Of the calls this part at a time is looked at, to find the ages at which they end fastest.
        const PART: usize = CALLS / 20;
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        let ends = times.chunks(PART).map(|chunk| chunk[chunk.len() - 1]);
        let begins = std::iter::once(0.0).chain(ends.clone());
        // How long all calls are between two ages, for each end there.
        let mut spent: Vec<f64> = begins
            .zip(ends)
            .map(|(from, to)| times.iter().map(|time| time.clamp(from, to) - from).sum::<f64>())
            .collect();
        spent.sort_by(f64::total_cmp);
        (spent.iter().take(10).sum::<f64>() / delay / count(CALLS)).max(1.0)
    }

    fn polled(&self, mut poll: impl FnMut(f64) -> Counted) -> Polling {
        let calls: Vec<Counted> = self.times.iter().map(|time| poll(*time)).collect();
        let mut delays: Vec<f64> = calls.iter().map(|call| call.delay).collect();
        delays.sort_by(f64::total_cmp);
        let polls = calls.iter().map(|call| f64::from(call.polls)).sum::<f64>() / count(CALLS);
        Polling { polls, median: delays[CALLS / 2], nine_in_ten: delays[CALLS * 9 / 10] }
    }
}

/// What polling one call came to.
struct Counted {
    polls: u32,
    /// How many seconds after its end the call was noticed.
    delay: f64,
}

/// Polls a call that takes `time` seconds, where `next` says when.
fn poll(time: f64, next: impl Fn(Duration) -> Duration) -> Counted {
    let (mut age, mut polls) = (Duration::ZERO, 0);
    while age.as_secs_f64() < time {
        age += next(age);
        polls += 1;
    }
    Counted { polls, delay: age.as_secs_f64() - time }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("few"))
}
