//! The state machine of a task, pure (revision 2025-11-25, "Task Status Lifecycle").

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::clock::Now;
use crate::{identity::Owner, observe::events::Ended};

/// A task's id: 122 random bits.
pub type TaskId = Uuid;

/// A task as it is stored, without what its call gave. A change makes the next version of it.
#[derive(Clone, Debug)]
pub struct Task {
    /// The id, which taskgate has chosen.
    pub id: TaskId,
    /// Who may see it.
    pub owner: Owner,
    /// The tool that it calls, as the client names it, shortened if that is long.
    pub tool: Arc<str>,
    /// Where it is in its life.
    pub state: State,
    /// A text for a person.
    pub status_message: Option<Arc<str>>,
    /// Milliseconds since the Unix epoch, by [`Now::wall`].
    pub created_at: u64,
    /// Milliseconds since the Unix epoch, by [`Now::wall`].
    pub last_updated_at: u64,
    /// Milliseconds from creation to removal. The end of the task may move it.
    pub ttl: u64,
    /// Milliseconds for which the task is kept at least after its end.
    pub keep: u64,
    /// Whether its end may make the ttl shorter than what its client was told at creation.
    pub shortens: bool,
    /// Milliseconds between polls, as a suggestion where this process does not run its call.
    pub poll_interval: u64,
    /// When it is removed: milliseconds since the Unix epoch, by [`Now::steady`].
    pub expires: u64,
    /// Counts the changes, so that the store can refuse a change if another came first.
    pub version: u32,
}

/// Where a task is in its life. The last state is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The call runs, or waits for its turn.
    Working,
    /// The call has asked the client something and waits for the answer.
    InputRequired,
    /// The task has ended, and how.
    Ended(Ending),
}

/// How a task has ended. Its client's dialect says what that means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The call gave a result.
    Result,
    /// The call gave a result that says that the tool failed.
    ErrorResult,
    /// The call gave an error, or no answer, which taskgate makes an error.
    Error,
    /// A client cancelled the task first.
    Cancelled,
}

/// The end of a task, with what the call gave: raw JSON in memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A result.
    Result {
        /// The result.
        raw: Bytes,
        /// Whether it says that the tool failed.
        is_error: bool,
    },
    /// An error.
    Error {
        /// The error.
        raw: Bytes,
    },
    /// A client cancelled the task first.
    Cancelled,
}

/// The text of a task that was given up while it was made.
pub(super) const GIVEN_UP: &str =
    "The task was not acknowledged: its client was answered without it, has left, or could not be told";

/// What can happen to a task.
#[derive(Clone, Debug)]
pub enum Change {
    /// The text for a person changes.
    Message(Arc<str>),
    /// The call asks the client something, and waits; the text says what.
    Ask(Arc<str>),
    /// The call has no open question any more.
    Resume,
    /// The call needs more time than when the task was created. Neither moves backwards.
    Prolong {
        /// [`Task::expires`]
        expires: u64,
        /// [`Task::keep`]
        keep: u64,
    },
    /// The call is sent, as the text says. It has its time from then on, as with [`Change::Prolong`].
    Sent {
        /// For a person.
        text: Arc<str>,
        /// [`Task::expires`]
        expires: u64,
        /// [`Task::keep`]
        keep: u64,
    },
    /// The task ends, perhaps with a text for a person.
    End(End, Option<Arc<str>>),
}

impl Change {
    /// Returns the change that cancels a task for its client.
    pub(super) fn cancel() -> Self {
        Self::End(End::Cancelled, Some("The task was cancelled by request.".into()))
    }

    /// Returns the change that ends a task of which its call has no need, and its client does not know.
    pub(super) fn give_up() -> Self {
        Self::End(End::Cancelled, Some(GIVEN_UP.into()))
    }

    /// Returns the end, if the change is one.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        match self {
            Self::End(end, _) => Some(end),
            Self::Message(_) | Self::Ask(_) | Self::Resume | Self::Prolong { .. } | Self::Sent { .. } => None,
        }
    }
}

/// The refusal of a change: the task has ended, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HasEnded(pub(super) Ending);

impl End {
    /// Returns how the task ended.
    #[must_use]
    pub const fn ending(&self) -> Ending {
        match self {
            Self::Result { is_error: false, .. } => Ending::Result,
            Self::Result { is_error: true, .. } => Ending::ErrorResult,
            Self::Error { .. } => Ending::Error,
            Self::Cancelled => Ending::Cancelled,
        }
    }

    /// Returns the end that a task has got, with what its call gave.
    pub(super) fn of(ending: Ending, raw: Bytes) -> Self {
        match ending {
            Ending::Result => Self::Result { raw, is_error: false },
            Ending::ErrorResult => Self::Result { raw, is_error: true },
            Ending::Error => Self::Error { raw },
            Ending::Cancelled => Self::Cancelled,
        }
    }

    /// Returns what the call gave, if it gave something.
    pub(super) const fn raw(&self) -> Option<&Bytes> {
        match self {
            Self::Result { raw, .. } | Self::Error { raw } => Some(raw),
            Self::Cancelled => None,
        }
    }

    /// Returns how many bytes it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.raw().map_or(0, Bytes::len)
    }
}

impl From<Ending> for Ended {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Result => Self::Completed,
            Ending::ErrorResult | Ending::Error => Self::Failed,
            Ending::Cancelled => Self::Cancelled,
        }
    }
}

impl State {
    /// Returns whether the state is final.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

impl Task {
    /// Returns whether it was given up while it was made, as its call was answered without it.
    #[must_use]
    pub fn was_given_up(&self) -> bool {
        self.state == State::Ended(Ending::Cancelled) && self.status_message.as_deref() == Some(GIVEN_UP)
    }

    /// Returns the task after `change`, which happens `now`. If that ends it, it is kept from then on for at least
    /// `keep`.
    ///
    /// # Errors
    /// [`HasEnded`]
    pub(super) fn after(&self, change: &Change, now: Now) -> Result<Self, HasEnded> {
        if let State::Ended(ending) = self.state {
            return Err(HasEnded(ending));
        }
        let (state, status_message) = match change {
            Change::Message(text) | Change::Sent { text, .. } => (self.state, Some(Arc::clone(text))),
            Change::Ask(message) => (State::InputRequired, Some(Arc::clone(message))),
            Change::Resume => (State::Working, None),
            Change::Prolong { .. } => (self.state, self.status_message.clone()),
            Change::End(end, message) => (State::Ended(end.ending()), message.clone()),
        };
        let (ttl, expires) = match change {
            Change::End(..) => self.kept_from(now.steady),
            Change::Prolong { expires, .. } | Change::Sent { expires, .. } => self.lasting_until(*expires),
            Change::Message(_) | Change::Ask(_) | Change::Resume => (self.ttl, self.expires),
        };
        let keep = match change {
            Change::Prolong { keep, .. } | Change::Sent { keep, .. } => self.keep.max(*keep),
            _ => self.keep,
        };
        Ok(Self {
            state,
            status_message,
            last_updated_at: now.wall.max(self.last_updated_at),
            ttl,
            keep,
            expires,
            version: self.version.wrapping_add(1),
            ..self.clone()
        })
    }

    /// Returns whether `stored` is this very version, and not one of the same number that another change made.
    pub(super) fn is(&self, stored: &Self) -> bool {
        let essence = |task: &Self| (task.id, task.version, task.state, task.last_updated_at);
        essence(self) == essence(stored) && self.status_message == stored.status_message
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the moment so many milliseconds after the epoch.
    pub(in crate::task) fn at(unix: u64) -> Now {
        Now { wall: unix, steady: unix }
    }

    pub(in crate::task) fn result(raw: impl Into<Bytes>) -> Change {
        Change::End(End::Result { raw: raw.into(), is_error: false }, None)
    }

    pub(in crate::task) fn error(raw: impl Into<Bytes>) -> Change {
        Change::End(End::Error { raw: raw.into() }, Some("why".into()))
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
            keep: 60_000,
            shortens: false,
            poll_interval: 1000,
            expires: 61_000,
            version: 0,
        }
    }

    /// More time than a task has: until when, and how long after its end.
    const MORE: [u64; 2] = [90_000; 2];

    fn changes([expires, keep]: [u64; 2]) -> [Change; 8] {
        [
            Change::Message("m".into()),
            Change::Ask("what".into()),
            Change::Resume,
            Change::Prolong { expires, keep },
            Change::Sent { text: "m".into(), expires, keep },
            result("{}"),
            error("{}"),
            Change::cancel(),
        ]
    }

    fn states(task: &Task) -> [State; 8] {
        changes(MORE).map(|change| task.after(&change, at(2000)).expect("legal").state)
    }

    const ENDS: [State; 3] =
        [State::Ended(Ending::Result), State::Ended(Ending::Error), State::Ended(Ending::Cancelled)];

    pub(in crate::task) fn owner() -> Owner {
        Owner::principal("/mcp".into(), "ann".into())
    }

    #[test]
    fn a_working_task_may_go_on_ask_complete_fail_or_be_cancelled() {
        let states = states(&task(&owner()));
        let [working, asks] = [State::Working, State::InputRequired];
        assert_eq!(states[..5], [working, asks, working, working, working]);
        assert_eq!(states[5..], ENDS);
    }

    #[test]
    fn a_task_that_asks_may_go_on_work_again_complete_fail_or_be_cancelled() {
        let states = states(&task(&owner()).after(&Change::Ask("what".into()), at(2000)).expect("legal"));
        let [working, asks] = [State::Working, State::InputRequired];
        assert_eq!(states[..5], [asks, asks, working, asks, asks]);
        assert_eq!(states[5..], ENDS);
    }

    #[test]
    fn a_terminal_state_is_never_left() {
        for last in changes(MORE).into_iter().skip(5) {
            let ended = task(&owner()).after(&last, at(2000)).expect("legal");
            let ending = last.end().expect("an end").ending();
            for change in changes(MORE) {
                assert_eq!(ended.after(&change, at(3000)).err(), Some(HasEnded(ending)));
            }
        }
    }

    #[test]
    fn a_change_moves_the_time_forward_only_and_the_version_by_one() {
        let changed = task(&owner()).after(&Change::cancel(), at(500)).expect("legal");
        assert_eq!((changed.last_updated_at, changed.created_at, changed.version), (1000, 1000, 1));
    }

    proptest::proptest! {
        #[test]
        fn any_sequence_of_changes_ends_a_task_at_most_once_and_counts_each(
            steps in proptest::collection::vec((0_usize..8, 0_u64..4000, [0_u64..120_000, 0_u64..120_000]), 0..20),
            shortens: bool,
        ) {
            let (mut task, mut ends) = (Task { shortens, ..task(&owner()) }, 0);
            for (which, now, more) in steps {
                let (before, change) = (task.clone(), &changes(more)[which]);
                match before.after(change, at(now)) {
                    Err(HasEnded(ending)) => assert_eq!(before.state, State::Ended(ending)),
                    Ok(after) => task = after,
                }
                let ran = !before.state.is_terminal();
                let ends_now = ran && task.state.is_terminal();
                ends += usize::from(ends_now);
                assert_eq!(task.version - before.version, u32::from(ran));
                assert!(task.last_updated_at >= before.last_updated_at);
                let fixed = |task: &Task| (task.id, task.owner.clone(), task.created_at, task.expires - task.ttl);
                assert_eq!(fixed(&task), fixed(&before));
                let is_longer = ran && matches!(change, Change::Prolong { .. } | Change::Sent { .. });
                let [expires, keep] = if is_longer { more } else { [0, 0] };
                assert_eq!(task.keep, before.keep.max(keep));
                assert!(ends_now || task.expires == before.expires.max(expires), "its end and more time alone move it");
            }
            assert!(ends <= 1);
        }
    }
}
