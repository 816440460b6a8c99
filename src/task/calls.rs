//! The calls that this process runs for tasks, and, once it stops, whose ends are still to be told.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{Task, TaskId};
use crate::{identity::Owner, observe::Who};

/// How many poll intervals polls are counted in, and how many polls in them are excessive: ten times as many as asked for.
const WATCHED_INTERVALS: u32 = 10;
const EXCESSIVE: u32 = 10 * WATCHED_INTERVALS;

/// The calls that run; being here is what keeps a call going.
#[derive(Debug, Default)]
pub(super) struct RunningCalls {
    inner: Mutex<Inner>,
    /// Told of what [`RunningCalls::owners_to_tell`] may depend on, from [`RunningCalls::close`] on.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    running: HashMap<TaskId, RunningCall>,
    /// The process stops: no more calls are let in.
    closed: bool,
    /// The tasks that have ended since then and whose owner does not know how.
    untold: HashMap<TaskId, Owner>,
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
    /// Stops the call, and says why.
    pub stop: oneshot::Sender<&'static str>,
    /// The beginning of the time in which polls are counted, and how many there were.
    polls: (Instant, u32),
    /// The owner was told of the end before the call was taken out.
    told: bool,
}

impl RunningCall {
    /// The call of `task`, which begins now.
    pub(super) fn new(task: &Task, who: &Arc<Who>, announced: bool, stop: oneshot::Sender<&'static str>) -> Self {
        let (owner, who, tool) = (task.owner.clone(), Arc::clone(who), Arc::clone(&task.tool));
        let since = Instant::now();
        Self { owner, who, tool, since, announced, stop, polls: (since, 0), told: false }
    }
}

impl RunningCalls {
    /// Adds a call. `false`, if no more are let in.
    pub(super) fn add(&self, id: TaskId, call: RunningCall) -> bool {
        let mut inner = self.inner.lock();
        if inner.closed {
            return false;
        }
        inner.running.insert(id, call);
        true
    }

    /// Takes out a call. `tell`: its owner has to be told how it ended.
    pub(super) fn take(&self, id: TaskId, tell: bool) -> Option<RunningCall> {
        let mut inner = self.inner.lock();
        let call = inner.running.remove(&id)?;
        if inner.closed {
            if tell && !call.told {
                inner.untold.insert(id, call.owner.clone());
            }
            self.changed.notify_one();
        }
        Some(call)
    }

    /// A task's owner knows how it ended, or can learn it no more.
    pub(super) fn mark_told(&self, id: TaskId) {
        let mut inner = self.inner.lock();
        if let Some(call) = inner.running.get_mut(&id) {
            // The end stands in the store before the call is taken out.
            call.told = true;
        } else if inner.untold.remove(&id).is_some() {
            self.changed.notify_one();
        }
    }

    /// Counts a poll of a task that runs. `true`, once in the time that polls are counted in, if they are excessive.
    pub(super) fn count_poll(&self, task: &Task) -> bool {
        let mut inner = self.inner.lock();
        let Some(RunningCall { polls: (since, count), .. }) = inner.running.get_mut(&task.id) else { return false };
        if since.elapsed() >= Duration::from_millis(task.poll_interval) * WATCHED_INTERVALS {
            (*since, *count) = (Instant::now(), 0);
        }
        *count += 1;
        *count == EXCESSIVE
    }

    /// Whether the owner is told of changes of a task that runs.
    pub(super) fn is_announced(&self, id: TaskId) -> bool {
        self.inner.lock().running.get(&id).is_some_and(|call| call.announced)
    }

    /// The tasks of `owner` that run.
    pub(super) fn of_owner(&self, owner: &Owner) -> Vec<TaskId> {
        let inner = self.inner.lock();
        inner.running.iter().filter(|(_, call)| call.owner == *owner).map(|(id, _)| *id).collect()
    }

    /// Lets no more calls in, and returns those that run.
    pub(super) fn close(&self) -> Vec<(TaskId, Owner)> {
        let mut inner = self.inner.lock();
        inner.closed = true;
        inner.running.iter().map(|(id, call)| (*id, call.owner.clone())).collect()
    }

    /// The owners of tasks that have ended since [`RunningCalls::close`], one for each that they were not told of; `None` while
    /// calls run.
    pub(super) fn owners_to_tell(&self) -> Option<Vec<Owner>> {
        let inner = self.inner.lock();
        inner.running.is_empty().then(|| inner.untold.values().cloned().collect())
    }

    /// Resolves when [`RunningCalls::owners_to_tell`] may have changed since the last time. For one who waits.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Lets the one who waits look again.
    pub(super) fn look_again(&self) {
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{observe::Observer, task::state::tests::task};

    const OWNER: Owner = Owner::Session(TaskId::nil());

    fn added(calls: &RunningCalls) -> (TaskId, bool) {
        let (task, who) = (task(&OWNER), Observer::default().who(None, TaskId::nil(), &"/mcp".into()));
        let (stop, _) = oneshot::channel();
        (task.id, calls.add(task.id, RunningCall::new(&task, &who, false, stop)))
    }

    #[test]
    fn once_closed_it_lets_nobody_in_and_owes_what_ends_from_then_on() {
        let calls = RunningCalls::default();
        let ((before, _), (after, _)) = (added(&calls), added(&calls));
        calls.take(before, true);
        assert_eq!(calls.close(), [(after, OWNER)]);
        assert!(!added(&calls).1);
        assert_eq!(calls.owners_to_tell(), None, "one runs");
        calls.take(after, true);
        assert_eq!(calls.owners_to_tell(), Some(vec![OWNER]));
        calls.mark_told(after);
        assert_eq!(calls.owners_to_tell(), Some(vec![]));
    }

    #[test]
    fn an_end_that_was_told_before_its_call_was_taken_out_is_not_owed() {
        let calls = RunningCalls::default();
        let (id, _) = added(&calls);
        calls.mark_told(id);
        calls.close();
        calls.take(id, true);
        assert_eq!(calls.owners_to_tell(), Some(vec![]));
    }
}
