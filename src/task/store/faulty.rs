//! A store that fails, waits or loses the race at a call that the test chooses.

use std::{
    fmt,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use bytes::Bytes;
use tempfile::TempDir;

use super::{
    CallChange, ChangeCallback, KeptLimit, NoEnd, NoteWritten, PageOrder, SavedCall, Store, StoreFuture, Unavailable,
    Unfinished,
};
use crate::{
    identity::Owner,
    task::{Change, End, Task, TaskId, state::tests::at},
};

/// What goes wrong, and at which call. Calls count from zero.
#[derive(Clone, Copy, Debug)]
pub(in crate::task) enum Fault {
    /// Nothing does.
    None,
    /// Every call lets others go first, before and after.
    Waits,
    /// So many calls from `at` on do nothing.
    Fails { at: usize, count: usize },
    /// That call does its work, and its answer is lost.
    IsLost(usize),
    /// That change gets no answer, and is made when the next one is on its way.
    IsLate(usize),
    /// Before that call every running task changes.
    LosesTheRace(usize),
}

/// A store over another one, with one fault.
pub(in crate::task) struct FaultyStore {
    store: Box<dyn Store>,
    /// Where the store has its file, if it has one.
    _folder: Option<TempDir>,
    fault: Fault,
    calls: AtomicUsize,
    tasks: parking_lot::Mutex<Vec<(Owner, TaskId)>>,
    /// A change that is yet to be made.
    late: parking_lot::Mutex<Option<(Task, Option<End>, CallChange)>>,
}

impl FaultyStore {
    pub(in crate::task) fn new(store: impl Store + 'static, fault: Fault) -> Arc<Self> {
        Self::in_folder(store, None, fault)
    }

    /// Returns a store over one with a file in a folder, which goes with it.
    pub(in crate::task) fn in_folder(store: impl Store + 'static, folder: Option<TempDir>, fault: Fault) -> Arc<Self> {
        let (calls, tasks, late) = Default::default();
        Arc::new(Self { store: Box::new(store), _folder: folder, fault, calls, tasks, late })
    }

    /// Returns how many calls there were.
    pub(in crate::task) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn call<'a, T: Send + 'a, E: From<Unavailable> + Send + 'a>(
        &'a self,
        work: StoreFuture<'a, T, E>,
    ) -> StoreFuture<'a, T, E> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            match self.fault {
                Fault::Waits => {
                    turn().await;
                    let answer = work.await;
                    turn().await;
                    answer
                }
                Fault::Fails { at, count } if (at..at + count).contains(&call) => unavailable(),
                Fault::IsLost(at) if at == call => work.await.and_then(|_| unavailable()),
                _ => work.await,
            }
        })
    }

    /// Changes every running task, if the next call is to lose the race.
    async fn interfere(&self) {
        let Fault::LosesTheRace(at_call) = self.fault else { return };
        if self.calls() != at_call {
            return;
        }
        let tasks = self.tasks.lock().clone();
        for (owner, id) in tasks {
            let Ok(Some(task)) = self.store.get(&owner, id).await else { continue };
            if let Ok(next) = task.after(&Change::Message("faster".into()), at(0)) {
                assert_eq!(self.store.replace(next, None, CallChange::Keep).await, Ok(true));
            }
        }
    }
}

fn unavailable<T, E: From<Unavailable>>() -> Result<T, E> {
    Err(Unavailable("out of order".into()).into())
}

/// Lets others go on first.
pub(in crate::task) async fn turn() {
    let mut waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("fault", &self.fault).finish_non_exhaustive()
    }
}

impl Store for FaultyStore {
    fn insert(&self, task: Task, call: Option<SavedCall>) -> StoreFuture<'_, Result<(), KeptLimit>> {
        self.tasks.lock().push((task.owner.clone(), task.id));
        self.call(Box::pin(async move { self.store.insert(task, call).await }))
    }

    fn get<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<Arc<Task>>> {
        self.call(Box::pin(async move { self.store.get(owner, id).await }))
    }

    fn end<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<End>, NoEnd> {
        self.call(Box::pin(async move { self.store.end(owner, id).await }))
    }

    fn replace(&self, next: Task, end: Option<End>, call: CallChange) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            self.interfere().await;
            if matches!(self.fault, Fault::IsLate(at) if at == self.calls()) {
                *self.late.lock() = Some((next, end, call));
                return self.call(Box::pin(async { unavailable() })).await;
            }
            let late = self.late.lock().take();
            if let Some((next, end, call)) = late {
                self.store.replace(next, end, call).await?;
            }
            self.call(Box::pin(async move { self.store.replace(next, end, call).await })).await
        })
    }

    fn page<'a>(&'a self, owner: &'a Owner, order: PageOrder, count: usize) -> StoreFuture<'a, Vec<(u64, Arc<Task>)>> {
        self.call(Box::pin(async move { self.store.page(owner, order, count).await }))
    }

    fn has_any<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, bool> {
        self.call(Box::pin(async move { self.store.has_any(owner).await }))
    }

    fn remove_all<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, Vec<TaskId>> {
        self.call(Box::pin(async move { self.store.remove_all(owner).await }))
    }

    fn expire(&self, unix: u64) -> StoreFuture<'_, Vec<TaskId>> {
        self.call(Box::pin(async move { self.store.expire(unix).await }))
    }

    fn next_expiry(&self) -> StoreFuture<'_, ()> {
        self.store.next_expiry()
    }

    fn note(&self, task: TaskId, note: Bytes, written: NoteWritten) {
        self.store.note(task, note, written);
    }

    fn unfinished(&self) -> StoreFuture<'_, Vec<Unfinished>> {
        self.store.unfinished()
    }

    fn owners(&self) -> StoreFuture<'_, Vec<(Owner, usize)>> {
        self.store.owners()
    }

    fn saves_calls(&self) -> bool {
        self.store.saves_calls()
    }

    fn seals(&self) -> bool {
        self.store.seals()
    }

    fn full(&self, owner: &Owner) -> Option<KeptLimit> {
        self.store.full(owner)
    }

    fn on_change(&self, callback: ChangeCallback) {
        self.store.on_change(callback);
    }
}
