//! Changes of tasks in a store that may not answer.

use std::time::Duration;

use super::{
    Change, Engine, HasEnded, Task, TaskId,
    store::{Answer, Unavailable},
};
use crate::{identity::Owner, observe::events};

/// How long it takes until a store that was unavailable is asked again, at first and at most.
pub(super) const ASKS_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl Engine {
    /// Notes that the store did not answer.
    pub(super) fn unavailable(&self, why: &Unavailable) {
        self.observer.emit(events::StoreUnavailable { why: &why.0 });
    }

    /// Asks the store until it answers.
    pub(super) async fn until_available<'a, T>(&self, ask: impl Fn() -> Answer<'a, T>) -> T {
        let mut pause = ASKS_AGAIN.0;
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(unavailable) => {
                    self.unavailable(&unavailable);
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(ASKS_AGAIN.1);
                }
            }
        }
    }

    /// Changes a task as `change` says of its newest version, and tells its owner if its state is another one then. Returns
    /// `None` if it is gone, or there is nothing to change.
    ///
    /// # Errors
    /// [`NotChanged`]
    pub(super) async fn change(
        &self,
        owner: &Owner,
        id: TaskId,
        change: impl Fn(&Task) -> Option<Change>,
    ) -> Result<Option<Task>, NotChanged> {
        self.try_change(owner, id, &change, &mut None).await
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
        let (mut unknown, mut pause) = (None, ASKS_AGAIN.0);
        loop {
            match self.try_change(owner, id, &change, &mut unknown).await {
                Ok(changed) => return Ok(changed),
                Err(NotChanged::HasEnded(ended)) => return Err(ended),
                Err(NotChanged::Unavailable(unavailable)) => {
                    self.unavailable(&unavailable);
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(ASKS_AGAIN.1);
                }
            }
        }
    }

    /// Tries a change. `unknown` is the version that an earlier try may have written, where the store did not say.
    async fn try_change(
        &self,
        owner: &Owner,
        id: TaskId,
        change: &impl Fn(&Task) -> Option<Change>,
        unknown: &mut Option<Task>,
    ) -> Result<Option<Task>, NotChanged> {
        loop {
            let Some(task) = self.store.get(owner, id).await? else { return Ok(None) };
            if let Some(written) = unknown.take().filter(|written| written.is(&task)) {
                self.announce(&written);
                return Ok(Some(written));
            }
            let Some(change) = change(&task) else { return Ok(None) };
            let next = task.after(&change, self.clock.now())?;
            match self.store.replace(next.clone(), change.end().cloned()).await {
                Ok(true) => {
                    if next.state != task.state {
                        self.announce(&next);
                    }
                    return Ok(Some(next));
                }
                Ok(false) => {}
                Err(unavailable) => {
                    *unknown = Some(next);
                    return Err(unavailable.into());
                }
            }
        }
    }
}

/// Why a task was not changed.
#[derive(Debug)]
pub(super) enum NotChanged {
    /// It has ended.
    HasEnded(HasEnded),
    /// The store does not answer, and may have changed it.
    Unavailable(Unavailable),
}

impl From<HasEnded> for NotChanged {
    fn from(ended: HasEnded) -> Self {
        Self::HasEnded(ended)
    }
}

impl From<Unavailable> for NotChanged {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}
