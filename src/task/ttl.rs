//! The ttl of a task: what its client gets of what it asks for, and how the end of the task moves it (section "TTL and
//! Resource Management").

use std::time::Duration;

use super::{Change, Task, clock::millis, status_message};
use crate::config::Tool;

/// How many poll intervals a client has at least to collect a result.
pub(super) const POLLS_TO_COLLECT: u32 = 10;

/// A call that was sent within so many poll intervals of its task's creation counts as sent with it, as for the ttl of a
/// new task. What that takes from the time to collect, the end of the task gives back.
const POLLS_TO_SEND: u32 = 5;

/// What a client asks for as ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedTtl {
    /// Nothing.
    Default,
    /// This ttl.
    For(Duration),
    /// The longest that is allowed.
    Unlimited,
}

/// How long a task lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// From its creation on, while it waits and runs.
    pub ttl: Duration,
    /// From its end on.
    pub keep: Duration,
    /// How long it may wait for its turn. If it waited longer, its ttl would not cover the call.
    pub patience: Duration,
}

impl Lifetime {
    /// Returns the lifetime that the client asks for, within what the operator allows, and at least what the call
    /// needs. It needs its timeout and the time to collect; if it is `queued`, also its timeout again, to wait for its
    /// turn.
    pub(super) fn of(tool: &Tool, asked: AskedTtl, queued: bool) -> Self {
        let wanted = match asked {
            AskedTtl::Default => tool.ttl,
            AskedTtl::For(wanted) => wanted.min(tool.max_ttl),
            AskedTtl::Unlimited => tool.max_ttl,
        };
        let collecting = collecting(tool);
        let needed = needed(tool);
        let ttl = wanted.max(if queued { needed + tool.timeout } else { needed });
        Self { ttl, keep: wanted.max(collecting), patience: ttl.saturating_sub(needed) }
    }
}

/// Returns how long a call with this `ttl` may wait for its turn.
pub(super) fn patience(tool: &Tool, ttl: Duration) -> Duration {
    ttl.saturating_sub(needed(tool))
}

/// Returns the change that gives a task of an earlier process the time that its call needs by the settings of this one.
/// `sent` is when the call was sent; one that waits may wait as long as a new one, and begins to wait anew where that
/// time is over.
pub(super) fn prolonged(tool: &Tool, task: &Task, sent: Option<u64>, now: u64) -> Change {
    let [expires, keep] = times(tool, task, sent, now);
    Change::Prolong { expires, keep }
}

/// Returns the change that notes that the call of a task is sent `now`.
pub(super) fn sent(tool: &Tool, task: &Task, now: u64) -> Change {
    let [expires, keep] = times(tool, task, Some(now), now);
    Change::Sent { text: status_message::RUNNING.into(), expires, keep }
}

/// Returns until when a task has to last, and how long after its end.
fn times(tool: &Tool, task: &Task, sent: Option<u64>, now: u64) -> [u64; 2] {
    let [needed, timeout] = [needed(tool), tool.timeout].map(millis);
    let created = task.expires.saturating_sub(task.ttl);
    let at_once = created.saturating_add(millis(tool.usual_poll_interval() * POLLS_TO_SEND));
    let sent = sent.map(|sent| if sent <= at_once { sent.min(created) } else { sent });
    let begins = sent.unwrap_or_else(|| {
        let waits_until = created.saturating_add(task.ttl.saturating_sub(needed).max(timeout));
        if waits_until > now { waits_until } else { now.saturating_add(timeout) }
    });
    [begins.saturating_add(needed), millis(collecting(tool))]
}

/// Returns how long a task has to live whose call does not wait.
fn needed(tool: &Tool) -> Duration {
    tool.timeout + collecting(tool)
}

/// Returns how long a client has at least to collect a result.
fn collecting(tool: &Tool) -> Duration {
    tool.usual_poll_interval() * POLLS_TO_COLLECT
}

impl Task {
    /// Returns whether `change` gives the task more time than it has.
    pub(super) fn gains_by(&self, change: &Change) -> bool {
        matches!(change, Change::Prolong { expires, keep } if *expires > self.expires || *keep > self.keep)
    }

    /// Returns the ttl and the deadline of the task if it is to last until `expires` at least.
    pub(super) fn lasting_until(&self, expires: u64) -> (u64, u64) {
        let more = expires.saturating_sub(self.expires);
        (self.ttl.saturating_add(more), self.expires.saturating_add(more))
    }

    /// Returns the ttl and the deadline of the task if it ends at `end`.
    pub(super) fn kept_from(&self, end: u64) -> (u64, u64) {
        let wanted = end.saturating_add(self.keep);
        let expires = if self.shortens { wanted } else { wanted.max(self.expires) };
        let ttl = self.ttl.saturating_add(expires.saturating_sub(self.expires));
        (ttl.saturating_sub(self.expires.saturating_sub(expires)), expires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{
        Change,
        state::tests::{at, owner, task},
    };

    fn lifetime(asked: AskedTtl, queued: bool) -> [u64; 3] {
        let Lifetime { ttl, keep, patience } = Lifetime::of(&Tool::default(), asked, queued);
        [ttl, keep, patience].map(|duration| duration.as_secs())
    }

    #[test]
    fn a_ttl_covers_the_timeout_while_the_call_waits_and_runs_and_is_what_was_asked_for_afterwards() {
        let asked = |seconds| AskedTtl::For(Duration::from_secs(seconds));
        let (hour, day) = (3600, 24 * 3600);
        // The default timeout is an hour, and ten polls take 20 s.
        assert_eq!(lifetime(asked(60), false), [hour + 20, 60, 0]);
        assert_eq!(lifetime(asked(1), false), [hour + 20, 20, 0]);
        assert_eq!(lifetime(AskedTtl::Default, false), [hour + 20, 15 * 60, 0]);
        assert_eq!(lifetime(asked(2 * hour), false), [2 * hour, 2 * hour, hour - 20]);
        assert_eq!(lifetime(AskedTtl::Unlimited, false), [day, day, 23 * hour - 20]);
        // A call that waits for its turn may wait as long as it may run, or longer if its ttl allows it.
        assert_eq!(lifetime(asked(60), true), [2 * hour + 20, 60, hour]);
        assert_eq!(lifetime(asked(day + 1), true), [day, day, 23 * hour - 20]);
    }

    #[test]
    fn a_task_of_an_earlier_process_gets_the_time_that_its_call_needs_now_and_loses_none() {
        let tool = |timeout| Tool { timeout: Duration::from_secs(timeout), ..Tool::default() };
        let (created, second) = (1_000_000, 1000);
        let task = Task { ttl: 100 * second, expires: created + 100 * second, keep: second, ..task(&owner()) };
        let ttl = |timeout, sent: Option<u64>, now: u64| {
            let [sent, now] = [sent.unwrap_or_default(), now].map(|after| created + after * second);
            let change = prolonged(&tool(timeout), &task, (sent > created).then_some(sent), now);
            let longer = task.after(&change, at(now)).expect("it runs");
            assert!(!longer.gains_by(&change) && longer.keep == 20 * second, "ten polls take 20 s");
            assert_eq!((longer.expires - longer.ttl, longer.state), (created, task.state));
            longer.ttl / second
        };
        // One that waits may wait for as long as its call may run, from its creation, or from now on if that is over.
        assert_eq!([ttl(10, None, 5), ttl(200, None, 5), ttl(70, None, 90)], [100, 420, 250]);
        // One that was sent has its timeout and the time to collect.
        assert_eq!([ttl(10, Some(30), 50), ttl(200, Some(30), 50)], [100, 250]);
    }

    #[test]
    fn a_start_with_the_same_settings_changes_no_ttl_of_a_call_that_was_sent_some_time_after_its_task_was_created() {
        let tool = Tool { timeout: Duration::from_secs(30), ttl: Duration::from_secs(1), ..Tool::default() };
        let created = 1_000_000;
        for (queued, sent) in [(false, 0), (false, 1), (false, 9000), (true, 1), (true, 9000), (true, 30_000)] {
            let lifetime = Lifetime::of(&tool, AskedTtl::Default, queued);
            let task = Task::new(owner(), "tool".into(), &tool, &lifetime, at(created));
            let change = prolonged(&tool, &task, Some(created + sent), created + 40_000);
            assert!(!task.gains_by(&change), "queued: {queued}, sent after {sent} ms");
        }
    }

    /// Returns the ttl in milliseconds of a task whose client was told an hour, once it has ended after `ran` seconds.
    fn ttl_after(ran: u64, keep: u64, shortens: bool) -> u64 {
        let (created, hour) = (1_000_000, 3_600_000);
        let task = Task { ttl: hour, expires: created + hour, keep: keep * 1000, shortens, ..task(&owner()) };
        let ended = task.after(&Change::cancel(), at(created + ran * 1000)).expect("legal");
        assert_eq!(ended.expires, created + ended.ttl, "the ttl says when the task expires");
        ended.ttl
    }

    #[test]
    fn a_task_that_has_ended_is_kept_from_its_end_on_and_its_ttl_says_so() {
        // A client that asked for a minute gets it, whatever the call might have needed.
        assert_eq!(ttl_after(5, 60, true), 65_000);
        assert_eq!(ttl_after(3590, 60, true), 3_650_000);
        // A client that asked for nothing gets at least what it was told.
        assert_eq!(ttl_after(5, 900, false), 3_600_000);
        assert_eq!(ttl_after(3590, 900, false), 4_490_000);
    }
}
