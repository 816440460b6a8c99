//! What dialects ask the engine about the tasks of one owner, in terms of no wire form.

use std::{sync::Arc, time::Duration};

use super::{
    Change, End, Ending, Engine, LastingWork, Missing, Outlook, PageOrder, State, Task, TaskId, ledger::NotChanged,
    state::HasEnded,
};
use crate::{
    identity::Owner,
    observe::{Who, events},
};

/// A task as it is now, for a client that polls it.
#[derive(Clone, Debug)]
pub struct PolledTask {
    /// The task.
    pub task: Arc<Task>,
    /// What its client is told of its time.
    pub outlook: Outlook,
}

/// Why a task was not cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCancelled {
    /// It is not found; if the store is unavailable, it may be cancelled all the same.
    Missing(Missing),
    /// It has ended before.
    HasEnded(Ending),
}

impl Engine {
    /// Returns a task as it is now, for a client that polls it.
    ///
    /// # Errors
    /// [`Missing`]
    pub async fn poll(&self, owner: &Owner, id: TaskId, who: &Who) -> Result<PolledTask, Missing> {
        let task = self.find_to_tell(owner, id).await?;
        let outlook = if task.state.is_terminal() { Outlook::unknown(&task) } else { self.note_poll(&task, who) };
        Ok(PolledTask { task, outlook })
    }

    /// Returns a task as it is now, for a client that is told of it without asking.
    ///
    /// # Errors
    /// [`Missing`]
    pub async fn tell(&self, owner: &Owner, id: TaskId) -> Result<PolledTask, Missing> {
        let task = self.find_to_tell(owner, id).await?;
        let outlook = self.outlook(&task);
        Ok(PolledTask { task, outlook })
    }

    async fn find_to_tell(&self, owner: &Owner, id: TaskId) -> Result<Arc<Task>, Missing> {
        let task = self.ledger.find(owner, id).await?;
        // Many clients never ask for the result of a task that has failed.
        if matches!(task.state, State::Ended(ending) if ending != Ending::Result) {
            self.calls.mark_told(id);
        }
        Ok(task)
    }

    /// Returns what the client of a task is told of its time.
    #[must_use]
    pub fn outlook(&self, task: &Task) -> Outlook {
        let running = (!task.state.is_terminal()).then(|| self.calls.outlook(task.id)).flatten();
        running.unwrap_or_else(|| Outlook::unknown(task))
    }

    /// Returns how long the call of a task has run; `None` where it does not run here.
    #[must_use]
    pub fn run_time(&self, id: TaskId) -> Option<Duration> {
        self.calls.began(id).map(|began| began.elapsed())
    }

    /// Counts a poll of a task that has not ended, and reports excessive ones. Returns what its client is told.
    fn note_poll(&self, task: &Task, who: &Who) -> Outlook {
        let Some(poll) = self.calls.poll(task.id) else { return Outlook::unknown(task) };
        if poll.is_excessive {
            self.observer.emit(events::ExcessivePolling { who, task: task.id, tool: &task.tool });
        }
        poll.outlook
    }

    /// Returns a task as it is now, for a request that waits for it.
    ///
    /// # Errors
    /// [`Missing`]
    pub async fn look(&self, owner: &Owner, id: TaskId) -> Result<Arc<Task>, Missing> {
        self.ledger.find(owner, id).await
    }

    /// Returns the end of a task, for a client that collects it; `None` while it has not ended.
    ///
    /// # Errors
    /// [`Missing`]
    pub async fn retrieve(&self, owner: &Owner, id: TaskId, who: &Who) -> Result<Option<End>, Missing> {
        let task = self.ledger.find(owner, id).await?;
        if task.state.is_terminal() { self.collect(owner, &task, who).await.map(Some) } else { Ok(None) }
    }

    /// Returns the end of a task that has been found to have ended, for a client that collects it.
    ///
    /// # Errors
    /// [`Missing`]
    pub async fn collect(&self, owner: &Owner, task: &Task, who: &Who) -> Result<End, Missing> {
        let id = task.id;
        // It may have expired meanwhile.
        let end = self.ledger.end(owner, id).await?;
        self.calls.mark_told(id);
        let (tool, status, bytes) = (&task.tool, end.ending().into(), end.bytes());
        self.observer.emit(events::ResultRetrieved { who, task: id, tool, status, bytes });
        Ok(end)
    }

    /// Returns at most `count` tasks of `owner`, each with its place. If it returns fewer, there are no more.
    ///
    /// # Errors
    /// [`Missing::Unavailable`]
    pub async fn page(&self, owner: &Owner, order: PageOrder, count: usize) -> Result<Vec<(u64, Arc<Task>)>, Missing> {
        self.ledger.once(self.ledger.store.page(owner, order, count)).await
    }

    /// Returns whether a task exists for `owner`; while the store is unavailable, `true`.
    pub async fn may_have(&self, owner: &Owner, id: TaskId) -> bool {
        !matches!(self.ledger.find(owner, id).await, Err(Missing::NotFound(_)))
    }

    /// Cancels a task for its owner, and its call in the upstream shortly after. This goes on even if the returned
    /// future is dropped.
    ///
    /// # Errors
    /// [`NotCancelled`]
    pub async fn cancel(self: &Arc<Self>, owner: &Owner, who: &Arc<Who>, id: TaskId) -> Result<Task, NotCancelled> {
        let (engine, owner, who) = (Arc::clone(self), owner.clone(), Arc::clone(who));
        let cancelling = LastingWork::new(async move {
            let task = engine.stop(&owner, id).await?;
            engine.observer.emit(events::TaskCancelled { who: &who, task: id, tool: &task.tool });
            Ok(task)
        });
        cancelling.await
    }

    /// Cancels a task as [`Engine::cancel`] does, without the event.
    pub(super) async fn stop(self: &Arc<Self>, owner: &Owner, id: TaskId) -> Result<Task, NotCancelled> {
        match self.change(owner, id, |_| Some(Change::cancel())).await {
            Ok(Some(task)) => {
                self.take_out_cancelled(id);
                Ok(task)
            }
            Ok(None) => Err(NotCancelled::Missing(Missing::NotFound(id))),
            Err(NotChanged::HasEnded(HasEnded(ending))) => Err(NotCancelled::HasEnded(ending)),
            Err(NotChanged::Unavailable(why)) => {
                self.ledger.report_unavailable(&why);
                // The store may have cancelled it: then its call must stop. If it has not, the client still wants it.
                if self.cancelling.lock().insert(id) {
                    let (engine, owner) = (Arc::clone(self), owner.clone());
                    tokio::spawn(async move {
                        let cancelled = engine.change_when_available(&owner, id, |_| Some(Change::cancel())).await;
                        if matches!(cancelled, Ok(Some(_)) | Err(HasEnded(Ending::Cancelled))) {
                            engine.take_out_cancelled(id);
                        }
                        engine.cancelling.lock().remove(&id);
                    });
                }
                Err(NotCancelled::Missing(Missing::Unavailable))
            }
        }
    }
}
