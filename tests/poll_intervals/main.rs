//! `poll_interval = "auto"`: how often clients poll that wait as long as they are told, and how soon they notice the
//! end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod simulation;

use std::time::Duration;

use simulation::{Tool, tools};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the tools whose name begins so.
fn like(kind: &str) -> Vec<Tool> {
    let tools: Vec<Tool> = tools().into_iter().filter(|tool| tool.name.starts_with(kind)).collect();
    assert!(!tools.is_empty(), "{kind}");
    tools
}

/// Checks that a quarter of the polls of a fixed second is enough to notice half of the ends about as soon.
fn a_quarter_is_enough(kind: &str) {
    for tool in like(kind) {
        let (auto, fixed) = (tool.auto(), tool.fixed(SECOND));
        assert!(auto.polls <= fixed.polls / 4.0, "{}: {auto:?}, {fixed:?}", tool.name);
        assert!(auto.median <= 1.1 * fixed.median, "{}: {auto:?}, {fixed:?}", tool.name);
    }
}

#[test]
fn a_tool_of_constant_times_takes_a_quarter_of_the_polls() {
    a_quarter_is_enough("constant");
}

#[test]
fn a_tool_that_is_fast_or_slow_takes_a_quarter_of_the_polls() {
    a_quarter_is_enough("bimodal");
}

#[test]
fn a_tool_with_a_heavy_tail_takes_a_quarter_of_the_polls() {
    a_quarter_is_enough("heavy-tailed");
}

#[test]
fn a_tool_that_was_never_seen_takes_a_quarter_of_the_polls() {
    a_quarter_is_enough("never seen");
}

#[test]
fn where_no_intervals_could_do_so_polls_stay_few_and_ends_are_noticed_about_as_soon_as_at_a_fixed_interval_of_as_many()
{
    for tool in like("spread").into_iter().chain(like("without memory")) {
        let (auto, fixed) = (tool.auto(), tool.fixed(SECOND));
        assert!(tool.least_polls(1.1 * fixed.median) > 0.45 * fixed.polls, "{} could", tool.name);
        assert!(auto.nine_in_ten < 0.2 * 60.0, "{}: {auto:?}", tool.name);
        assert!(auto.polls <= fixed.polls / 2.0, "{}: {auto:?}", tool.name);
        let as_many = tool.fixed(SECOND.mul_f64(fixed.polls / auto.polls));
        assert!(auto.median <= 1.25 * as_many.median, "{}: {auto:?}, {as_many:?}", tool.name);
    }
}

#[test]
fn a_call_of_an_hour_is_not_polled_every_second() {
    for tool in like("about 50 min") {
        assert!(tool.auto().polls <= tool.fixed(10 * SECOND).polls, "{:?}", tool.auto());
    }
}

#[test]
fn no_intervals_could_take_fewer_polls_than_the_least() {
    for tool in tools() {
        let auto = tool.auto();
        assert!(auto.polls >= 0.95 * tool.least_polls(auto.median.max(0.1)), "{}", tool.name);
    }
}
