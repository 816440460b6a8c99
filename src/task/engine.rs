//! The tasks that run in this process, and how they end.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::TaskTracker;

use super::{
    Change, Clock, End, MaxWaiters, Task, TaskId, ToTell, UsualTime,
    calls::{RunningCall, RunningCalls, Stop},
    desk::Desk,
    ledger::{Changed, Ledger, NotChanged, Pauses},
    pace::Pace,
    state::HasEnded,
    store::{SavedCall, Store},
    tool_times::ToolTimes,
    wakes::Wakes,
};
use crate::{
    flow::Capacity,
    identity::Owner,
    limit::{ToolId, Totals, Turns},
    observe::{
        Observer,
        events::{self, Ended},
    },
    session::Caller,
    upstream::error_code,
};

/// How long another change that has ended a task may take to take its call out.
const TAKE_OUT_GRACE: Duration = Duration::from_secs(1);

/// Limits that hold for every task.
#[derive(Debug)]
pub struct Limits {
    /// How many requests may wait for tasks.
    pub waiters: MaxWaiters,
    /// How many calls may run and wait across tools.
    pub turns: Totals,
    /// How much may wait for readers.
    pub capacity: Arc<Capacity>,
}

/// How a call is taken out of those that run.
#[derive(Clone, Copy)]
pub(super) struct TakenOut<'a> {
    status: Ended,
    /// What it gave, if it gave something.
    end: Option<&'a End>,
    /// What its server hears if it still runs.
    stop: &'static str,
    /// Why it failed, for the log.
    why: Option<&'a str>,
}

impl TakenOut<'_> {
    /// Returns how a call is taken out that gave nothing.
    pub(super) fn stopped(status: Ended, stop: &'static str) -> Self {
        Self { status, end: None, stop, why: None }
    }
}

/// Creates, runs and ends tasks.
#[derive(Debug)]
pub struct Engine {
    pub(super) ledger: Ledger,
    pub(super) turns: Arc<Turns>,
    pub(super) observer: Arc<Observer>,
    /// Delivers what belongs to running tasks to their clients.
    pub(super) desk: Desk,
    pub(super) calls: RunningCalls,
    pub(super) wakes: Wakes,
    /// How long calls of each tool took.
    pub(super) tool_times: ToolTimes,
    /// Notified when a task may have been removed.
    removals: Arc<Notify>,
    /// The tasks whose cancellation the store has not taken, and gets again.
    pub(super) cancelling: Mutex<HashSet<TaskId>>,
    /// The calls that were told to stop, and have not yet.
    pub(super) stopping: TaskTracker,
}

impl Engine {
    /// Returns an engine on `store` that reads deadlines by `clock`. It removes expired tasks while it lives.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, clock: Clock, limits: Limits, observer: Arc<Observer>) -> Arc<Self> {
        let (results, wakes, removals) = (Arc::clone(&store), Wakes::new(limits.waiters), Arc::new(Notify::new()));
        let (woken, removed) = (wakes.clone(), Arc::clone(&removals));
        store.on_change(Box::new(move |id| {
            woken.wake(id);
            // Another process may have removed it.
            removed.notify_waiters();
        }));
        let engine = Arc::new(Self {
            ledger: Ledger::new(store, clock, Arc::clone(&observer)),
            turns: Turns::new(limits.turns, move |owner| results.full(owner).is_none()),
            desk: Desk::new(limits.capacity, Arc::clone(&observer)),
            observer,
            calls: RunningCalls::default(),
            wakes,
            tool_times: ToolTimes::default(),
            removals,
            cancelling: Mutex::default(),
            stopping: TaskTracker::new(),
        });
        tokio::spawn(reap(Arc::downgrade(&engine), engine.ledger.clone()));
        engine
    }

    /// Returns the observer, to which events go.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Returns the time of the clock on the wall, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn wall_now(&self) -> u64 {
        self.ledger.clock.now().wall
    }

    /// Gives turns to calls that have waited for room in the store, where it has some again.
    pub fn give_turns(&self) {
        self.turns.advance();
    }

    /// Returns how long calls of a tool usually take, if that is known.
    #[must_use]
    pub fn usual_time(&self, tool: &ToolId) -> Option<UsualTime> {
        self.tool_times.usual(tool)
    }

    /// Ends and removes every task of `owner`. Where the store is unavailable this goes on in the background.
    pub async fn end_owner(self: &Arc<Self>, owner: &Owner) {
        match self.ledger.store.remove_all(owner).await {
            Ok(removed) => self.take_out_orphans(&removed),
            Err(unavailable) => {
                self.ledger.report_unavailable(&unavailable);
                // The store may have removed some of them, whose removal it does not report again.
                for id in self.calls.of_owner(owner) {
                    self.take_out(id, TakenOut::stopped(Ended::Orphaned, "its session has ended"));
                }
                let (engine, owner) = (Arc::clone(self), owner.clone());
                tokio::spawn(async move {
                    let removed = engine.ledger.until_available(|| engine.ledger.store.remove_all(&owner)).await;
                    engine.take_out_orphans(&removed);
                });
            }
        }
    }

    fn take_out_orphans(&self, ids: &[TaskId]) {
        self.take_out_removed(ids, Ended::Orphaned, "its session has ended");
    }

    /// Returns whether `owner` has tasks, finished ones included. While the store is unavailable it may have some.
    pub async fn has_tasks(&self, owner: &Owner) -> bool {
        self.ledger.store.has_any(owner).await.unwrap_or_else(|unavailable| {
            self.ledger.report_unavailable(&unavailable);
            true
        })
    }

    /// Waits until `owner` has no tasks, finished ones included.
    pub async fn without_tasks(&self, owner: &Owner) {
        loop {
            let removal = self.removals.notified();
            if !self.ledger.until_available(|| self.ledger.store.has_any(owner)).await {
                return;
            }
            removal.await;
        }
    }

    /// Admits no more tasks, as the process stops, and returns the owners of those that run, one for each. From now on
    /// it notes which ends the owners have not been told.
    pub fn close(&self) -> Vec<Owner> {
        self.calls.close().into_iter().map(|(_, owner)| owner).collect()
    }

    /// Returns the owners that have to be told how a task has ended since [`Engine::close`], once for each such task;
    /// `None` while tasks run. A poll tells a failure. A result is told only when the client collects it.
    pub fn owners_to_tell(&self) -> Option<Vec<ToTell>> {
        self.calls.owners_to_tell()
    }

    /// Waits until [`Engine::owners_to_tell`] may have changed, or [`Engine::session_ended`] was called, since the last
    /// time.
    pub async fn changed(&self) {
        self.calls.changed().await;
    }

    /// Registers a call of `caller` that is about to run. Returns the receiver that stops it; `None` if the process
    /// stops.
    pub(super) fn register(
        &self,
        task: &Task,
        caller: &Caller,
        announced: bool,
        pace: Pace,
    ) -> Option<oneshot::Receiver<Stop>> {
        let (stop, stopped) = oneshot::channel();
        if !self.calls.add(task.id, RunningCall::new(task, caller, announced, pace, stop)) {
            return None;
        }
        self.desk.begin(task.id, &task.owner, caller.session);
        Some(stopped)
    }

    /// Removes a call that is not going to run.
    pub(super) fn deregister(&self, id: TaskId) {
        self.calls.take(id, false);
        self.desk.end(id);
    }

    /// Changes a task as [`Ledger::change`] does, and tells its owner if that changes its state.
    ///
    /// # Errors
    /// [`NotChanged`]
    pub(super) async fn change(
        &self,
        owner: &Owner,
        id: TaskId,
        change: impl Fn(&Task) -> Option<Change>,
    ) -> Result<Option<Task>, NotChanged> {
        Ok(self.ledger.change(owner, id, change).await?.map(|changed| self.announce(changed)))
    }

    /// Changes a task as [`Engine::change`] does, and retries until the store is available.
    ///
    /// # Errors
    /// [`HasEnded`]
    pub(super) async fn change_when_available(
        &self,
        owner: &Owner,
        id: TaskId,
        change: impl Fn(&Task) -> Option<Change>,
    ) -> Result<Option<Task>, HasEnded> {
        Ok(self.ledger.change_when_available(owner, id, change).await?.map(|changed| self.announce(changed)))
    }

    /// Changes a task, and what is saved of its call, as [`Engine::change_when_available`] does.
    ///
    /// # Errors
    /// [`HasEnded`]
    pub(super) async fn change_call(
        &self,
        owner: &Owner,
        id: TaskId,
        change: impl Fn(&Task) -> Option<Change>,
        call: impl Fn() -> Option<SavedCall>,
    ) -> Result<Option<Task>, HasEnded> {
        Ok(self.ledger.change_call(owner, id, change, call).await?.map(|changed| self.announce(changed)))
    }

    /// Tells the owner of a task its new state, if it has one, and returns the task.
    fn announce(&self, changed: Changed) -> Task {
        if changed.has_new_state && self.calls.is_announced(changed.task.id) {
            self.desk.announce(&changed.task, &self.outlook(&changed.task));
        }
        changed.task
    }

    /// Ends a task as its call did, once the store is available; `why` tells the log why it failed. A task that has
    /// ended before stays as it is.
    pub(super) async fn finish(self: &Arc<Self>, owner: &Owner, id: TaskId, change: Change, why: Option<&str>) {
        self.calls.set_ended(id);
        let ended = self.change_when_available(owner, id, |_| Some(change.clone())).await;
        // Another change that has ended the task has usually taken its call out too.
        if self.take_out_ended(id, &change, &ended, why) || !self.calls.contains(id) {
            return;
        }
        let status = match ended {
            Err(HasEnded(ending)) => ending.into(),
            Ok(_) => Ended::Expired,
        };
        // It is about to, and knows why; or it never does, as the store did not say that the change was made.
        let engine = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(TAKE_OUT_GRACE).await;
            if let Some(engine) = engine.upgrade() {
                engine.take_out(id, TakenOut::stopped(status, "the task has ended"));
            }
        });
    }

    /// Takes out the call of a task if `change`, which gave `ended`, has ended it. Returns whether it has.
    pub(super) fn take_out_ended<E>(
        &self,
        id: TaskId,
        change: &Change,
        ended: &Result<Option<Task>, E>,
        why: Option<&str>,
    ) -> bool {
        let (Ok(Some(_)), Some(end)) = (ended, change.end()) else { return false };
        self.take_out(id, TakenOut { status: end.ending().into(), end: Some(end), stop: "the task has ended", why });
        true
    }

    /// Takes out the call of a task that was cancelled.
    pub(super) fn take_out_cancelled(&self, id: TaskId) {
        self.take_out(id, TakenOut::stopped(Ended::Cancelled, "its client cancelled it"));
    }

    /// Takes out the calls of tasks that were removed.
    fn take_out_removed(&self, ids: &[TaskId], status: Ended, stop: &'static str) {
        for id in ids {
            self.take_out(*id, TakenOut::stopped(status, stop));
            self.calls.mark_told(*id);
        }
        self.removals.notify_waiters();
        // Calls may have waited for the bytes of their results.
        self.turns.advance();
    }

    /// Takes a call out of those that run, if it is one of them, and stops it.
    pub(super) fn take_out(&self, id: TaskId, taken_out: TakenOut<'_>) {
        let TakenOut { status, end, stop, why } = taken_out;
        // From here on a stop that finds the call gone waits for its server to hear of it.
        let stopping = self.stopping.token();
        // A cancellation is answered, and a task that was removed cannot be asked for any more.
        let tell = matches!(status, Ended::Completed | Ended::Failed);
        let Some(running) = self.calls.take(id, tell) else { return };
        self.desk.end(id);
        self.observer.emit(events::TaskEnded {
            who: &running.who,
            task: id,
            tool: &running.tool,
            status,
            after: running.since.elapsed(),
            why,
            code: end.and_then(code),
            bytes: end.map(End::bytes),
        });
        // A call that has ended by itself has dropped the receiver.
        let _ = running.stop.send(Stop::Cancel(stop, stopping));
    }
}

/// Returns the code of the error that a task has ended with.
fn code(end: &End) -> Option<i64> {
    match end {
        End::Error { raw } => error_code(raw),
        End::Result { .. } | End::Cancelled => None,
    }
}

/// Removes expired tasks while the engine lives.
async fn reap(engine: Weak<Engine>, ledger: Ledger) {
    let mut pauses = Pauses::default();
    loop {
        let due = ledger.store.next_expiry().await;
        let Some(engine) = engine.upgrade() else { return };
        let expired = match due {
            Ok(()) => ledger.store.expire(ledger.clock.steady()).await,
            Err(unavailable) => Err(unavailable),
        };
        match expired {
            Ok(expired) => {
                engine.take_out_removed(&expired, Ended::Expired, "its ttl is over");
                pauses = Pauses::default();
            }
            Err(unavailable) => {
                drop(engine);
                pauses.next(&ledger, &unavailable).await;
            }
        }
    }
}
