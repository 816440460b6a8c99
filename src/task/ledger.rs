//! Reads and changes tasks in the store, and retries while it is unavailable.

use std::{
    collections::{HashMap, hash_map::Entry},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    Change, Clock, End, Task, TaskId,
    state::HasEnded,
    store::{CallChange, NoEnd, SavedCall, Store, StoreFuture, Unavailable},
};
use crate::{
    identity::Owner,
    observe::{Observer, events},
};

/// The first pause before an unavailable store is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause before an unavailable store is asked again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a store that is well takes for a change at most.
const SLOW: Duration = Duration::from_secs(1);

/// The store, the clock of its deadlines, and where its failures are reported.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    observer: Arc<Observer>,
    untaken: Untaken,
}

/// How many changes of each task the store has not taken, though it had time.
#[derive(Clone, Debug, Default)]
struct Untaken(Arc<Mutex<HashMap<TaskId, usize>>>);

/// One of them. Who drops it has the store's answer, or wants the change no longer.
struct UntakenChange(Untaken, TaskId);

/// A task that was changed.
#[derive(Debug)]
pub(super) struct Changed {
    /// As it is now.
    pub(super) task: Task,
    /// Whether its state may have changed.
    pub(super) has_new_state: bool,
}

/// What a client is told where the store does not answer.
pub const UNAVAILABLE: &str = "taskgate cannot reach its store of tasks now; try again";

/// Why there is no task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The owner has none with this id: it is unknown, foreign or expired.
    NotFound(TaskId),
    /// The store does not answer now.
    Unavailable,
    /// The store has its result, and that is damaged for good.
    Damaged,
}

/// Why a task was not changed.
#[derive(Debug)]
pub(super) enum NotChanged {
    /// It has ended.
    HasEnded(HasEnded),
    /// The store does not answer, and may have changed it.
    Unavailable(Unavailable),
}

/// The pauses of work that waits for the store: each is longer than the one before.
#[derive(Debug)]
pub(super) struct Pauses(Duration);

impl Ledger {
    pub(super) fn new(store: Arc<dyn Store>, clock: Clock, observer: Arc<Observer>) -> Self {
        Self { store, clock, observer, untaken: Untaken::default() }
    }

    /// Returns of how many tasks the store has not taken a change so far.
    pub(super) fn untaken(&self) -> usize {
        self.untaken.0.lock().len()
    }

    /// Counts a change of a task as one that the store does not take, as the process ends.
    pub(super) fn count_untaken(&self, id: TaskId) {
        self.untaken.add(id);
    }

    /// Reports that the store did not answer.
    pub(super) fn report_unavailable(&self, why: &Unavailable) {
        self.observer.emit(events::StoreUnavailable { why: &why.0 });
    }

    /// Returns a task.
    ///
    /// # Errors
    /// [`Missing`]
    pub(super) async fn find(&self, owner: &Owner, id: TaskId) -> Result<Arc<Task>, Missing> {
        self.once(self.store.get(owner, id)).await?.ok_or(Missing::NotFound(id))
    }

    /// Returns the end of a task that has ended.
    ///
    /// # Errors
    /// [`Missing`]
    pub(super) async fn end(&self, owner: &Owner, id: TaskId) -> Result<End, Missing> {
        match self.store.end(owner, id).await {
            Ok(end) => end.ok_or(Missing::NotFound(id)),
            // The store has told it.
            Err(NoEnd::Damaged) => Err(Missing::Damaged),
            Err(NoEnd::Unavailable(why)) => {
                self.report_unavailable(&why);
                Err(Missing::Unavailable)
            }
        }
    }

    /// Waits for one answer of the store, and reports where there is none.
    ///
    /// # Errors
    /// [`Missing::Unavailable`]
    pub(super) async fn once<T>(&self, answer: StoreFuture<'_, T>) -> Result<T, Missing> {
        answer.await.map_err(|why| {
            self.report_unavailable(&why);
            Missing::Unavailable
        })
    }

    /// Asks the store until it answers.
    pub(super) async fn until_available<'a, T>(&self, ask: impl Fn() -> StoreFuture<'a, T>) -> T {
        let mut pauses = Pauses::default();
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(unavailable) => pauses.next(self, &unavailable).await,
            }
        }
    }

    /// Makes the change that `change` returns for the newest version of a task. Returns `None` if there is no such
    /// task, or nothing to change.
    ///
    /// # Errors
    /// [`NotChanged`]
    pub(super) async fn change(
        &self,
        owner: &Owner,
        id: TaskId,
        change: impl Fn(&Task) -> Option<Change>,
    ) -> Result<Option<Changed>, NotChanged> {
        self.try_change(owner, id, &change, &|| CallChange::Keep, &mut None).await
    }

    /// Changes a task as [`Ledger::change`] does, and retries until the store is available.
    ///
    /// # Errors
    /// [`HasEnded`]
    pub(super) async fn change_when_available(
        &self,
        owner: &Owner,
        id: TaskId,
        change: impl Fn(&Task) -> Option<Change>,
    ) -> Result<Option<Changed>, HasEnded> {
        self.until_changed(owner, id, &change, &|| CallChange::Keep).await
    }

    /// Changes a task, and what is saved of its call, as [`Ledger::change_when_available`] does: as `call` returns it
    /// at each try.
    ///
    /// # Errors
    /// [`HasEnded`]
    pub(super) async fn change_call(
        &self,
        owner: &Owner,
        id: TaskId,
        change: impl Fn(&Task) -> Option<Change>,
        call: impl Fn() -> Option<SavedCall>,
    ) -> Result<Option<Changed>, HasEnded> {
        self.until_changed(owner, id, &change, &|| call().map_or(CallChange::Keep, CallChange::Set)).await
    }

    async fn until_changed(
        &self,
        owner: &Owner,
        id: TaskId,
        change: &impl Fn(&Task) -> Option<Change>,
        call: &impl Fn() -> CallChange,
    ) -> Result<Option<Changed>, HasEnded> {
        let (mut unknown, mut pauses, mut untaken) = (None, Pauses::default(), None);
        loop {
            let tried = {
                let mut trying = pin!(self.try_change(owner, id, change, call, &mut unknown));
                if let Ok(tried) = tokio::time::timeout(SLOW, &mut trying).await {
                    tried
                } else {
                    untaken.get_or_insert_with(|| self.untaken.begin(id));
                    trying.await
                }
            };
            match tried {
                Ok(changed) => return Ok(changed),
                Err(NotChanged::HasEnded(ended)) => return Err(ended),
                Err(NotChanged::Unavailable(unavailable)) => {
                    untaken.get_or_insert_with(|| self.untaken.begin(id));
                    pauses.next(self, &unavailable).await;
                }
            }
        }
    }

    /// Tries a change. `unknown` is the version that an earlier try may have written without an answer of the store.
    async fn try_change(
        &self,
        owner: &Owner,
        id: TaskId,
        change: &impl Fn(&Task) -> Option<Change>,
        call: &impl Fn() -> CallChange,
        unknown: &mut Option<Task>,
    ) -> Result<Option<Changed>, NotChanged> {
        loop {
            let Some(task) = self.store.get(owner, id).await? else { return Ok(None) };
            if unknown.take_if(|written| written.is(&task)).is_some() {
                return Ok(Some(Changed { task: Task::clone(&task), has_new_state: true }));
            }
            let Some(change) = change(&task) else { return Ok(None) };
            let mut next = task.after(&change, self.clock.now())?;
            // The earlier try may still be written. This one gets the same time, so that either is recognized.
            if let Some(tried) = unknown.as_ref().filter(|tried| tried.version == next.version) {
                next.last_updated_at = tried.last_updated_at;
            }
            match self.store.replace(next.clone(), change.end().cloned(), call()).await {
                Ok(true) => {
                    let has_new_state = next.state != task.state;
                    return Ok(Some(Changed { task: next, has_new_state }));
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

impl Untaken {
    fn add(&self, id: TaskId) {
        *self.0.lock().entry(id).or_default() += 1;
    }

    fn begin(&self, id: TaskId) -> UntakenChange {
        self.add(id);
        UntakenChange(self.clone(), id)
    }
}

impl Drop for UntakenChange {
    fn drop(&mut self) {
        if let Entry::Occupied(mut changes) = self.0.0.lock().entry(self.1) {
            *changes.get_mut() -= 1;
            if *changes.get() == 0 {
                changes.remove();
            }
        }
    }
}

impl Pauses {
    /// Reports that the store did not answer, unless that was a further try, and waits for the next pause.
    pub(super) async fn next(&mut self, ledger: &Ledger, why: &Unavailable) {
        if self.0 == FIRST_PAUSE {
            ledger.report_unavailable(why);
        }
        tokio::time::sleep(self.0).await;
        self.0 = (2 * self.0).min(LONGEST_PAUSE);
    }
}

impl Default for Pauses {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::task::store::{MaxKept, MemoryStore};

    /// What becomes of each line of the log.
    struct Lines(mpsc::Sender<()>);

    impl std::io::Write for Lines {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.0.send(()).expect("it is read");
            Ok(line.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_is_tried_again_and_again_is_reported_once() {
        let (told, lines) = mpsc::channel();
        let log = tracing_subscriber::fmt().with_writer(move || Lines(told.clone())).finish();
        let _log = tracing::subscriber::set_default(log);
        let clock = Clock::starting_at(1000);
        let store = MemoryStore::new(MaxKept::of_tasks(1, 1), clock, Arc::default());
        let ledger = Ledger::new(Arc::new(store), clock, Arc::default());
        for changes in 1..=2 {
            let mut pauses = Pauses::default();
            for _ in 0..10 {
                pauses.next(&ledger, &Unavailable("the disk is full".into())).await;
            }
            assert_eq!(lines.try_iter().count(), 1, "change {changes}");
        }
    }
}
