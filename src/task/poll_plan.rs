//! When to poll a call whose run time is not known, but how long others took; pure.
//!
//! A poll pays where calls end. The rate at which those that still run end, at a given age, says how many ends one poll
//! finds there. So the ages with the highest rates, which together hold the ends of about half of all calls, are polled
//! often, and all others seldom: no other schedule notices half of the ends as soon with fewer polls
//! (docs/performance.md).

use std::sync::LazyLock;

/// How many ranges of run times are told apart.
pub(super) const RANGES: usize = 320;
/// The end of the first range, in seconds. The last one ends after 17 hours.
const FIRST: f64 = 1.0 / 16.0;
/// The part of all ends that falls into the ages at which a call is polled often.
const LIKELY: f64 = 0.52;
/// The part of the calls that still run whose end one poll at another age waits for.
const SELDOM: f64 = 0.1;
/// The part of all ends from which the rate at an age is estimated.
const NEIGHBOURS: f64 = 0.12;
/// It is estimated from at most so many ranges to both sides.
const FAR: usize = 16;
/// Among the ranges so close by there have to be ends too.
const CLOSE: usize = 2;
/// Ages that fewer calls reach are not polled often: what is known of them is chance.
const FEW: f64 = 0.05;
/// There is at most one frequent poll, on average, for so many seconds that a call takes, ...
const SECONDS_A_POLL: f64 = 5.0;
/// ... but this many are no waste, ...
const FREE_POLLS: f64 = 8.0;
/// ... and more than this many gain nothing.
const MOST_POLLS: f64 = 128.0;

/// The bounds of the ranges, in seconds: one more than there are ranges, sixteen of them from a run time to twice that.
static BOUNDS: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let factor = 2.0f64.sqrt().sqrt().sqrt().sqrt();
    let later = std::iter::successors(Some(FIRST), |bound| Some(bound * factor));
    std::iter::once(0.0).chain(later).take(RANGES + 1).collect()
});

/// The run time that half of a tool's calls are taken to exceed while nothing is known of the tool, in seconds.
const UNKNOWN_HALF: f64 = 70.0;
/// How likely an end is in each range where nothing is known of a tool. Far beyond that run time a doubling of the age
/// leaves six in ten of those that still run, as their number falls with the age to the power of 3/4. There is no age at
/// which an end is overdue.
static UNKNOWN: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let power = |age: f64| age.sqrt() * age.sqrt().sqrt();
    let running = |bound: f64| 1.0 / (1.0 + power(bound / UNKNOWN_HALF));
    BOUNDS.windows(2).map(|range| running(range[0]) - running(range[1])).collect()
});

/// At which ages to poll a call.
#[derive(Debug)]
pub(super) struct PollPlan {
    /// Whether a call is likely to end in each range, compared with the others.
    likely: Vec<bool>,
    /// The part of all calls that still run at each bound.
    running: Vec<f64>,
    /// The pause between polls where an end is likely, in seconds.
    pause: f64,
}

/// Returns the range of a run time in seconds.
pub(super) fn range_of(seconds: f64) -> usize {
    BOUNDS.partition_point(|bound| *bound <= seconds).clamp(1, RANGES) - 1
}

/// Returns the run time in the middle of a range, in seconds.
pub(super) fn middle_of(range: usize) -> f64 {
    f64::midpoint(BOUNDS[range], BOUNDS[range + 1])
}

impl PollPlan {
    /// Makes the plan for calls of which so many ended in each range. What is known of no tool counts as one more call.
    pub(super) fn new(ended: &[f32]) -> Self {
        let all = 1.0 + ended.iter().copied().map(f64::from).sum::<f64>();
        let ends: Vec<f64> =
            ended.iter().zip(UNKNOWN.iter()).map(|(ended, unknown)| (f64::from(*ended) + unknown) / all).collect();
        let before = sums(ends.iter().copied());
        let running: Vec<f64> = before.iter().map(|before| (1.0 - before).max(0.0)).collect();
        // How long calls are in each range, on average over all: what polling there costs.
        let times =
            |range: usize| (BOUNDS[range + 1] - BOUNDS[range]) * f64::midpoint(running[range], running[range + 1]);
        let spent = sums((0..RANGES).map(times));
        let known = (0..RANGES).filter(|range| ends[*range] > 0.0 && running[*range] >= FEW);
        let mut order: Vec<(f64, usize)> = known.map(|range| (rate(range, &before, &spent), range)).collect();
        order.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let (mut likely, mut held, mut polled) = (vec![false; RANGES], 0.0, 0.0);
        for (_, range) in order {
            if held >= LIKELY {
                break;
            }
            likely[range] = true;
            held += ends[range];
            polled += times(range);
        }
        let polls = (spent[RANGES] / SECONDS_A_POLL).clamp(FREE_POLLS, MOST_POLLS);
        Self { likely, running, pause: polled / polls }
    }

    /// Returns after how many seconds to poll a call that has run for so many.
    pub(super) fn next(&self, age: f64) -> f64 {
        let here = range_of(age);
        if self.likely[here] {
            return self.pause;
        }
        let goal = self.running_at(age) * (1.0 - SELDOM);
        let later =
            (here..RANGES).find(|range| (*range > here && self.likely[*range]) || self.running[*range + 1] <= goal);
        let Some(range) = later else { return f64::INFINITY };
        let begin = BOUNDS[range];
        if range > here && self.likely[range] {
            return begin - age;
        }
        let (first, last) = (self.running[range], self.running[range + 1]);
        let part = if first > last { ((first - goal) / (first - last)).clamp(0.0, 1.0) } else { 1.0 };
        let seldom = (begin + part * (BOUNDS[range + 1] - begin) - age).max(0.0);
        // A call that outlives all that is known is noticed no later than half of its time after its end.
        if self.likely[here..].contains(&true) { seldom } else { seldom.min(age / 2.0) }
    }

    /// Returns the part of all calls that still run at an age.
    fn running_at(&self, age: f64) -> f64 {
        let range = range_of(age);
        let (begin, end) = (BOUNDS[range], BOUNDS[range + 1]);
        let part = ((age - begin) / (end - begin)).clamp(0.0, 1.0);
        self.running[range] + part * (self.running[range + 1] - self.running[range])
    }
}

/// Returns how many of the calls that run end in a second at the ages around a range: as many ranges to both sides as
/// it takes to know more than chance, but not much more than close by. `before` and `spent` are sums up to each bound.
fn rate(range: usize, before: &[f64], spent: &[f64]) -> f64 {
    let around = |far: usize| (range.saturating_sub(far), (range + far + 1).min(RANGES));
    let rate = |far: usize| {
        let (from, to) = around(far);
        (before[to] - before[from]) / (spent[to] - spent[from]).max(f64::EPSILON)
    };
    let knows = |far: &usize| {
        let (from, to) = around(*far);
        before[to] - before[from] >= NEIGHBOURS
    };
    rate((0..FAR).find(knows).unwrap_or(FAR)).min(3.0 * rate(CLOSE))
}

/// Returns the sums of all before each value, and of all.
fn sums(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (mut sums, mut sum) = (Vec::with_capacity(RANGES + 1), 0.0);
    sums.push(sum);
    for value in values {
        sum += value;
        sums.push(sum);
    }
    sums
}
