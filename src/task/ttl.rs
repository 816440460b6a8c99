//! The ttl of a task: what its client gets of what it asks for, and how the end of the task moves it (section "TTL and
//! Resource Management").

use std::time::Duration;

use super::Task;
use crate::config::Tool;

/// How many poll intervals a client has to collect a result.
const POLLS_TO_COLLECT: u32 = 10;

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
    /// Returns the lifetime that the client asks for, within what the operator allows, and at least what the call needs. It
    /// needs its timeout and the time to collect; if it is `queued`, also its timeout again, to wait for its turn.
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

/// Returns how long a task has to live whose call does not wait.
fn needed(tool: &Tool) -> Duration {
    tool.timeout + collecting(tool)
}

/// Returns how long a client has at least to collect a result.
fn collecting(tool: &Tool) -> Duration {
    tool.usual_poll_interval() * POLLS_TO_COLLECT
}

impl Task {
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
