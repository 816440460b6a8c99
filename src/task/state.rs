//! The state machine of a task, pure (revision 2025-11-25, "Task Status Lifecycle").

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use crate::identity::Owner;

/// A task's id: 122 random bits.
pub type TaskId = Uuid;

/// A task as it is stored. A change makes a new value with the next version.
#[derive(Clone, Debug)]
pub struct Task {
    /// The id, given by the receiver.
    pub id: TaskId,
    /// Who may see it.
    pub owner: Owner,
    /// The tool that it calls, as the client names it, shortened if that is long.
    pub tool: Arc<str>,
    /// Where it stands.
    pub state: State,
    /// A text for a person.
    pub status_message: Option<Arc<str>>,
    /// Milliseconds since the Unix epoch.
    pub created_at: u64,
    /// Milliseconds since the Unix epoch.
    pub last_updated_at: u64,
    /// Milliseconds from creation to removal. The end of the task may move it.
    pub ttl: u64,
    /// How long the task is kept at least once it has ended.
    pub keep: Duration,
    /// Whether its end may make the ttl shorter than it was told at creation.
    pub shortens: bool,
    /// Milliseconds between polls, as a suggestion.
    pub poll_interval: u64,
    /// When it is removed, by this process's clock.
    pub expires: Instant,
    /// Counts the changes, so that a change can be refused if another came first.
    pub version: u32,
}

/// The states. The three last are final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The call runs, or waits for its turn.
    Working,
    /// The call has asked the client something and waits for the answer.
    InputRequired,
    /// The call gave a result.
    Completed(Outcome),
    /// The call gave an error, or an error result, or none.
    Failed(Outcome),
    /// Somebody cancelled it first.
    Cancelled,
}

/// The raw JSON that the call gave, in memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The `result` member.
    Result(Bytes),
    /// The `error` member.
    Error(Bytes),
}

/// What can happen to a task.
#[derive(Clone, Debug)]
pub enum Change {
    /// The text for a person is another one.
    Message(Arc<str>),
    /// The call waits for the client's answer, and to what.
    Ask(Arc<str>),
    /// The call waits for no answer any more.
    Resume,
    /// The call gave a result that counts as success.
    Complete(Outcome),
    /// The call did not succeed, and why.
    Fail(Outcome, Arc<str>),
    /// The requestor wants it no more.
    Cancel,
}

/// One moment, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Milliseconds since the Unix epoch.
    pub unix: u64,
    /// By this process's clock, which nobody sets.
    pub instant: Instant,
}

impl Now {
    /// Reads the clocks.
    #[must_use]
    pub fn read() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { unix: u64::try_from(since.as_millis()).unwrap_or(u64::MAX), instant: Instant::now() }
    }
}

/// A change that the state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal {
    /// The final state that the task is in.
    pub state: &'static str,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the task is already in terminal status '{}'", self.state)
    }
}

impl Outcome {
    /// How many bytes are kept.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no JSON is empty")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Result(raw) | Self::Error(raw) => raw.len(),
        }
    }
}

impl State {
    /// Whether no change is possible any more.
    #[must_use]
    pub const fn is_terminal(&self) -> bool {
        !matches!(self, Self::Working | Self::InputRequired)
    }

    /// What is kept of the call, if it has ended and gave something.
    #[must_use]
    pub const fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Completed(outcome) | Self::Failed(outcome) => Some(outcome),
            Self::Working | Self::InputRequired | Self::Cancelled => None,
        }
    }

    /// The status as the protocol names it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed(_) => "completed",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Task {
    /// Returns the task after `change`, which happens `now`. One that ends is kept from then on for as long as `keep` says.
    ///
    /// # Errors
    /// [`Illegal`] if the task is in a terminal state: those are never left.
    pub fn after(&self, change: Change, now: Now) -> Result<Self, Illegal> {
        if self.state.is_terminal() {
            return Err(Illegal { state: self.state.name() });
        }
        let (state, status_message) = match change {
            Change::Message(message) => (self.state.clone(), Some(message)),
            Change::Ask(message) => (State::InputRequired, Some(message)),
            Change::Resume => (State::Working, None),
            Change::Complete(outcome) => (State::Completed(outcome), None),
            Change::Fail(outcome, message) => (State::Failed(outcome), Some(message)),
            Change::Cancel => (State::Cancelled, Some("The task was cancelled by request.".into())),
        };
        let (ttl, expires) = if state.is_terminal() { self.kept_from(now.instant) } else { (self.ttl, self.expires) };
        Ok(Self {
            state,
            status_message,
            last_updated_at: now.unix.max(self.last_updated_at),
            ttl,
            expires,
            version: self.version.wrapping_add(1),
            ..self.clone()
        })
    }

    /// Returns the ttl and the deadline of the task if it ends at `end`. Whole milliseconds are told, never more than
    /// it gets.
    fn kept_from(&self, end: Instant) -> (u64, Instant) {
        let wanted = end + self.keep;
        let expires = if self.shortens { wanted } else { wanted.max(self.expires) };
        let ttl = match expires.checked_duration_since(self.expires) {
            Some(later) => self.ttl.saturating_add(later.as_millis().try_into().unwrap_or(u64::MAX)),
            None => self.ttl.saturating_sub(millis(self.expires - expires)),
        };
        (ttl, expires)
    }
}

/// Whole milliseconds, rounded up.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The moment `unix` milliseconds after the epoch, on this process's clock right now.
    pub(in crate::task) fn at(unix: u64) -> Now {
        Now { unix, instant: Instant::now() }
    }

    pub(in crate::task) fn task(owner: &Owner) -> Task {
        Task {
            id: Uuid::new_v4(),
            owner: owner.clone(),
            tool: "tool".into(),
            state: State::Working,
            status_message: None,
            created_at: 1000,
            last_updated_at: 1000,
            ttl: 60_000,
            keep: Duration::from_mins(1),
            shortens: false,
            poll_interval: 1000,
            expires: Instant::now() + Duration::from_mins(1),
            version: 0,
        }
    }

    fn changes() -> [Change; 6] {
        let outcome = || Outcome::Result("{}".into());
        [
            Change::Message("m".into()),
            Change::Ask("what".into()),
            Change::Resume,
            Change::Complete(outcome()),
            Change::Fail(outcome(), "why".into()),
            Change::Cancel,
        ]
    }

    fn owner() -> Owner {
        Owner::Principal { upstream: "/mcp".into(), name: "ann".into() }
    }

    #[test]
    fn a_working_task_may_go_on_ask_complete_fail_or_be_cancelled() {
        let names = changes().map(|change| task(&owner()).after(change, at(2000)).map(|task| task.state.name()));
        let terminal = [Ok("completed"), Ok("failed"), Ok("cancelled")];
        assert_eq!(names[..3], [Ok("working"), Ok("input_required"), Ok("working")]);
        assert_eq!(names[3..], terminal);
    }

    #[test]
    fn a_task_that_asks_may_go_on_work_again_complete_fail_or_be_cancelled() {
        let asking = task(&owner()).after(Change::Ask("what".into()), at(2000)).expect("legal");
        let names = changes().map(|change| asking.after(change, at(2000)).map(|task| task.state.name()));
        let terminal = [Ok("completed"), Ok("failed"), Ok("cancelled")];
        assert_eq!(names[..3], [Ok("input_required"), Ok("input_required"), Ok("working")]);
        assert_eq!(names[3..], terminal);
    }

    #[test]
    fn a_terminal_state_is_never_left() {
        for last in changes().into_iter().skip(3) {
            let ended = task(&owner()).after(last, at(2000)).expect("legal");
            for change in changes() {
                let state = ended.state.name();
                assert_eq!(ended.after(change, at(3000)).err(), Some(Illegal { state }));
            }
        }
    }

    #[test]
    fn a_change_moves_the_time_forward_only_and_the_version_by_one() {
        let changed = task(&owner()).after(Change::Cancel, at(500)).expect("legal");
        assert_eq!((changed.last_updated_at, changed.created_at, changed.version), (1000, 1000, 1));
    }

    /// The ttl of a task that was told an hour, in milliseconds, when it has ended after `ran` seconds.
    fn ttl_after(ran: u64, keep: u64, shortens: bool) -> u64 {
        let created = Instant::now();
        let (keep, hour) = (Duration::from_secs(keep), Duration::from_hours(1));
        let task = Task { ttl: millis(hour), expires: created + hour, keep, shortens, ..task(&owner()) };
        let end = Now { unix: 0, instant: created + Duration::from_secs(ran) };
        let ended = task.after(Change::Cancel, end).expect("legal");
        assert_eq!(ended.expires, created + Duration::from_millis(ended.ttl), "what is told is what holds");
        ended.ttl
    }

    #[test]
    fn a_task_that_has_ended_is_kept_from_its_end_on_and_its_ttl_says_so() {
        // A client that asked for a minute gets it, whatever the call might have needed.
        assert_eq!(ttl_after(5, 60, true), 65_000);
        assert_eq!(ttl_after(3590, 60, true), 3_650_000);
        // One that asked for nothing gets what it was told at least.
        assert_eq!(ttl_after(5, 900, false), 3_600_000);
        assert_eq!(ttl_after(3590, 900, false), 4_490_000);
    }

    proptest::proptest! {
        #[test]
        fn any_sequence_of_changes_ends_a_task_at_most_once_and_counts_each(
            steps in proptest::collection::vec((0_usize..6, 0_u64..4000), 0..20),
        ) {
            let (mut task, mut ends) = (task(&owner()), 0);
            for (which, now) in steps {
                let before = task.clone();
                match before.after(changes()[which].clone(), at(now)) {
                    Err(illegal) => assert!(before.state.is_terminal() && illegal.state == before.state.name()),
                    Ok(after) => task = after,
                }
                ends += usize::from(task.state.is_terminal() && !before.state.is_terminal());
                assert_eq!(task.version - before.version, u32::from(!before.state.is_terminal()));
                assert!(task.last_updated_at >= before.last_updated_at);
                let fixed = |task: &Task| (task.id, task.owner.clone(), task.created_at, task.keep);
                assert_eq!(fixed(&task), fixed(&before));
                let deadline = |task: &Task| (task.ttl, task.expires);
                assert!(deadline(&task) == deadline(&before) || task.state.is_terminal(), "a deadline moves at the end only");
            }
            assert!(ends <= 1);
        }
    }
}
