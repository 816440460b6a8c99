//! The tasks that run in this process, and how they end.

use std::{
    hash::RandomState,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{
    Change, Illegal, Outcome, Task, TaskId,
    calls::{Calls, Running},
    desk::Desk,
    outcome,
    reply::{NoAnswer, view},
    store::{MaxWaiters, Store},
};
use crate::{
    identity::Owner,
    limit::{Totals, Turns},
    observe::{
        Observer, Who,
        events::{self, Ended},
    },
    session::Session,
    upstream::Capacity,
    wire::{Message, RpcError},
};

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
    pub(super) store: Arc<dyn Store>,
    pub(super) turns: Arc<Turns>,
    pub(super) limits: Limits,
    pub(super) observer: Arc<Observer>,
    /// Where what belongs to running tasks finds its client.
    pub(super) desk: Desk,
    /// Makes cursors that nobody can invent.
    pub(super) cursor_key: RandomState,
    pub(super) calls: Calls,
    /// Told when a task has been removed.
    gone: Notify,
}

impl Engine {
    /// An engine on `store`, whose expired tasks it removes as long as it lives.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, limits: Limits, observer: Arc<Observer>) -> Arc<Self> {
        let engine = Arc::new(Self {
            store: Arc::clone(&store),
            turns: Turns::new(limits.turns),
            desk: Desk::new(Arc::clone(&limits.outbox), Arc::clone(&observer)),
            limits,
            observer,
            cursor_key: RandomState::new(),
            calls: Calls::default(),
            gone: Notify::new(),
        });
        let reaper = Arc::downgrade(&engine);
        tokio::spawn(async move {
            loop {
                store.next_expiry().await;
                let Some(engine) = reaper.upgrade() else { return };
                for id in store.expire(Instant::now()).await {
                    engine.removed(id, Ended::Expired, "its ttl is over");
                }
            }
        });
        engine
    }

    /// Ends the tasks of an owner that nobody can ask for any more.
    pub async fn end_owner(&self, owner: &Owner) {
        for id in self.store.remove_all(owner).await {
            self.removed(id, Ended::Orphaned, "its session has ended");
        }
    }

    /// Whether `owner` has tasks, finished ones included.
    pub async fn has_tasks(&self, owner: &Owner) -> bool {
        self.store.has_any(owner).await
    }

    /// Waits until `owner` has no tasks, finished ones included.
    pub async fn without_tasks(&self, owner: &Owner) {
        loop {
            let gone = self.gone.notified();
            if !self.has_tasks(owner).await {
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
    /// tasks run. A failure is told by `tasks/get`, a result by `tasks/result` alone.
    pub fn owed(&self) -> Option<Vec<Owner>> {
        self.calls.owed()
    }

    /// Resolves when [`Engine::owed`] may have changed, or [`Engine::session_ended`] was called, since the last time.
    pub async fn changed(&self) {
        self.calls.changed().await;
    }

    /// Notes that a session has ended: what its client was asked, another one of its owner is asked, and who waits for
    /// [`Engine::changed`] looks again.
    pub fn session_ended(&self, session: &Session) {
        self.desk.leave(session.id);
        self.calls.look_again();
    }

    /// Fails every task that runs, when the process stops, and returns how many these were.
    pub async fn fail_all(&self, why: &str) -> usize {
        let running = self.calls.close();
        for (id, owner) in &running {
            self.finish(owner, *id, outcome::failed(why.to_owned())).await;
        }
        running.len()
    }

    /// Registers a call of `session` that is about to run, and gives the receiver that stops it. `None` if the process
    /// stops.
    pub(super) fn register(
        &self,
        task: &Task,
        session: &Session,
        announced: bool,
    ) -> Option<oneshot::Receiver<&'static str>> {
        let (stop, stopped) = oneshot::channel();
        if !self.calls.add(task.id, Running::new(task, &session.who, announced, stop)) {
            return None;
        }
        self.desk.begin(task.id, &task.owner, session.id);
        Some(stopped)
    }

    /// Forgets a call that is not going to run.
    pub(super) fn deregister(&self, id: TaskId) {
        self.calls.take(id, false);
        self.desk.end(id);
    }

    /// Changes a task as `change` says of its newest version, and tells its owner if its state is another one then.
    ///
    /// # Errors
    /// `Ok(None)` if it is gone, or there is nothing to change; [`Illegal`] if it is in a terminal state.
    pub(super) async fn change(
        &self,
        owner: &Owner,
        id: TaskId,
        change: impl Fn(&Task) -> Option<Change>,
    ) -> Result<Option<Task>, Illegal> {
        loop {
            let Some(task) = self.store.get(owner, id).await else { return Ok(None) };
            let Some(change) = change(&task) else { return Ok(None) };
            let next = task.after(change, now())?;
            if self.store.replace(next.clone()).await {
                if std::mem::discriminant(&next.state) != std::mem::discriminant(&task.state) {
                    self.announce(&next);
                }
                return Ok(Some(next));
            }
        }
    }

    /// Section "Task Status Notification".
    fn announce(&self, task: &Task) {
        let announced = self.calls.is_announced(task.id);
        if let (true, Ok(notification)) = (announced, Message::parse(view(task).to_notification().into())) {
            self.desk.announce(task.id, task.version, notification);
        }
    }

    /// Ends a task as its call did. Without effect if somebody else ended it before.
    pub(super) async fn finish(&self, owner: &Owner, id: TaskId, change: Change) {
        let status = if matches!(change, Change::Complete(_)) { Ended::Completed } else { Ended::Failed };
        if let Ok(Some(task)) = self.change(owner, id, |_| Some(change.clone())).await {
            self.ended(id, status, Some(&task), "the task has ended");
        }
    }

    /// Notes that a task that has not ended was polled.
    pub(super) fn polled(&self, task: &Task, who: &Who) {
        if self.calls.polled(task) {
            self.observer.emit(events::ExcessivePolling { who, task: task.id, tool: &task.tool });
        }
    }

    /// Cancels a task: it is cancelled before this returns, its call shortly after.
    pub(super) async fn stop(&self, owner: &Owner, id: TaskId) -> Result<Task, NoAnswer> {
        match self.change(owner, id, |_| Some(Change::Cancel)).await {
            Ok(Some(task)) => {
                self.ended(id, Ended::Cancelled, Some(&task), "tasks/cancel");
                Ok(task)
            }
            Ok(None) => Err(NoAnswer::NotFound(Some(id))),
            Err(illegal) => Err(RpcError::invalid_params(format!("Cannot cancel task: {illegal}")).into()),
        }
    }

    fn removed(&self, id: TaskId, status: Ended, why: &'static str) {
        self.ended(id, status, None, why);
        self.calls.told(id);
        self.observer.emit(events::TaskRemoved { task: id });
        self.gone.notify_waiters();
    }

    /// Takes a call out of those that run, if it still does, and stops it.
    fn ended(&self, id: TaskId, status: Ended, task: Option<&Task>, why: &'static str) {
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
            message: task.and_then(|task| task.status_message.as_deref()),
            bytes: task.and_then(|task| task.state.outcome()).map(Outcome::len),
        });
        // Where the call has ended by itself nobody listens any more.
        let _ = running.stop.send(why);
    }
}

/// Milliseconds since the Unix epoch.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
