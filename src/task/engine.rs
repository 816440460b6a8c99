//! The tasks that run in this process, and how they end.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::sync::{Notify, oneshot};

use super::{
    Change, Clock, End, Ending, HasEnded, MaxWaiters, Task, TaskId,
    calls::{RunningCall, RunningCalls},
    desk::Desk,
    ledger::{Changed, Ledger, NotChanged, Pauses},
    outcome,
    store::Store,
    wakes::Wakes,
};
use crate::{
    flow::Capacity,
    identity::Owner,
    limit::{Totals, Turns},
    observe::{
        Observer, Who,
        events::{self, Ended},
    },
    session::Caller,
};

/// How long the ends of all calls may take to be written when the process stops.
const FAILING: Duration = Duration::from_secs(2);
/// How long what has ended a task may take to take its call out.
const TAKES_OUT: Duration = Duration::from_secs(1);

/// Limits that hold for every task.
#[derive(Debug)]
pub struct Limits {
    /// How many requests may wait for tasks.
    pub waiters: MaxWaiters,
    /// How many calls may run and wait across tools.
    pub turns: Totals,
    /// What may wait for readers.
    pub outbox: Arc<Capacity>,
}

/// Creates, runs and ends tasks.
#[derive(Debug)]
pub struct Engine {
    pub(super) ledger: Ledger,
    pub(super) turns: Arc<Turns>,
    pub(super) observer: Arc<Observer>,
    /// Where what belongs to running tasks finds its client.
    pub(super) desk: Desk,
    pub(super) calls: RunningCalls,
    pub(super) wakes: Wakes,
    /// Told when a task may have been removed.
    gone: Arc<Notify>,
}

impl Engine {
    /// Returns an engine on `store`, whose deadlines `clock` tells. It removes expired tasks while it lives.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, clock: Clock, limits: Limits, observer: Arc<Observer>) -> Arc<Self> {
        let (results, wakes, gone) = (Arc::clone(&store), Wakes::new(limits.waiters), Arc::new(Notify::new()));
        let (woken, changed) = (wakes.clone(), Arc::clone(&gone));
        store.on_change(Box::new(move |id| {
            woken.wake(id);
            // Another process may have removed it.
            changed.notify_waiters();
        }));
        let engine = Arc::new(Self {
            ledger: Ledger::new(store, clock, Arc::clone(&observer)),
            turns: Turns::new(limits.turns, move |owner| results.full(owner).is_none()),
            desk: Desk::new(limits.outbox, Arc::clone(&observer)),
            observer,
            calls: RunningCalls::default(),
            wakes,
            gone,
        });
        tokio::spawn(reap(Arc::downgrade(&engine), engine.ledger.clone()));
        engine
    }

    /// Returns who is told what happens.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Ends and removes every task of `owner`; behind the caller's back where the store is unavailable.
    pub(super) async fn end_owner(self: &Arc<Self>, owner: &Owner) {
        match self.ledger.store.remove_all(owner).await {
            Ok(removed) => self.orphaned(&removed),
            Err(unavailable) => {
                self.ledger.unavailable(&unavailable);
                // Some of them may have been removed, and are not told again.
                for id in self.calls.of_owner(owner) {
                    self.ended(id, Ended::Orphaned, None, ("its session has ended", None));
                }
                let (engine, owner) = (Arc::clone(self), owner.clone());
                tokio::spawn(async move {
                    let removed = engine.ledger.until_available(|| engine.ledger.store.remove_all(&owner)).await;
                    engine.orphaned(&removed);
                });
            }
        }
    }

    fn orphaned(&self, ids: &[TaskId]) {
        self.removed(ids, Ended::Orphaned, "its session has ended");
    }

    /// Returns whether `owner` has tasks, finished ones included. While the store is unavailable it may have some.
    pub async fn has_tasks(&self, owner: &Owner) -> bool {
        self.ledger.store.has_any(owner).await.unwrap_or_else(|unavailable| {
            self.ledger.unavailable(&unavailable);
            true
        })
    }

    /// Waits until `owner` has no tasks, finished ones included.
    pub async fn without_tasks(&self, owner: &Owner) {
        loop {
            let gone = self.gone.notified();
            if !self.ledger.until_available(|| self.ledger.store.has_any(owner)).await {
                return;
            }
            gone.await;
        }
    }

    /// Lets no more tasks in, when the process stops, and returns the owners of those that run, one for each. How these
    /// end is noted from now on until their owners have been told.
    pub fn close(&self) -> Vec<Owner> {
        self.calls.close().into_iter().map(|(_, owner)| owner).collect()
    }

    /// The owners of tasks that have ended since [`Engine::close`], one for each that they were not told of; `None` while
    /// tasks run. A poll tells a failure; a result is told to the client that collects it alone.
    pub fn owners_to_tell(&self) -> Option<Vec<Owner>> {
        self.calls.owners_to_tell()
    }

    /// Resolves when [`Engine::owners_to_tell`] may have changed, or [`Engine::session_ended`] was called, since the last time.
    pub async fn changed(&self) {
        self.calls.changed().await;
    }

    /// Fails every task that runs, when the process stops, and returns how many these were.
    pub async fn fail_all(&self, why: &str) -> usize {
        let (running, change) = (self.calls.close(), outcome::failed(why));
        let fails = |(id, owner): &(TaskId, Owner)| {
            let (id, owner, change) = (*id, owner.clone(), &change);
            async move {
                let ended = self.change(&owner, id, |_| Some(change.clone())).await;
                if !self.has_finished(id, change, &ended, Some(why))
                    && let Err(NotChanged::HasEnded(HasEnded(ending))) = ended
                {
                    self.ended(id, status_of(ending), None, ("the task has ended", None));
                }
            }
        };
        // The process does not wait for a store that is unavailable.
        let all = futures_util::future::join_all(running.iter().map(fails));
        let _ = tokio::time::timeout(FAILING, all).await;
        // Every call stops, whether the store has taken its end or not.
        for (id, _) in &running {
            self.ended(*id, Ended::Failed, None, ("the process stops", Some(why)));
        }
        running.len()
    }

    /// Registers a call of `caller` that is about to run, and gives the receiver that stops it. `None` if the process
    /// stops.
    pub(super) fn register(
        &self,
        task: &Task,
        caller: &Caller,
        announced: bool,
    ) -> Option<oneshot::Receiver<&'static str>> {
        let (stop, stopped) = oneshot::channel();
        if !self.calls.add(task.id, RunningCall::new(task, &caller.who, announced, stop)) {
            return None;
        }
        self.desk.begin(task.id, &task.owner, caller.session);
        Some(stopped)
    }

    /// Forgets a call that is not going to run.
    pub(super) fn deregister(&self, id: TaskId) {
        self.calls.take(id, false);
        self.desk.end(id);
    }

    /// Changes a task as [`Ledger::change`] does, and tells its owner if its state is another one then.
    ///
    /// # Errors
    /// [`NotChanged`]
    pub(super) async fn change(
        &self,
        owner: &Owner,
        id: TaskId,
        change: impl Fn(&Task) -> Option<Change>,
    ) -> Result<Option<Task>, NotChanged> {
        Ok(self.ledger.change(owner, id, change).await?.map(|changed| self.announced(changed)))
    }

    /// As [`Engine::change`], once the store is available.
    ///
    /// # Errors
    /// [`HasEnded`]
    pub(super) async fn change_at_last(
        &self,
        owner: &Owner,
        id: TaskId,
        change: impl Fn(&Task) -> Option<Change>,
    ) -> Result<Option<Task>, HasEnded> {
        Ok(self.ledger.change_at_last(owner, id, change).await?.map(|changed| self.announced(changed)))
    }

    fn announced(&self, changed: Changed) -> Task {
        if changed.has_new_state && self.calls.is_announced(changed.task.id) {
            self.desk.announce(&changed.task);
        }
        changed.task
    }

    /// Ends a task as its call did, once the store is available; `why` is what the log says of its failure. Without effect
    /// if it has ended before.
    pub(super) async fn finish(self: &Arc<Self>, owner: &Owner, id: TaskId, change: Change, why: Option<&str>) {
        let ended = self.change_at_last(owner, id, |_| Some(change.clone())).await;
        if self.has_finished(id, &change, &ended, why) {
            return;
        }
        let status = match ended {
            Err(HasEnded(ending)) => status_of(ending),
            Ok(_) => Ended::Expired,
        };
        // Usually what has ended it takes its call out too. Where the store has not said that it has, nothing does.
        let engine = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(TAKES_OUT).await;
            if let Some(engine) = engine.upgrade() {
                engine.ended(id, status, None, ("the task has ended", None));
            }
        });
    }

    /// Takes out the call of a task that `change` has ended. Returns whether it has.
    fn has_finished<E>(&self, id: TaskId, change: &Change, ended: &Result<Option<Task>, E>, why: Option<&str>) -> bool {
        let (Ok(Some(_)), Some(end)) = (ended, change.end()) else { return false };
        self.ended(id, status_of(end.ending()), Some(end), ("the task has ended", why));
        true
    }

    /// Notes that a task that has not ended was polled.
    pub(super) fn note_poll(&self, task: &Task, who: &Who) {
        if self.calls.count_poll(task) {
            self.observer.emit(events::ExcessivePolling { who, task: task.id, tool: &task.tool });
        }
    }

    /// Ends the call of a task that was cancelled.
    pub(super) fn has_been_cancelled(&self, id: TaskId) {
        self.ended(id, Ended::Cancelled, None, ("its client cancelled it", None));
    }

    fn removed(&self, ids: &[TaskId], status: Ended, why: &'static str) {
        for id in ids {
            self.ended(*id, status, None, (why, None));
            self.calls.mark_told(*id);
        }
        self.gone.notify_waiters();
        // RunningCalls may have waited for the bytes of their results.
        self.turns.advance();
    }

    /// Takes a call out of those that run, if it still does, and stops it with the first reason; the log gets the second.
    fn ended(&self, id: TaskId, status: Ended, end: Option<&End>, (stop, why): (&'static str, Option<&str>)) {
        // Whoever cancels is told so, and of a task that is removed there is nothing more to tell.
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
            code: end.and_then(outcome::code),
            bytes: end.map(End::bytes),
        });
        // Where the call has ended by itself nobody listens any more.
        let _ = running.stop.send(stop);
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
                engine.removed(&expired, Ended::Expired, "its ttl is over");
                pauses = Pauses::default();
            }
            Err(unavailable) => {
                drop(engine);
                pauses.next(&ledger, &unavailable).await;
            }
        }
    }
}

/// How logs and metrics name an ending.
fn status_of(ending: Ending) -> Ended {
    match ending {
        Ending::Result => Ended::Completed,
        Ending::ErrorResult | Ending::Error => Ended::Failed,
        Ending::Cancelled => Ended::Cancelled,
    }
}
