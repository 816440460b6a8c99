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

use super::{Answer, Limit, Listener, MemoryStore, Store, Unavailable};
use crate::{
    identity::Owner,
    task::{Change, End, Task, TaskId, state::tests::at},
};

/// What goes wrong, at which call, counted from zero.
#[derive(Clone, Copy, Debug)]
pub(in crate::task) enum Fault {
    /// Every call lets others go first, before and after.
    Waits,
    /// That call and so many after it do nothing.
    Fails(usize, usize),
    /// That call does what it is asked, and does not say so.
    IsLost(usize),
    /// Before that call every task changes that has not ended.
    LosesTheRace(usize),
}

pub(in crate::task) struct Faulty {
    store: MemoryStore,
    fault: Fault,
    calls: AtomicUsize,
    tasks: parking_lot::Mutex<Vec<(Owner, TaskId)>>,
}

impl Faulty {
    pub(in crate::task) fn new(store: MemoryStore, fault: Fault) -> Arc<Self> {
        Arc::new(Self { store, fault, calls: AtomicUsize::default(), tasks: parking_lot::Mutex::default() })
    }

    /// Returns how many calls there were.
    pub(in crate::task) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn call<'a, T: Send + 'a>(&'a self, work: Answer<'a, T>) -> Answer<'a, T> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let unavailable = || Err(Unavailable("out of order".into()));
        Box::pin(async move {
            match self.fault {
                Fault::Waits => {
                    turn().await;
                    let answer = work.await;
                    turn().await;
                    answer
                }
                Fault::Fails(from, count) if (from..from + count).contains(&call) => unavailable(),
                Fault::IsLost(at) if at == call => work.await.and_then(|_| unavailable()),
                Fault::Fails(..) | Fault::IsLost(_) | Fault::LosesTheRace(_) => work.await,
            }
        })
    }

    async fn interfere(&self) {
        let Fault::LosesTheRace(at_call) = self.fault else { return };
        if self.calls() != at_call {
            return;
        }
        let tasks = self.tasks.lock().clone();
        for (owner, id) in tasks {
            let Ok(Some(task)) = self.store.get(&owner, id).await else { continue };
            if let Ok(next) = task.after(&Change::Message("faster".into()), at(0)) {
                assert_eq!(self.store.replace(next, None).await, Ok(true));
            }
        }
    }
}

/// Lets the others go on first.
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

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("fault", &self.fault).finish_non_exhaustive()
    }
}

impl Store for Faulty {
    fn insert(&self, task: Task) -> Answer<'_, Result<(), Limit>> {
        self.tasks.lock().push((task.owner.clone(), task.id));
        self.call(Box::pin(async move { self.store.insert(task).await }))
    }

    fn get<'a>(&'a self, owner: &'a Owner, id: TaskId) -> Answer<'a, Option<Arc<Task>>> {
        self.call(Box::pin(async move { self.store.get(owner, id).await }))
    }

    fn end<'a>(&'a self, owner: &'a Owner, id: TaskId) -> Answer<'a, Option<End>> {
        self.call(Box::pin(async move { self.store.end(owner, id).await }))
    }

    fn replace(&self, next: Task, end: Option<End>) -> Answer<'_, bool> {
        Box::pin(async move {
            self.interfere().await;
            self.call(Box::pin(async move { self.store.replace(next, end).await })).await
        })
    }

    fn page<'a>(&'a self, owner: &'a Owner, after: Option<u64>, count: usize) -> Answer<'a, Vec<(u64, Arc<Task>)>> {
        self.call(Box::pin(async move { self.store.page(owner, after, count).await }))
    }

    fn has_any<'a>(&'a self, owner: &'a Owner) -> Answer<'a, bool> {
        self.call(Box::pin(async move { self.store.has_any(owner).await }))
    }

    fn remove_all<'a>(&'a self, owner: &'a Owner) -> Answer<'a, Vec<TaskId>> {
        self.call(Box::pin(async move { self.store.remove_all(owner).await }))
    }

    fn expire(&self, unix: u64) -> Answer<'_, Vec<TaskId>> {
        self.call(Box::pin(async move { self.store.expire(unix).await }))
    }

    fn next_expiry(&self) -> Answer<'_, ()> {
        self.store.next_expiry()
    }

    fn full(&self, owner: &Owner) -> Option<Limit> {
        self.store.full(owner)
    }

    fn listen(&self, listener: Listener) {
        self.store.listen(listener);
    }
}
