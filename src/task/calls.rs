//! The calls that this process runs for tasks; once it stops, also which owners have to be told of an end.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{Outlook, Task, TaskId, id_map::IdMap, pace::Pace, poll_demand::PollDemand};
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

#[derive(Debug)]
struct Inner {
    running: IdMap<RunningCall>,
    /// How many polls the clients of all running calls want to make.
    demand: PollDemand,
    /// Whether the process stops and no more calls are admitted.
    closed: bool,
    /// The tasks that have ended since then, and whose owners have to be told how.
    untold: IdMap<ToTell>,
}

/// How a call has to stop. Dropping the token says that it has.
#[derive(Debug)]
pub(super) enum Stop {
    /// The server hears that it is cancelled, for this reason.
    Cancel(&'static str, TaskTrackerToken),
    /// The server hears nothing, as the next process goes on with it.
    Leave(TaskTrackerToken),
}

/// How far a call is, and whether the next process can go on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for its turn, and can be sent later.
    Waiting,
    /// It runs, and ends with the process.
    Sent,
    /// It runs, and the next process finds where its answer can be resumed.
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
    /// Whether its answer can be resumed now, which the disk may not know yet.
    has_point: bool,
    /// When its call began; `None` while it waits for its turn.
    began: Option<Instant>,
    pace: Pace,
    polls: Polls,
    /// Who knows how it has ended.
    end: KnownEnd,
    /// Whether the client that created it has no session.
    client_polls: bool,
}

/// Who knows how a call has ended that was not taken out yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownEnd {
    /// It still runs.
    Not,
    /// Its runner. The store is about to.
    ByRunner,
    /// Its owner, who was told.
    ByOwner,
}

/// An owner that has to be told how a task has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToTell {
    /// The owner.
    pub owner: Owner,
    /// Whether the client has no session, and learns it by polling.
    pub polls: bool,
}

/// A poll of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    /// What the client is told.
    pub outlook: Outlook,
    /// Whether it is the one poll in the counted intervals that makes them excessive.
    pub is_excessive: bool,
}

/// The polls of a task in the counted intervals.
#[derive(Debug)]
struct Polls {
    since: Instant,
    count: u32,
    /// The sum of the intervals that were told with them, in milliseconds.
    told: u64,
}

impl Default for Inner {
    fn default() -> Self {
        let (running, untold) = (IdMap::default(), IdMap::default());
        Self { running, demand: PollDemand::new(Instant::now()), closed: false, untold }
    }
}

impl Polls {
    /// Counts a poll with which `interval` is told, in milliseconds. Returns whether it makes the polls excessive.
    fn count(&mut self, interval: u64, now: Instant) -> bool {
        let counted = Duration::from_millis(self.told) / self.count.max(1) * COUNTED_INTERVALS;
        if self.count > 0 && now.duration_since(self.since) >= counted {
            *self = Self { since: now, count: 0, told: 0 };
        }
        self.count += 1;
        self.told = self.told.saturating_add(interval);
        self.count == EXCESSIVE
    }
}

impl RunningCall {
    /// Returns the call of `task`, which begins now.
    pub(super) fn new(task: &Task, caller: &Caller, announced: bool, pace: Pace, stop: oneshot::Sender<Stop>) -> Self {
        let (owner, who, tool) = (task.owner.clone(), Arc::clone(&caller.who), Arc::clone(&task.tool));
        let (since, client_polls) = (Instant::now(), caller.session.is_none());
        let (stage, polls) = (Stage::Sent, Polls { since, count: 0, told: 0 });
        let (has_point, began, end) = (false, None, KnownEnd::Not);
        Self { owner, who, tool, since, announced, stop, stage, has_point, began, pace, polls, end, client_polls }
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

    /// Notes how far a call is. Returns whether it is there: one that was taken out is about to be stopped.
    pub(super) fn set_stage(&self, id: TaskId, stage: Stage) -> bool {
        let mut inner = self.inner.lock();
        let call = inner.running.get_mut(&id);
        call.map(|call| call.stage = stage).is_some()
    }

    /// Notes whether the answer to a call can be resumed now.
    pub(super) fn set_point(&self, id: TaskId, has_point: bool) {
        if let Some(call) = self.inner.lock().running.get_mut(&id) {
            call.has_point = has_point;
            if !has_point {
                call.stage = Stage::Sent;
            }
        }
    }

    /// Notes that the next process finds where the answer to a call can be resumed, if it still can.
    pub(super) fn point_written(&self, id: TaskId) {
        if let Some(call) = self.inner.lock().running.get_mut(&id).filter(|call| call.has_point) {
            call.stage = Stage::Resumable;
        }
    }

    /// Notes that a call has ended, and the store is about to have that.
    pub(super) fn set_ended(&self, id: TaskId) {
        if let Some(call) = self.inner.lock().running.get_mut(&id).filter(|call| call.end == KnownEnd::Not) {
            call.end = KnownEnd::ByRunner;
        }
    }

    /// Returns whether a call has ended, and only the store does not have that yet.
    pub(super) fn has_ended(&self, id: TaskId) -> bool {
        self.inner.lock().running.get(&id).is_some_and(|call| call.end == KnownEnd::ByRunner)
    }

    /// Notes that a call has begun in an earlier process.
    pub(super) fn set_since(&self, id: TaskId, since: Instant) {
        if let Some(call) = self.inner.lock().running.get_mut(&id) {
            call.since = since;
        }
    }

    /// Removes the calls at this stage that have not ended, without telling their owners.
    pub(super) fn take_at(&self, stage: Stage) -> Vec<(TaskId, RunningCall)> {
        let mut inner = self.inner.lock();
        let taken: Vec<_> =
            inner.running.extract_if(|_, call| call.stage == stage && call.end == KnownEnd::Not).collect();
        if inner.closed && !taken.is_empty() {
            self.changed.notify_one();
        }
        taken
    }

    /// Takes out a call. `tell` says whether its owner has to be told how it ended.
    pub(super) fn take(&self, id: TaskId, tell: bool) -> Option<RunningCall> {
        let mut inner = self.inner.lock();
        let call = inner.running.remove(&id)?;
        if inner.closed {
            if tell && call.end != KnownEnd::ByOwner {
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
            call.end = KnownEnd::ByOwner;
        } else if inner.untold.remove(&id).is_some() {
            self.changed.notify_one();
        }
    }

    /// Notes that the call of a task began at `began`.
    pub(super) fn begin(&self, id: TaskId, began: Instant) {
        if let Some(call) = self.inner.lock().running.get_mut(&id) {
            call.began = Some(began);
            call.pace.begin(began);
        }
    }

    /// Returns when the call of a task began; `None` where it does not run here.
    pub(super) fn began(&self, id: TaskId) -> Option<Instant> {
        self.inner.lock().running.get(&id)?.began
    }

    /// Notes that the call of a task has asked its client something.
    pub(super) fn note_question(&self, id: TaskId) {
        if let Some(call) = self.inner.lock().running.get_mut(&id) {
            call.pace.hurry();
        }
    }

    /// Counts a poll of a task; `None` where its call does not run here.
    pub(super) fn poll(&self, id: TaskId) -> Option<Poll> {
        let Inner { running, demand, .. } = &mut *self.inner.lock();
        let RunningCall { pace, polls, .. } = running.get_mut(&id)?;
        let now = Instant::now();
        let outlook = pace.poll(demand, now);
        Some(Poll { outlook, is_excessive: polls.count(outlook.poll_interval, now) })
    }

    /// Returns what the client of a task is told of its time; `None` where its call does not run here.
    pub(super) fn outlook(&self, id: TaskId) -> Option<Outlook> {
        let (inner, now) = (self.inner.lock(), Instant::now());
        Some(inner.running.get(&id)?.pace.outlook(inner.demand.crowding(now), now))
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
        // A client that comes soon learns how its task has ended before the process does.
        inner.running.values_mut().for_each(|call| call.pace.hurry());
        inner.running.iter().map(|(id, call)| (*id, call.owner.clone())).collect()
    }

    /// Returns the owners that have to be told how a task has ended since [`RunningCalls::close`], once for each such
    /// task; `None` while calls run.
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
    use std::sync::LazyLock;

    use super::*;
    use crate::{session, task::state::tests::task};

    static OWNER: LazyLock<Owner> = LazyLock::new(|| Owner::session(TaskId::nil()));

    fn added(calls: &RunningCalls) -> (TaskId, bool) {
        let (task, session) = (task(&OWNER), session::alone());
        let (stop, _) = oneshot::channel();
        (task.id, calls.add(task.id, RunningCall::new(&task, &session.caller, false, Pace::Fixed(1000), stop)))
    }

    #[test]
    fn polls_are_excessive_at_ten_times_what_was_told_and_not_if_the_interval_was_long_before() {
        let (begin, mut polls) = (Instant::now(), Polls { since: Instant::now(), count: 0, told: 0 });
        assert_eq!((0..200).filter(|_| polls.count(1000, begin)).count(), 1);
        let later = begin + Duration::from_secs(11);
        assert!((1..EXCESSIVE).all(|_| !polls.count(1000, later)) && polls.count(1000, later), "counted anew");
        // A client that was told 30 s once, and half a second from then on, and keeps to it.
        let mut polls = Polls { since: begin, count: 0, told: 0 };
        assert!(!polls.count(30_000, begin));
        assert!(
            (1..1000_u32).all(|n| !polls.count(500, begin + Duration::from_secs(30) + n * Duration::from_millis(500)))
        );
    }

    #[test]
    fn once_closed_it_admits_no_call_and_owners_have_to_be_told_what_ends_from_then_on() {
        let calls = RunningCalls::default();
        let ((before, _), (after, _)) = (added(&calls), added(&calls));
        calls.take(before, true);
        assert_eq!(calls.close(), [(after, OWNER.clone())]);
        assert!(!added(&calls).1);
        assert_eq!(calls.owners_to_tell(), None, "one runs");
        calls.take(after, true);
        assert_eq!(calls.owners_to_tell(), Some(vec![ToTell { owner: OWNER.clone(), polls: false }]));
        calls.mark_told(after);
        assert_eq!(calls.owners_to_tell(), Some(vec![]));
    }

    #[test]
    fn a_call_that_was_sent_is_not_taken_out_as_one_that_waits() {
        let calls = RunningCalls::default();
        let ((waits, _), (sent, _)) = (added(&calls), added(&calls));
        calls.set_stage(waits, Stage::Waiting);
        let taken = calls.take_at(Stage::Waiting);
        assert_eq!(taken.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [waits]);
        assert!(calls.contains(sent) && !calls.contains(waits));
        // Where its runner has come to send it meanwhile, it finds out.
        assert!(calls.set_stage(sent, Stage::Sent) && !calls.set_stage(waits, Stage::Sent));
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
