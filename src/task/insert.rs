//! The way of a new task into the store.

use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::{
    Change, NotCreated, State, Task,
    calls::Stop,
    clock::{Now, millis},
    pace::Pace,
    runner::Runner,
    store::SavedCall,
    ttl::Lifetime,
};
use crate::{config::Tool, identity::Owner, observe::events};

impl Task {
    /// Returns the task of a call that has yet to wait or to run.
    pub(super) fn new(owner: Owner, tool_name: Arc<str>, tool: &Tool, lifetime: &Lifetime, now: Now) -> Self {
        Self {
            id: Uuid::new_v4(),
            owner,
            tool: tool_name,
            state: State::Working,
            status_message: None,
            created_at: now.wall,
            last_updated_at: now.wall,
            ttl: millis(lifetime.ttl),
            keep: millis(lifetime.keep),
            shortens: false,
            poll_interval: millis(tool.usual_poll_interval()),
            expires: now.steady.saturating_add(millis(lifetime.ttl)),
            version: 0,
        }
    }
}

impl Runner {
    /// Registers the call of a new task, before the store has the task: so any change that ends the task finds the call
    /// that it has to stop.
    ///
    /// # Errors
    /// [`NotCreated::Stopping`]
    pub(super) fn register(&self, task: &Task, pace: Pace) -> Result<oneshot::Receiver<Stop>, NotCreated> {
        let stopped = self.engine.register(task, &self.caller, self.announced, pace);
        stopped.ok_or_else(|| self.not_created("stopping", NotCreated::Stopping))
    }

    /// Puts a registered task into the store. Where that fails, its call is registered no longer, and `undone` ends the
    /// task if the store has it all the same.
    ///
    /// # Errors
    /// [`NotCreated::Kept`] and [`NotCreated::Unavailable`]
    pub(super) async fn insert(
        &self,
        task: &Task,
        call: Option<SavedCall>,
        undone: fn() -> Change,
    ) -> Result<(), NotCreated> {
        let inserted = self.engine.ledger.store.insert(task.clone(), call).await;
        if !matches!(inserted, Ok(Ok(()))) {
            // First, so that nothing is announced of a task that its client does not know.
            self.engine.deregister(task.id);
        }
        match inserted {
            Ok(Ok(())) => Ok(()),
            Ok(Err(limit)) => Err(self.not_created(limit.name(), NotCreated::Kept(limit))),
            Err(unavailable) => {
                self.engine.ledger.report_unavailable(&unavailable);
                let (engine, owner, id) = (Arc::clone(&self.engine), task.owner.clone(), task.id);
                // Afterwards the store has no such task, or one that has ended.
                tokio::spawn(async move { engine.change_when_available(&owner, id, |_| Some(undone())).await });
                Err(self.not_created("store", NotCreated::Unavailable))
            }
        }
    }

    /// Reports why there is no task.
    fn not_created(&self, reason: &'static str, why: NotCreated) -> NotCreated {
        let (who, tool) = (&*self.caller.who, &*self.tool_id.name);
        self.engine.observer.emit(events::TaskRefused { who, tool, reason });
        why
    }
}
