//! The calls that this process runs for tasks; once it stops, also which owners have to be told of an end.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{Task, TaskId};
use crate::{identity::Owner, observe::Who, session::Caller};

/// Polls are counted over this many poll intervals.
const COUNTED_INTERVALS: u32 = 10;
/// This many polls in the counted intervals are excessive: ten times as many as asked for.
const EXCESSIVE: u32 = 10 * COUNTED_INTERVALS;

/// The calls that run. A call that is taken out stops.
#[derive(Debug, Default)]
pub(super) struct RunningCalls {
    inner: Mutex<Inner>,
    /// Notified when [`RunningCalls::owners_to_tell`] may have changed, from [`RunningCalls::close`] on.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    running: HashMap<TaskId, RunningCall>,
    /// Whether the process stops and no more calls are admitted.
    closed: bool,
    /// The tasks that have ended since then, and whose owners have to be told how.
    untold: HashMap<TaskId, ToTell>,
}

/// How a call has to stop.
#[derive(Debug)]
pub(super) enum Stop {
    /// The server hears that it is cancelled, for this reason.
    Cancel(&'static str),
    /// The server hears nothing, as the next process goes on with it. Dropping the sender says that the call has stopped.
    Leave(oneshot::Sender<()>),
}

/// How far a call is, and whether the next process can go on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for its turn, and can be sent later.
    Waiting,
    /// It runs, and ends with the process.
    Sent,
    /// It runs, and its answer can be resumed.
    Resumable,
}

/// A call that runs, or waits for its turn.
#[derive(Debug)]
pub(super) struct RunningCall {
    owner: Owner,
    /// How audit lines name the session that created it, and its owner.
    pub who: Arc<Who>,
    pub tool: Arc<str>,
    pub since: Instant,
    /// Whether its owner is told of changes of its state.
    announced: bool,
    /// Stops the call.
    pub stop: oneshot::Sender<Stop>,
    stage: Stage,
    polls: Polls,
    /// Whether its owner was told of the end before the call was taken out.
    told: bool,
    /// Whether the client that created it has no session.
    client_polls: bool,
}

/// An owner that has to be told how a task has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToTell {
    /// The owner.
    pub owner: Owner,
    /// Whether the client has no session, and learns it by polling.
    pub polls: bool,
}

/// The polls of a task in the counted intervals.
#[derive(Debug)]
struct Polls {
    since: Instant,
    count: u32,
}

impl RunningCall {
    /// Returns the call of `task`, which begins now.
    pub(super) fn new(task: &Task, caller: &Caller, announced: bool, stop: oneshot::Sender<Stop>) -> Self {
        let (owner, who, tool) = (task.owner.clone(), Arc::clone(&caller.who), Arc::clone(&task.tool));
        let (since, client_polls) = (Instant::now(), caller.session.is_none());
        let (stage, polls) = (Stage::Sent, Polls { since, count: 0 });
        Self { owner, who, tool, since, announced, stop, stage, polls, told: false, client_polls }
    }
}

impl RunningCalls {
    /// Adds a call. Returns whether it was admitted.
    pub(super) fn add(&self, id: TaskId, call: RunningCall) -> bool {
        let mut inner = self.inner.lock();
        if inner.closed {
            return false;
        }
        inner.running.insert(id, call);
        true
    }

    /// Returns whether the call of a task runs.
    pub(super) fn contains(&self, id: TaskId) -> bool {
        self.inner.lock().running.contains_key(&id)
    }

    /// Notes how far a call is.
    pub(super) fn set_stage(&self, id: TaskId, stage: Stage) {
        if let Some(call) = self.inner.lock().running.get_mut(&id) {
            call.stage = stage;
        }
    }

    /// Notes that a call has begun in an earlier process.
    pub(super) fn set_since(&self, id: TaskId, since: Instant) {
        if let Some(call) = self.inner.lock().running.get_mut(&id) {
            call.since = since;
        }
    }

    /// Returns the calls that are so far.
    pub(super) fn at(&self, stage: Stage) -> Vec<TaskId> {
        let inner = self.inner.lock();
        inner.running.iter().filter(|(_, call)| call.stage == stage).map(|(id, _)| *id).collect()
    }

    /// Takes out a call. `tell` says whether its owner has to be told how it ended.
    pub(super) fn take(&self, id: TaskId, tell: bool) -> Option<RunningCall> {
        let mut inner = self.inner.lock();
        let call = inner.running.remove(&id)?;
        if inner.closed {
            if tell && !call.told {
                inner.untold.insert(id, ToTell { owner: call.owner.clone(), polls: call.client_polls });
            }
            self.changed.notify_one();
        }
        Some(call)
    }

    /// Notes that a task's owner knows how it ended, or cannot learn it any more.
    pub(super) fn mark_told(&self, id: TaskId) {
        let mut inner = self.inner.lock();
        if let Some(call) = inner.running.get_mut(&id) {
            // The store has the end before the call is taken out.
            call.told = true;
        } else if inner.untold.remove(&id).is_some() {
            self.changed.notify_one();
        }
    }

    /// Counts a poll of a task that runs. Returns `true` for the one poll in the counted intervals that makes them excessive.
    pub(super) fn count_poll(&self, task: &Task) -> bool {
        let mut inner = self.inner.lock();
        let Some(RunningCall { polls, .. }) = inner.running.get_mut(&task.id) else { return false };
        if polls.since.elapsed() >= Duration::from_millis(task.poll_interval) * COUNTED_INTERVALS {
            *polls = Polls { since: Instant::now(), count: 0 };
        }
        polls.count += 1;
        polls.count == EXCESSIVE
    }

    /// Returns whether a task runs whose owner is told of changes of its state.
    pub(super) fn is_announced(&self, id: TaskId) -> bool {
        self.inner.lock().running.get(&id).is_some_and(|call| call.announced)
    }

    /// Returns the tasks of `owner` that run.
    pub(super) fn of_owner(&self, owner: &Owner) -> Vec<TaskId> {
        let inner = self.inner.lock();
        inner.running.iter().filter(|(_, call)| call.owner == *owner).map(|(id, _)| *id).collect()
    }

    /// Admits no more calls, and returns those that run.
    pub(super) fn close(&self) -> Vec<(TaskId, Owner)> {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.running.iter().map(|(id, call)| (*id, call.owner.clone())).collect()
    }

    /// Returns the owners that have to be told how a task has ended since [`RunningCalls::close`], once for each such task;
    /// `None` while calls run.
    pub(super) fn owners_to_tell(&self) -> Option<Vec<ToTell>> {
        let inner = self.inner.lock();
        inner.running.is_empty().then(|| inner.untold.values().cloned().collect())
    }

    /// Waits until [`RunningCalls::owners_to_tell`] may have changed since the last time. Only one may wait.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Wakes the one that waits in [`RunningCalls::changed`].
    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{session, task::state::tests::task};

    const OWNER: Owner = Owner::Session(TaskId::nil());

    fn added(calls: &RunningCalls) -> (TaskId, bool) {
        let (task, session) = (task(&OWNER), session::alone());
        let (stop, _) = oneshot::channel();
        (task.id, calls.add(task.id, RunningCall::new(&task, &session.caller, false, stop)))
    }

    #[test]
    fn once_closed_it_admits_no_call_and_owners_have_to_be_told_what_ends_from_then_on() {
        let calls = RunningCalls::default();
        let ((before, _), (after, _)) = (added(&calls), added(&calls));
        calls.take(before, true);
        assert_eq!(calls.close(), [(after, OWNER)]);
        assert!(!added(&calls).1);
        assert_eq!(calls.owners_to_tell(), None, "one runs");
        calls.take(after, true);
        assert_eq!(calls.owners_to_tell(), Some(vec![ToTell { owner: OWNER, polls: false }]));
        calls.mark_told(after);
        assert_eq!(calls.owners_to_tell(), Some(vec![]));
    }

    #[test]
    fn an_end_that_was_told_before_its_call_was_taken_out_is_not_told_again() {
        let calls = RunningCalls::default();
        let (id, _) = added(&calls);
        calls.mark_told(id);
        calls.close();
        calls.take(id, true);
        assert_eq!(calls.owners_to_tell(), Some(vec![]));
    }
}
