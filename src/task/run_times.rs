//! How long the calls of one tool took lately, and what follows from it: when to poll, and what a person can be told.

use std::{cell::OnceCell, fmt, time::Duration};

use super::{
    in_words::in_words,
    poll_plan::{PollPlan, RANGES, middle_of, range_of},
};

/// At this many calls each counts half from then on.
const MANY: f32 = 256.0;
/// Up to this many calls each makes a new plan.
const NEWS: u32 = 32;
/// From then on every so many calls do.
const PLANNED_EVERY: u32 = 16;
/// Fewer calls say nothing about the next one.
const FEW: u32 = 4;

/// After so many calls without a question the next one is not expected to ask.
const STILL_ASKS: u32 = 64;

/// How long the calls of one tool took lately.
#[derive(Debug)]
pub struct RunTimes {
    /// How many calls ended in each range of times, where an older call counts less.
    ended: Vec<f32>,
    /// The sum of `ended`.
    all: f32,
    /// How many calls there have been.
    count: u32,
    /// How many there had been when one asked its client something last.
    asked: Option<u32>,
    /// Made when a client is told when to poll.
    plan: OnceCell<PollPlan>,
    usual: Option<UsualTime>,
}

/// Between which intervals clients are told to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollBounds {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

/// How long calls of a tool usually take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsualTime {
    /// They take about as long as each other.
    About(Duration),
    /// They take very different times, and four in five no longer than this.
    Within(Duration),
}

impl fmt::Display for UsualTime {
    /// Writes a clause such as "usually done in about 4 minutes".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::About(time) => write!(f, "usually done in about {}", in_words(*time)),
            Self::Within(time) => write!(f, "usually done within {}", in_words(*time)),
        }
    }
}

impl Default for RunTimes {
    fn default() -> Self {
        Self { ended: vec![0.0; RANGES], all: 0.0, count: 0, asked: None, plan: OnceCell::new(), usual: None }
    }
}

impl RunTimes {
    /// Notes how long a call took.
    pub fn record(&mut self, took: Duration) {
        if self.all >= MANY {
            for ended in &mut self.ended {
                *ended /= 2.0;
            }
            self.all /= 2.0;
        }
        self.ended[range_of(took.as_secs_f64())] += 1.0;
        self.all += 1.0;
        self.count = self.count.saturating_add(1);
        if self.count <= NEWS || self.count.is_multiple_of(PLANNED_EVERY) {
            self.plan = OnceCell::new();
            self.usual = self.usual_time();
        }
    }

    /// Notes that a call has asked its client something.
    pub fn record_question(&mut self) {
        self.asked = Some(self.count);
    }

    /// Returns whether calls have asked their clients something lately.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.asked.is_some_and(|asked| self.count.saturating_sub(asked) < STILL_ASKS)
    }

    /// Returns after which time to poll a call that has run for `age`.
    #[must_use]
    pub fn next_poll(&self, age: Duration, bounds: PollBounds) -> Duration {
        let plan = self.plan.get_or_init(|| PollPlan::new(&self.ended));
        let next = Duration::try_from_secs_f64(plan.next(age.as_secs_f64())).unwrap_or(Duration::MAX);
        next.max(bounds.min).min(bounds.max)
    }

    /// Returns how long calls usually take, if enough of them are known.
    #[must_use]
    pub fn usual(&self) -> Option<UsualTime> {
        self.usual
    }

    fn usual_time(&self) -> Option<UsualTime> {
        if self.count < FEW {
            return None;
        }
        let [early, middle, late] = [0.2, 0.5, 0.8].map(|part| self.done_within(part));
        let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Some(if late > 1.5 * early { UsualTime::Within(time(late)) } else { UsualTime::About(time(middle)) })
    }

    /// Returns how many seconds that part of the calls took at most.
    fn done_within(&self, part: f32) -> f64 {
        let mut left = part * self.all;
        let found = self.ended.iter().position(|ended| {
            left -= ended;
            left <= 0.0
        });
        middle_of(found.unwrap_or(RANGES - 1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn after(times: &[f64]) -> RunTimes {
        let mut run_times = RunTimes::default();
        for time in times {
            run_times.record(Duration::from_secs_f64(*time));
        }
        run_times
    }

    /// Returns the interval in seconds, within no bounds, for a call that has run for `age` seconds.
    fn next(run_times: &RunTimes, age: f64) -> f64 {
        let bounds = PollBounds { min: Duration::ZERO, max: Duration::MAX };
        run_times.next_poll(Duration::from_secs_f64(age), bounds).as_secs_f64()
    }

    #[test]
    fn a_call_of_a_tool_with_constant_run_times_is_polled_first_when_it_is_about_to_be_done() {
        for time in [3.0, 20.0, 150.0, 3000.0] {
            let run_times = after(&[time; 100]);
            let first = next(&run_times, 0.0);
            assert!(first <= time && first >= 0.95 * time, "{first} for {time}");
            assert!(next(&run_times, 0.99 * time) < 0.01 * time);
        }
    }

    #[test]
    fn a_tool_that_is_as_often_fast_as_slow_is_polled_at_both_times_and_seldom_in_between() {
        let times: Vec<f64> = (0..200).map(|n| if n % 2 == 0 { 5.0 } else { 300.0 }).collect();
        let run_times = after(&times);
        assert!((4.0..5.0).contains(&next(&run_times, 0.0)));
        assert!(next(&run_times, 6.0) > 200.0);
        assert!(next(&run_times, 299.0) < 5.0);
    }

    #[test]
    fn a_call_of_an_unknown_tool_is_polled_often_at_first_and_ever_more_seldom_later() {
        let unknown = RunTimes::default();
        let intervals: Vec<f64> = (0..16).map(|n| next(&unknown, f64::from(1 << n))).collect();
        assert!(intervals.is_sorted(), "{intervals:?}");
        assert!(next(&unknown, 10.0) <= 1.0 && next(&unknown, 300.0) > 10.0 && next(&unknown, 300.0) < 100.0);
    }

    #[test]
    fn a_call_that_takes_longer_than_all_others_is_noticed_after_half_of_its_time_at_the_latest() {
        let run_times = after(&[0.01; 100]);
        for age in [0.5, 1.0, 5.0, 60.0] {
            assert!((0.05 * age..=0.5 * age).contains(&next(&run_times, age)), "{age}");
        }
    }

    #[test]
    fn new_run_times_replace_old_ones() {
        let mut run_times = after(&[10.0; 1000]);
        assert!((9.0..10.0).contains(&next(&run_times, 0.0)));
        for _ in 0..1000 {
            run_times.record(Duration::from_secs(200));
        }
        assert!(next(&run_times, 0.0) > 150.0);
        assert!(matches!(run_times.usual(), Some(UsualTime::About(time)) if time.as_secs().abs_diff(200) < 10));
    }

    #[test]
    fn a_person_is_told_about_how_long_calls_take_or_within_what_time_most_end() {
        let told = |times: &[f64]| after(times).usual().map(|usual| usual.to_string());
        assert_eq!(told(&[240.0; 3]), None, "too few");
        assert_eq!(told(&[240.0; 4]).as_deref(), Some("usually done in about 4 minutes"));
        let spread: Vec<f64> = (1..=10).map(|n| 12.0 * f64::from(n)).collect();
        assert_eq!(told(&spread).as_deref(), Some("usually done within 1.5 minutes"));
    }

    #[test]
    fn calls_ask_as_long_as_the_last_question_is_not_long_ago() {
        let mut run_times = after(&[1.0; 10]);
        assert!(!run_times.asks());
        run_times.record_question();
        for _ in 1..STILL_ASKS {
            run_times.record(Duration::from_secs(1));
        }
        assert!(run_times.asks());
        run_times.record(Duration::from_secs(1));
        assert!(!run_times.asks());
    }

    proptest! {
        #[test]
        fn an_interval_is_within_its_bounds_whatever_the_calls_took(
            times in vec(0.0..1e6_f64, 0..100), age in 0.0..1e7_f64, min in 1_u64..10_000, more in 0_u64..100_000,
        ) {
            let bounds = PollBounds { min: Duration::from_millis(min), max: Duration::from_millis(min + more) };
            let interval = after(&times).next_poll(Duration::from_secs_f64(age), bounds);
            prop_assert!((bounds.min..=bounds.max).contains(&interval));
        }

        #[test]
        fn a_poll_is_never_told_to_come_after_half_of_the_calls_that_still_run_have_ended(
            times in vec(1.0..1000.0_f64, 4..100), age in 0.0..1000.0_f64,
        ) {
            let left = |age: f64| times.iter().filter(|time| **time > age).count();
            // The ranges of times are a twentieth wide, and what is known of no tool counts as one call.
            let next = age + next(&after(&times), age);
            prop_assume!(left(1.05 * age) >= 8);
            prop_assert!(2 * left(0.95 * next) + 4 >= left(1.05 * age), "from {age} to {next}");
        }

        #[test]
        fn beyond_all_that_is_known_an_older_call_is_polled_no_more_often(
            times in vec(1.0..1000.0_f64, 4..50), age in 1100.0..3000.0_f64, older in 1.0..20.0_f64,
        ) {
            let run_times = after(&times);
            prop_assert!(next(&run_times, age) <= 1.05 * next(&run_times, age * older));
        }

        #[test]
        fn what_is_known_stays_bounded(times in vec(0.0..1e9_f64, 500..600)) {
            let run_times = after(&times);
            prop_assert!(run_times.all <= MANY + 1.0 && run_times.ended.len() == RANGES);
        }
    }
}
